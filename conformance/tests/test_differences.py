"""Central differences against derivatives known in closed form; they know nothing of the tangent rules."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradspec.programs import differences
from gradspec.programs.program import Input, Program, Root, Step

SUM = (("dim", None), ("keepdim", False))


def leaf(*values: Any, dtype: str = "float64") -> Input:
    return Input((len(values),), values, dtype, requires_grad=True)


@pytest.mark.parametrize(
    ("op", "at", "slope"),
    [
        ("square", 3.0, 6.0),
        ("exp", 1.0, math.e),
        ("reciprocal", 0.25, -16.0),
        ("tanh", -0.5, 1 / math.cosh(0.5) ** 2),
        ("abs", -0.5, -1.0),
        ("relu", 2.0**-9, 1.0),
        ("neg", 64.0, -1.0),
    ],
)
def test_slopes_of_single_operations(op: str, at: float, slope: float) -> None:
    program = Program((leaf(at),), (Step(op, (0,)),), (Root(1, (2.0,)),))
    np.testing.assert_allclose(differences.difference_gradients(program)[0], [2 * slope], rtol=1e-7)
    pushed = differences.difference_pushforward(program, {0: np.array([-1.0])})
    np.testing.assert_allclose(pushed[1], [-slope], rtol=1e-7)
    np.testing.assert_allclose(pushed[0], [-1], rtol=1e-12)


def test_gradients_of_leaves_results_and_what_is_not_reached() -> None:
    inputs = (leaf(1.0, 2.0), leaf(7.0))
    steps = (Step("square", (0,)), Step("mul", (2, 0)), Step("sum", (3,), SUM))
    program = Program(inputs, steps, (Root(4), Root(2, (0.5, 0.0)))).check()
    found = differences.difference_gradients(program)
    np.testing.assert_allclose(found[0], [3 + 1, 12], rtol=1e-9)
    np.testing.assert_array_equal(found[1], [0])
    np.testing.assert_allclose(differences.difference_gradients(program, [2])[2], [1.5, 2], rtol=1e-9)


def test_complex_gradients_are_derivatives_by_both_parts() -> None:
    program = Program((leaf(3 + 4j, dtype="complex128"),), (Step("square", (0,)),), (Root(1, (1 + 2j,)),))
    np.testing.assert_allclose(differences.difference_gradients(program)[0], [(1 + 2j) * (6 - 8j)], rtol=1e-9)


@pytest.mark.parametrize("op", ["abs", "relu"])
@pytest.mark.parametrize("at", [0.0, 2.0**-12, -(2.0**-10)])
def test_a_kink_within_the_step_is_refused(op: str, at: float) -> None:
    program = Program((leaf(1.0, at),), (Step(op, (0,)),), (Root(1),))
    with pytest.raises(differences.Kink, match=f"{op} is not differentiable within the step"):
        differences.difference_gradients(program)


def test_a_kink_that_no_root_depends_on_is_no_matter() -> None:
    program = Program((leaf(0.0),), (Step("abs", (0,)), Step("exp", (0,))), (Root(2),))
    np.testing.assert_allclose(differences.difference_gradients(program)[0], [1], rtol=1e-9)


def test_the_spread_tells_a_steep_place_from_a_smooth_one() -> None:
    program = Program((leaf(2.0**-9, 1.0),), (Step("reciprocal", (0,)),), (Root(1),))
    gradient, spread = differences.difference_estimates(program)[0]
    assert spread[1] < 1e-5
    assert spread[0] > 0.1 * abs(gradient[0])
    assert abs(gradient[1] + 1) < spread[1]
    assert abs(gradient[0] + 2.0**18) < spread[0]


def test_it_imports_no_tangent_rule() -> None:
    """The second opinion stays independent of the first."""
    tree = ast.parse(Path(differences.__file__).read_text(encoding="utf-8"))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert modules & {"gradspec.programs.forward"}
    assert not [m for m in modules if m and ("dual" in m or "oracles" in m)]
