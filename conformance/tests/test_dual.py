"""Tangents against derivatives known in closed form, and Jacobians of small programs written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradspec.programs import dual
from gradspec.programs.forward import evaluate
from gradspec.programs.program import Input, Program, Root, Step

SUM = (("dim", None), ("keepdim", False))

DERIVATIVES: list[tuple[str, dict[str, Any], Callable[[float], float]]] = [
    ("neg", {}, lambda _: -1),
    ("abs", {}, lambda x: math.copysign(1, x)),
    ("relu", {}, lambda x: float(x > 0)),
    ("square", {}, lambda x: 2 * x),
    ("reciprocal", {}, lambda x: -(x**-2)),
    ("sqrt", {}, lambda x: 0.5 * x**-0.5),
    ("exp", {}, math.exp),
    ("log", {}, lambda x: 1 / x),
    ("sin", {}, math.cos),
    ("cos", {}, lambda x: -math.sin(x)),
    ("tanh", {}, lambda x: math.cosh(x) ** -2),
    ("sigmoid", {}, lambda x: 1 / (2 + math.exp(x) + math.exp(-x))),
    ("clone", {}, lambda _: 1),
    ("pow", {"exponent": 3}, lambda x: 3 * x * x),
    ("pow", {"exponent": 1}, lambda _: 1),
    ("pow", {"exponent": 0}, lambda _: 0),
    ("pow", {"exponent": -2}, lambda x: -2 * x**-3),
    ("pow", {"exponent": 0.5}, lambda x: 0.5 * x**-0.5),
]


def vector(*values: Any, shape: tuple[int, ...] | None = None) -> Input:
    dtype = "complex128" if any(isinstance(v, complex) for v in values) else "float64"
    return Input((len(values),) if shape is None else shape, values, dtype, requires_grad=True)


@pytest.mark.parametrize(("op", "attributes", "slope"), DERIVATIVES)
@pytest.mark.parametrize("at", [0.125, 1.5, -0.75, -3.0])
def test_elementwise_tangents_are_the_derivative(op: str, attributes: Any, slope: Any, at: float) -> None:
    at = abs(at) if op in ("sqrt", "log") or attributes.get("exponent") == 0.5 else at
    program = Program((vector(at, 1.0),), (Step(op, (0,), tuple(attributes.items())),)).check()
    pushed = dual.pushforward(program, {0: np.array([2.0, 0.0])})
    np.testing.assert_allclose(pushed[1].tangent, [2 * slope(at), 0], rtol=1e-14)
    np.testing.assert_array_equal(pushed[1].value, evaluate(program)[1])


@pytest.mark.parametrize("at", [20.0, -20.0, 700.0, -700.0])
def test_tails_keep_their_relative_precision(at: float) -> None:
    for op, factor in (("tanh", 2), ("sigmoid", 1)):
        program = Program((vector(at),), (Step(op, (0,)),))
        exact = factor**2 * math.exp(-factor * abs(at))
        np.testing.assert_allclose(dual.jacobian(program, 1, 0), [[exact]], rtol=1e-8)


def test_powers_have_a_derivative_at_zero() -> None:
    for exponent, slope in ((0, 0), (1, 1), (2, 0), (3, 0)):
        program = Program((vector(0.0),), (Step("pow", (0,), (("exponent", exponent),)),))
        np.testing.assert_array_equal(dual.jacobian(program, 1, 0), [[slope]])


@pytest.mark.parametrize(
    ("op", "left", "right"),
    [
        ("add", [[1, 0], [0, 1]], [[1], [1]]),
        ("sub", [[1, 0], [0, 1]], [[-1], [-1]]),
        ("mul", [[4, 0], [0, 4]], [[2], [3]]),
        ("div", [[0.25, 0], [0, 0.25]], [[-2 / 16], [-3 / 16]]),
    ],
)
def test_jacobians_of_broadcasting_operations(op: str, left: Any, right: Any) -> None:
    program = Program((vector(2.0, 3.0), vector(4.0, shape=())), (Step(op, (0, 1)),)).check()
    np.testing.assert_array_equal(dual.jacobian(program, 2, 0), left)
    np.testing.assert_array_equal(dual.jacobian(program, 2, 1), right)


def test_the_jacobian_of_a_matrix_product() -> None:
    program = Program((vector(1.0, 2.0, 3.0, 4.0, shape=(2, 2)), vector(5.0, 7.0)), (Step("matmul", (0, 1)),)).check()
    np.testing.assert_array_equal(dual.jacobian(program, 2, 0), [[5, 7, 0, 0], [0, 0, 5, 7]])
    np.testing.assert_array_equal(dual.jacobian(program, 2, 1), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("op", "jacobian"),
    [
        ("square", [[6, -8], [8, 6]]),
        ("conj", [[1, 0], [0, -1]]),
        ("real", [[1, 0]]),
        ("imag", [[0, 1]]),
        ("neg", [[-1, 0], [0, -1]]),
    ],
)
def test_complex_jacobians_are_those_of_pairs_of_reals(op: str, jacobian: Any) -> None:
    program = Program((vector(3 + 4j),), (Step(op, (0,)),))
    np.testing.assert_array_equal(dual.jacobian(program, 1, 0), jacobian)


def test_complex_gradients_follow_the_conjugate_convention() -> None:
    modulus = (Step("conj", (0,)), Step("mul", (0, 1)), Step("real", (2,)), Step("sum", (3,), SUM))
    program = Program((vector(3 + 4j, 1 - 2j),), modulus, (Root(4),)).check()
    np.testing.assert_array_equal(dual.expected_gradients(program)[0], [6 + 8j, 2 - 4j])
    holomorphic = Program((vector(3 + 4j),), (Step("square", (0,)),), (Root(1, (1 + 2j,)),))
    np.testing.assert_array_equal(dual.expected_gradients(holomorphic)[0], [(1 + 2j) * (6 - 8j)])
    imaginary = Program((vector(3 + 4j),), (Step("imag", (0,)),), (Root(1, (5.0,)),))
    np.testing.assert_array_equal(dual.expected_gradients(imaginary)[0], [5j])


def test_a_real_leaf_in_a_complex_program_has_a_real_gradient() -> None:
    steps = (Step("complex", (0, 1)), Step("square", (2,)), Step("imag", (3,)))
    program = Program((vector(3.0), vector(4.0)), steps, (Root(4),)).check()
    found = dual.expected_gradients(program)
    assert [g.dtype.name for g in found.values()] == ["float64", "float64"]
    np.testing.assert_array_equal([found[0], found[1]], [[8], [6]])
    mixed = Program((vector(2.0), vector(3 + 4j)), (Step("mul", (0, 1)),), (Root(2, (1j,)),)).check()
    np.testing.assert_array_equal(dual.expected_gradients(mixed)[0], [4])
    np.testing.assert_array_equal(dual.expected_gradients(mixed)[1], [2j])


def test_gradients_sum_over_roots_and_are_zero_where_no_root_is_reached() -> None:
    inputs = (vector(1.0, 2.0), vector(5.0), Input((2,), (3.0, 4.0)))
    steps = (Step("mul", (0, 2)), Step("sum", (3,), SUM), Step("neg", (1,)))
    program = Program(inputs, steps, (Root(4), Root(3, (10.0, 0.0)), Root(4, (2.0,)))).check()
    found = dual.expected_gradients(program)
    assert set(found) == {0, 1}
    np.testing.assert_array_equal(found[0], [3 * 3 + 30, 3 * 4])
    np.testing.assert_array_equal(found[1], [0])


def test_a_gradient_with_respect_to_a_result_takes_it_for_an_input() -> None:
    steps = (Step("square", (0,)), Step("mul", (1, 0)), Step("sum", (2,), SUM))
    program = Program((vector(2.0, 3.0),), steps).check()
    found = dual.vjp(program, {3: np.array(1.0)}, [1, 0])
    np.testing.assert_array_equal(found[1], [2, 3])
    np.testing.assert_array_equal(found[0], [12, 27])
    np.testing.assert_array_equal(dual.jacobian(program, 2, 1), [[2, 0], [0, 3]])


def test_results_of_one_step_move_apart() -> None:
    pieces = Step("split", (0,), (("dim", 0), ("split_size", 2)))
    program = Program((vector(1.0, 2.0, 3.0),), (pieces, Step("square", (1,)))).check()
    np.testing.assert_array_equal(dual.jacobian(program, 3, 0), [[2, 0, 0], [0, 4, 0]])
    np.testing.assert_array_equal(dual.jacobian(program, 2, 0), [[0, 0, 1]])
    np.testing.assert_array_equal(dual.jacobian(program, 3, 2), [[0], [0]])


@pytest.mark.parametrize("op", ["abs", "relu"])
def test_a_kink_is_refused_and_named(op: str) -> None:
    program = Program((vector(1.0, 0.0),), (Step(op, (0,)),))
    with pytest.raises(dual.Kink, match=f"{op} is not differentiable at zero"):
        dual.jacobian(program, 1, 0)
    assert dual.pushforward(program, {})[1].tangent.tolist() == [0, 0]
    assert dual.pushforward(program, {0: np.ones(2)}, targets=[0])[1].tangent.tolist() == [0, 0]


def test_empty_programs_have_empty_gradients() -> None:
    program = Program((vector(shape=(2, 0)),), (Step("sum", (0,), SUM),), (Root(1),)).check()
    assert dual.jacobian(program, 1, 0).shape == (1, 0)
    assert dual.expected_gradients(program)[0].shape == (2, 0)
