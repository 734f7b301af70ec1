"""The oracles against each other, for every operation, and against planted mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gradspec.programs import differences, dual, oracles
from gradspec.programs.forward import Array, evaluate
from gradspec.programs.operations import OPERATIONS, Shape
from gradspec.programs.program import Input, Program, Root, Step

KINDS = ("ordinary", "0-d", "zero-size", "broadcast")
COMPLEX = tuple(name for name, row in OPERATIONS.items() if row.complex and name != "complex")
DIM = {"dim": -1}
REDUCE = {"dim": 0, "keepdim": True}
NARROW = {"dim": 1, "start": 1, "length": 2}

# for each operation that is not elementwise: attributes and the shapes of its value operands, ordinary first
SPECIAL: dict[str, tuple[dict[str, Any], list[tuple[Shape, ...]]]] = {
    "sum": (REDUCE, [((3, 2),), ((0, 2),)]),
    "mean": (REDUCE, [((3, 2),), ((3, 0),)]),
    "cumsum": (DIM, [((2, 3),), ((2, 0),)]),
    "matmul": ({}, [((2, 3), (3, 2)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((2, 0), (0, 3)), ((0,), (0,))]),
    "reshape": ({"shape": (3, 2)}, [((2, 3),), ((6,),)]),
    "transpose": ({"dim0": 0, "dim1": -1}, [((2, 1, 3),), ((0, 2),)]),
    "permute": ({"dims": (2, 0, 1)}, [((2, 1, 3),), ((0, 2, 1),)]),
    "expand": ({"shape": (2, 3)}, [((3,),), ((2, 1),), ((),)]),
    "squeeze": ({"dim": -2}, [((2, 1, 3),), ((2, 3),), ((1, 0),)]),
    "unsqueeze": (DIM, [((2, 3),), ((),), ((0,),)]),
    "flip": ({"dims": (0, -1)}, [((2, 3),), ((0, 2),)]),
    "narrow": (NARROW, [((2, 4),), ((0, 3),)]),
    "select": ({"dim": -1, "index": 1}, [((2, 3),), ((0, 2),)]),
    "cat": (DIM, [((2, 3), (2, 1)), ((2, 0), (2, 1)), ((0,),)]),
    "stack": (DIM, [((2, 3), (2, 3)), ((), ()), ((0,), (0,))]),
    "split": ({"split_size": 2, "dim": -1}, [((2, 3),), ((2, 0),)]),
    "unbind": (DIM, [((2, 3),), ((0, 2),)]),
    "index_select": ({"dim": 0}, [((3, 2),), ((3, 0),)]),
}
PLAIN: dict[str, list[tuple[Shape, ...]]] = {
    "ordinary": [((2, 3),) * 3],
    "0-d": [((),) * 3],
    "zero-size": [((2, 0),) * 3],
    "broadcast": [((2, 1), (3,), ()), ((3,), (2, 1), (1, 1, 3)), ((0, 1), (2,), ())],
}


def shapes_of(name: str, kind: str) -> list[tuple[Shape, ...]]:
    row = OPERATIONS[name]
    if name in SPECIAL:
        chosen = SPECIAL[name][1]
        wanted = {"0-d": lambda s: () in s, "zero-size": lambda s: any(0 in one for one in s)}
        return [s for s in chosen if wanted.get(kind, lambda _: kind == "ordinary")(s)]
    values = sum(row.role(at) == "value" for at in range(row.arity))
    return [s[:values] for s in PLAIN[kind] if kind != "broadcast" or (values > 1 and name != "complex")]


def numbers(random: np.random.Generator, count: int, *, signed: bool, dyadic: bool, imaginary: bool) -> tuple[Any, ...]:
    drawn = random.integers(1, 17, count) / 8 if dyadic else random.uniform(0.3, 1.8, count)
    drawn = drawn * random.choice((-1.0, 1.0), count) if signed else drawn
    if imaginary:
        drawn = drawn + 1j * np.array(numbers(random, count, signed=True, dyadic=dyadic, imaginary=False))
    return tuple(drawn.tolist())


def program_of(name: str, shapes: tuple[Shape, ...], number: int, *, dyadic: bool, imaginary: bool = False) -> Program:
    """One operation; every result is a root with a drawn seed."""
    random, row = np.random.default_rng(number), OPERATIONS[name]
    drawn = {"signed": row.domain != "positive", "dyadic": dyadic}
    dtype = "complex128" if imaginary else "float64"
    inputs = [Input(s, numbers(random, math.prod(s), imaginary=imaginary, **drawn), dtype, True) for s in shapes]
    attributes = dict(SPECIAL.get(name, ({}, []))[0]) | ({"exponent": 2} if name == "pow" else {})
    if name == "where":
        mask = tuple(bool(b) for b in random.integers(0, 2, math.prod(shapes[0])))
        inputs.insert(0, Input(shapes[0], mask, "bool"))
    if name == "index_select":
        inputs.append(Input((4,), (2, 0, 2, 1), "int64"))
    step = Step(name, tuple(range(len(inputs))), tuple(sorted(attributes.items())))
    program = Program(tuple(inputs), (step,)).check()
    roots = []
    for at, value in list(enumerate(evaluate(program)))[len(inputs) :]:
        seed = {"signed": True, "dyadic": dyadic, "imaginary": value.dtype.kind == "c"}
        roots.append(Root(at, numbers(random, value.size, **seed)))
    return program.with_roots(*roots)


CLASSES = [(name, kind, s) for name in OPERATIONS for kind in KINDS for s in shapes_of(name, kind)]
ORDINARY = [(name, shapes_of(name, "ordinary")[0]) for name in OPERATIONS]


def sample(name: str, shapes: tuple[Shape, ...], number: int = 1, *, dyadic: bool = False) -> Program:
    """`real`, `imag` and `conj` are sampled where they do something: at complex points."""
    return program_of(name, shapes, number, dyadic=dyadic, imaginary=name in ("real", "imag", "conj"))


@pytest.fixture(autouse=True)
def _nothing_cached() -> Iterator[None]:
    oracles.forget()
    yield
    oracles.forget()


def minus(rule: dual.Rule) -> dual.Rule:
    """The same rule with the wrong sign."""

    def wrong(*given: Any) -> Any:
        right = rule(*given)
        return tuple(-r for r in right) if isinstance(right, tuple) else -right

    return wrong


def mixed(number: int = 0, op: str = "relu", dtype: str = "float64") -> Program:
    """Several inputs, fan-out, a broadcast, a multi-output step, a matrix product."""
    random = np.random.default_rng(number)
    shapes: tuple[Shape, ...] = ((2, 3), (3,), (3, 2))
    given = {"signed": False, "dyadic": True, "imaginary": False}
    inputs = tuple(Input(s, numbers(random, math.prod(s), **given), dtype, True) for s in shapes)
    steps = (
        Step("mul", (0, 1)),  # 3
        Step("unbind", (3,), (("dim", 1),)),  # 4, 5, 6
        Step("stack", (4, 6, 4), (("dim", 1),)),  # 7
        Step(op, (7,)),  # 8
        Step("matmul", (8, 2)),  # 9
        Step("sum", (9,), (("dim", None), ("keepdim", False))),  # 10
    )
    return Program(inputs, steps, (Root(10), Root(5, (0.5, -2.0)))).check()


def test_every_operation_has_every_class_it_takes() -> None:
    seen = {(name, kind) for name, kind, _ in CLASSES}
    assert {name for name, _ in seen} == set(OPERATIONS) == set(dual.DUAL)
    assert {name for name, kind in seen if kind == "zero-size"} >= set(OPERATIONS) - {"reshape", "expand"}
    assert {name for name, kind in seen if kind == "broadcast"} == {"add", "sub", "mul", "div", "where"}


@pytest.mark.parametrize("dyadic", [False, True], ids=["random", "dyadic"])
@pytest.mark.parametrize(("name", "kind", "shapes"), CLASSES)
def test_dual_numbers_agree_with_central_differences(
    name: str, kind: str, shapes: tuple[Shape, ...], dyadic: bool
) -> None:
    program = sample(name, shapes, KINDS.index(kind), dyadic=dyadic)
    expected = differences.difference_gradients(program)
    found = oracles.gradients(program)
    assert found.keys() == expected.keys() == set(program.leaves)
    for leaf, gradient in found.items():
        assert gradient.shape == program.inputs[leaf].shape
        np.testing.assert_allclose(gradient, expected[leaf], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_rules_agree_with_central_differences(name: str) -> None:
    shapes = shapes_of(name, "ordinary")[0]
    program = program_of(name, shapes, 3, dyadic=False, imaginary=True)
    expected = differences.difference_gradients(program)
    for leaf, gradient in oracles.gradients(program).items():
        assert gradient.dtype == np.complex128
        assert np.any(gradient.imag != 0) or name == "real"
        np.testing.assert_allclose(gradient, expected[leaf], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("name", "shapes"), ORDINARY)
def test_a_sign_error_in_one_dual_rule_is_caught(
    name: str, shapes: tuple[Shape, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = sample(name, shapes)
    right = oracles.gradients(program)
    oracles.forget()
    monkeypatch.setitem(dual.DUAL, name, minus(dual.DUAL[name]))
    verdict = oracles.judge(program, right)
    assert not verdict.agrees
    assert verdict.oracle == oracles.DUAL_NUMBERS
    assert verdict.other == "central differences agree with the finding"


@pytest.mark.parametrize(("name", "shapes"), ORDINARY)
def test_the_same_sign_error_in_rule_and_finding_is_caught(
    name: str, shapes: tuple[Shape, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = sample(name, shapes)
    wrong = {leaf: -gradient for leaf, gradient in oracles.gradients(program).items()}
    oracles.forget()
    monkeypatch.setitem(dual.DUAL, name, minus(dual.DUAL[name]))
    assert oracles.judge(program, wrong).agrees, "alone, dual numbers are fooled"
    verdict = oracles.judge(program, wrong, both=True)
    assert not verdict.agrees
    assert verdict.oracle == oracles.CENTRAL_DIFFERENCES
    assert verdict.other == "dual numbers agree with the finding"


@pytest.mark.parametrize(("name", "shapes"), ORDINARY)
def test_a_wrong_finding_is_caught_by_both(name: str, shapes: tuple[Shape, ...]) -> None:
    program = sample(name, shapes)
    right = oracles.gradients(program)
    assert oracles.judge(program, right, both=True).agrees
    verdict = oracles.judge(program, {leaf: -gradient for leaf, gradient in right.items()})
    assert (verdict.agrees, verdict.other) == (False, "central differences disagree with the finding")
    assert verdict.expected is not None
    assert verdict.found is not None
    np.testing.assert_array_equal(verdict.expected, -verdict.found)


@pytest.mark.parametrize("op", ["relu", "tanh"])
@pytest.mark.parametrize("direction", range(3))
def test_pairing_holds_for_the_gradient_and_fails_for_a_wrong_one(op: str, direction: int) -> None:
    program = mixed(1, op)
    right = oracles.gradients(program)
    assert oracles.judge_pairing(program, right, direction).agrees
    assert not oracles.judge_pairing(program, right | {0: right[0] * 1.001}, direction).agrees


@pytest.mark.parametrize("op", ["abs", "relu"])
def test_the_dual_oracle_refuses_at_a_kink_that_is_differentiated(op: str) -> None:
    x = Input((2,), (1.0, 0.0), requires_grad=True)
    assert oracles.refuses(Program((x,), (Step(op, (0,)),), (Root(1),)))
    assert not oracles.refuses(Program((replace(x, values=(1.0, 0.5)),), (Step(op, (0,)),), (Root(1),)))
    beside = Program((x, replace(x, requires_grad=False)), (Step(op, (1,)), Step("mul", (0, 2))), (Root(3),))
    assert not oracles.refuses(beside), "nothing differentiates there"
    dangling = Program((x,), (Step(op, (0,)), Step("square", (0,))), (Root(2),))
    assert not oracles.refuses(dangling), "no root depends on it"


def test_findings_that_are_missing_or_misshapen_disagree() -> None:
    x = Input((2,), (1.0, 0.5), requires_grad=True)
    program = Program((x, x), (Step("square", (0,)),), (Root(2),))
    right = oracles.gradients(program)
    np.testing.assert_array_equal(right[1], np.zeros(2))
    assert oracles.judge(program, {0: right[0], 1: None}).agrees
    assert oracles.judge(program, right).agrees
    assert not oracles.judge(program, {1: None}).agrees
    assert not oracles.judge(program, {0: None}).agrees
    assert oracles.judge(program, {1: None}, wrt=[1]).agrees
    assert not oracles.judge(program, {0: right[0], 1: np.ones(2)}).agrees
    misshapen = oracles.judge(program, {0: right[0][:, np.newaxis]})
    assert (misshapen.agrees, misshapen.oracle) == (False, oracles.SHAPE)
    assert not oracles.judge(program, {0: right[0] * (1 + 2**-50)}).agrees, "exact programs are compared with =="


@pytest.mark.parametrize("op", ["relu", "tanh", "square"])
def test_cotangents_of_intermediates_agree_with_central_differences(op: str) -> None:
    program = mixed(2, op)
    found = oracles.cotangents(program)
    assert set(found) == program.reached() == set(range(11))
    expected = differences.difference_gradients(program, sorted(found))
    for number, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[number], rtol=1e-8, atol=1e-8)
    assert oracles.judge(program, found, both=True).agrees
    assert not oracles.judge(program, found | {4: -found[4]}).agrees


def square_then(*steps: Step, root: int) -> Program:
    x = Input((2,), (1.0, 3.0), requires_grad=True)
    return Program((x,), (Step("square", (0,)), *steps), (Root(root),)).check()


def doubled(cotangent: Array) -> Array:
    return cotangent * 2


@pytest.mark.parametrize(
    ("program", "hooks", "expected"),
    [
        (square_then(root=1), {}, {0: [2, 6]}),
        (square_then(root=1), {0: doubled}, {0: [4, 12]}),
        (square_then(root=1), {1: doubled}, {0: [4, 12], 1: [2, 2]}),
        # x^2 and, around the hook, x: 2 * 2x + 1
        (square_then(Step("add", (1, 0)), root=2), {1: doubled}, {0: [5, 13], 1: [2, 2], 2: [1, 1]}),
        # two hooks on one path, and one on a value that feeds both
        (square_then(Step("neg", (1,)), root=2), {1: doubled, 2: np.negative}, {0: [4, 12], 1: [2, 2], 2: [-1, -1]}),
        (square_then(Step("mul", (1, 1)), root=2), {1: np.flip}, {0: [36, 12], 1: [18, 2]}),
        # a hook beside the way to the root is not called
        (square_then(Step("neg", (0,)), root=2), {1: lambda _: 1 / 0}, {0: [-1, -1], 1: [0, 0]}),
    ],
)
def test_gradients_through_cotangent_maps(program: Program, hooks: Any, expected: dict[int, Any]) -> None:
    found = oracles.cut_gradients(program, hooks, at=[n for n in expected if n])
    assert found.keys() == expected.keys()
    for number, gradient in expected.items():
        np.testing.assert_array_equal(found[number], gradient)


def test_identity_maps_change_nothing_and_are_called_once() -> None:
    program, calls = mixed(3, "tanh"), []
    hooks = {n: lambda g, n=n: (calls.append(n), g)[1] for n in range(11)}
    found = oracles.cut_gradients(program, hooks, at=range(11))
    assert sorted(calls) == list(range(11))
    for number, gradient in oracles.cotangents(program).items():
        np.testing.assert_allclose(found[number], gradient, rtol=1e-13)


def exact_gradient(program: Program) -> dict[int, list[Fraction]]:
    """Rational derivatives of a program of mul, add and sum of vectors by the product rule, leaf element by element."""
    expected: dict[int, list[Fraction]] = {}
    for leaf in program.leaves:
        for place in range(len(program.inputs[leaf].values)):
            at = [
                [(Fraction(x), Fraction(n == leaf and i == place)) for i, x in enumerate(given.values)]
                for n, given in enumerate(program.inputs)
            ]
            for step in program.steps:
                x = [at[o] for o in step.operands]
                if step.op == "mul":
                    at.append([(a * b, a * db + da * b) for (a, da), (b, db) in zip(*x, strict=True)])
                elif step.op == "add":
                    at.append([(a + b, da + db) for (a, da), (b, db) in zip(*x, strict=True)])
                else:
                    at.append([(sum(a for a, _ in x[0]), sum(da for _, da in x[0]))])
            seeds = [Fraction(s) for s in program.roots[0].seed or (1.0,)]
            total = sum(s * d for s, (_, d) in zip(seeds, at[program.roots[0].value], strict=True))
            expected.setdefault(leaf, []).append(Fraction(total))
    return expected


def chain(depth: int, values: tuple[float, ...], dtype: str = "float64") -> Program:
    """x^(2^depth) + x, summed."""
    steps = [Step("mul", (n, n)) for n in range(depth)]
    steps += [Step("add", (depth, 0)), Step("sum", (depth + 1,), (("dim", None), ("keepdim", False)))]
    x = Input((len(values),), values, dtype, requires_grad=True)
    return Program((x,), tuple(steps), (Root(depth + 2),)).check()


@pytest.mark.parametrize("depth", range(1, 8))
@pytest.mark.parametrize("values", [(1.0, 2.0), (0.125, 7.875), (1.5, -3.25, 0.0)])
def test_programs_called_exact_have_the_rational_gradient(depth: int, values: tuple[float, ...]) -> None:
    program = chain(depth, values)
    rational = exact_gradient(program)[0]
    equal = [Fraction(float(g)) for g in oracles.gradients(program)[0]] == rational
    assert equal or not oracles.is_exact(program)
    assert oracles.is_exact(program) or depth > 3
    if values == (0.125, 7.875) and depth == 7:
        assert not equal, "this one does lose bits"
        assert not oracles.is_exact(program)


def test_exactness_follows_the_dtype() -> None:
    values = (0.125, 7.875)
    for depth in range(1, 6):
        rational = exact_gradient(chain(depth, values))[0]
        for dtype, kept in (("float32", np.float32), ("float64", np.float64)):
            representable = all(Fraction(float(kept(g))) == g for g in rational)
            assert representable or not oracles.is_exact(chain(depth, values, dtype))
            assert oracles.is_exact(chain(depth, values, dtype)) == (depth <= {"float32": 1, "float64": 3}[dtype])
    assert not representable, "the deepest one loses bits"


@pytest.mark.parametrize("number", range(20))
def test_typical_dyadic_programs_are_exact(number: int) -> None:
    assert oracles.is_exact(mixed(number))
    assert oracles.is_exact(mixed(number, dtype="float32"))
    assert not oracles.is_exact(mixed(number, "tanh"))


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if row.exact])
def test_exact_operations_are_exact_at_dyadic_points(name: str) -> None:
    for shapes in (s for kind in KINDS for s in shapes_of(name, kind)):
        assert oracles.is_exact(sample(name, shapes, dyadic=True))
        assert not oracles.is_exact(sample(name, shapes)) or 0 in [math.prod(s) for s in shapes]


@pytest.mark.parametrize("bad", [0.1, 65.0, 1 / 16, math.inf, math.nan])
def test_inputs_and_seeds_that_are_not_dyadic_are_not_exact(bad: float) -> None:
    program = chain(1, (1.0,))
    assert oracles.is_exact(program)
    assert not oracles.is_exact(chain(1, (bad,)))
    assert not oracles.is_exact(program.with_roots(Root(3, (bad,))))


def test_tolerance_follows_dtype_and_condition() -> None:
    good = mixed(4, "tanh")
    assert oracles.tolerance(good, "float32").atol > 1e6 * oracles.tolerance(good, "float64").atol
    steps = (Step("sub", (0, 1)), Step("reciprocal", (2,)))
    near = (Input((), (1.0,), requires_grad=True), Input((), (1 - 1e-6,)))
    bad = Program(near, steps, (Root(3),))
    size = abs(float(oracles.gradients(bad)[0]))
    assert 1e-12 < oracles.tolerance(bad).atol / size < 1e-6, "cancellation costs six digits"
    far = replace(bad, inputs=(near[0], replace(near[1], values=(3.0,))))
    assert oracles.tolerance(far).atol / abs(float(oracles.gradients(far)[0])) < 1e-13
    assert oracles.tolerance(good, value=0).atol <= oracles.tolerance(good).atol


def test_rounding_is_tolerated_and_little_more() -> None:
    program = mixed(5, "tanh", "float32")
    right = oracles.gradients(program)
    assert oracles.judge(program, {n: g.astype(np.float32) for n, g in right.items()}, both=True).agrees
    assert not oracles.judge(program, {n: g * (1 + 2e-4) for n, g in right.items()}).agrees
    double = mixed(5, "tanh")
    assert not oracles.judge(double, {n: g.astype(np.float32) for n, g in oracles.gradients(double).items()}).agrees


def test_cancellation_within_one_operation_is_tolerated() -> None:
    x = Input((2,), (0.3, 0.7), requires_grad=True)
    program = Program((x,), (Step("div", (0, 0)),), (Root(1),))
    within = oracles.tolerance(program, value=0)
    assert 2**-53 < within.atol < 1e-13
    assert oracles.judge(program, {0: np.array([2**-53, -(2**-54)])}, both=True).agrees
    assert not oracles.judge(program, {0: np.array([1e-12, 0])}).agrees


@pytest.mark.parametrize("op", dual.SATURATING)
def test_derivatives_of_saturated_operations_round_like_one(op: str) -> None:
    program = Program((Input((), (19.0,), requires_grad=True),), (Step(op, (0,)),), (Root(1),))
    value = float(evaluate(program)[1])
    usual = (1 - value) * (1 + value) if op == "tanh" else value * (1 - value)
    assert oracles.judge(program, {0: np.array(usual)}).agrees
    assert not oracles.judge(program, {0: np.array(usual + 1e-13)}).agrees


@pytest.mark.parametrize(("op", "at"), [("sqrt", 0.0), ("reciprocal", 0.0), ("log", 0.0), ("exp", 1000.0)])
def test_the_oracle_refuses_where_the_gradient_is_not_finite(op: str, at: float) -> None:
    program = Program((Input((1,), (at,), requires_grad=True),), (Step(op, (0,)),), (Root(1),))
    assert oracles.refuses(program)
    with pytest.raises(dual.Kink, match="not finite"):
        oracles.judge(program, {0: np.zeros(1)})


def test_the_second_opinion_says_where_it_cannot_judge() -> None:
    x = Input((1,), (2.0**-12,), requires_grad=True)
    program = Program((x,), (Step("relu", (0,)),), (Root(1),))
    verdict = oracles.judge(program, {0: np.ones(1)}, both=True)
    assert (verdict.agrees, verdict.other) == (True, "central differences cannot judge here")


def test_cached_gradients_cannot_be_spoilt() -> None:
    program = mixed(6)
    with pytest.raises(ValueError, match="read-only"):
        oracles.gradients(program)[0][0] = 1
    oracles.gradients(program).clear()
    assert set(oracles.gradients(program)) == {0, 1, 2}


@pytest.mark.parametrize("x", [0.875, 0.375, 1.375])
def test_rounding_that_cancels_in_the_oracle_is_allowed_for(x: float) -> None:
    """The two parts of x / x cancel exactly, but an implementation may round each of them."""
    steps = (Step("div", (0, 0)), Step("mul", (1, 1)))
    program = Program((Input((1,), (x,), requires_grad=True),), steps, (Root(2, (-0.625,)),))
    assert oracles.judge(program, {0: np.array([-2.2e-16])}).agrees
    assert not oracles.judge(program, {0: np.array([-1e-13])}).agrees
