"""Which operations can be trusted: each is tried alone before other chapters draw it.

One broken operation would redden every clause whose programs happen to hold it. So each declared operation runs on
small fixed operands, per class (ordinary, 0-d, zero-size): its value against `forward.py`, one vjp against the dual
oracle. What fails is charged to VALUE-61 alone and drawn nowhere else. Where fewer than half qualify, the engine is at
fault and not they: the qualification is void and everything is drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from gradspec.adapter import Unsupported
from gradspec.capabilities import Capabilities
from gradspec.engine import isolated
from gradspec.judge import BuildFailed
from gradspec.programs import oracles
from gradspec.programs.operations import OPERATIONS, Shape
from gradspec.programs.program import Case, Input, Program, Root, Scalar, Step
from gradspec.report.record import Qualification
from gradspec.session import NativeError, Session
from gradspec.suite.running import Run, build, right_value
from gradspec.suite.support import show

__all__ = ["CLASSES", "Qualification", "cases_of", "qualify"]

CLASSES = ("ordinary", "0-d", "zero-size")
"""The classes of operands, in the order in which they are tried."""

_NUMBERS = (0.5, -1.25, 2.0, -0.375, 1.5, -2.25, 0.75, 3.0)
_SEEDS = (1.0, -0.5, 0.25, 2.0, -1.5, 0.75, -0.125)
_COMPLEX = {"float64": "complex128", "float32": "complex64"}
_TAKE_COMPLEX = ("real", "imag", "conj")

Row = tuple[tuple[Shape, ...], dict[str, Any]]

_UNARY: tuple[Row, ...] = tuple(((shape,), {}) for shape in ((3,), (2, 3), (), (0, 3)))
_PAIRS = (((3,), (3,)), ((2, 3), (3,)), ((2, 1), (3,)), ((), ()), ((0, 3), (1, 3)), ((0,), (1,)))
_BINARY: tuple[Row, ...] = tuple((shapes, {}) for shapes in _PAIRS)
_MASKS = ((3,), (2, 3), (2, 1), (), (0, 3), (0,))
_PRODUCTS = (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3)))
_REDUCE: tuple[Row, ...] = tuple(
    ((shape,), {"dim": dim, "keepdim": keepdim})
    for shape, dims in (((3,), (None, 0)), ((2, 3), (None, 0, -1)), ((), (None,)), ((0, 3), (1,)))
    for dim in dims
    for keepdim in (False, True)
)


def _one(*rows: tuple[Shape, dict[str, Any]]) -> tuple[Row, ...]:
    return tuple(((shape,), attributes) for shape, attributes in rows)


_ROWS: Mapping[str, tuple[Row, ...]] = {
    "pow": tuple((shapes, {"exponent": n}) for shapes, _ in _UNARY for n in (2, 3)),
    "where": tuple(((mask, *shapes), {}) for mask, shapes in zip(_MASKS, _PAIRS, strict=True)),
    "sum": (*_REDUCE, *_one(*(((0, 3), {"dim": dim, "keepdim": False}) for dim in (None, 0)))),
    "mean": _REDUCE,  # the mean of nothing is nan: left to the clauses
    "cumsum": _one(((3,), {"dim": 0}), ((2, 3), {"dim": 1}), ((0, 3), {"dim": 0})),
    "matmul": tuple((shapes, {}) for shapes in _PRODUCTS),
    "reshape": _one(
        ((6,), {"shape": (2, 3)}),
        ((2, 3), {"shape": (6,)}),
        ((), {"shape": (1,)}),
        ((1,), {"shape": ()}),
        ((0, 3), {"shape": (3, 0)}),
    ),
    "transpose": _one(
        ((2, 3), {"dim0": 0, "dim1": 1}), ((3,), {"dim0": 0, "dim1": -1}), ((0, 3), {"dim0": 0, "dim1": 1})
    ),
    "permute": _one(
        ((2, 3), {"dims": (1, 0)}), ((2, 1, 3), {"dims": (2, 0, 1)}), ((), {"dims": ()}), ((0, 3), {"dims": (1, 0)})
    ),
    "expand": _one(
        ((1, 3), {"shape": (2, 3)}),
        ((3,), {"shape": (2, 3)}),
        ((1,), {"shape": (3,)}),
        ((), {"shape": ()}),
        ((), {"shape": (2,)}),
        ((1, 3), {"shape": (0, 3)}),
        ((0, 3), {"shape": (2, 0, 3)}),
    ),
    "squeeze": _one(((2, 1, 3), {"dim": 1}), ((1,), {"dim": 0}), ((2, 3), {"dim": 0}), ((1, 0), {"dim": 0})),
    "unsqueeze": _one(((3,), {"dim": 0}), ((2, 3), {"dim": -1}), ((), {"dim": 0}), ((0, 3), {"dim": 1})),
    "flip": _one(
        ((3,), {"dims": (0,)}), ((2, 3), {"dims": (0,)}), ((2, 3), {"dims": (0, 1)}), ((0, 3), {"dims": (1,)})
    ),
    "narrow": _one(
        ((3,), {"dim": 0, "start": 1, "length": 2}),
        ((2, 3), {"dim": 1, "start": 0, "length": 2}),
        ((3,), {"dim": 0, "start": 1, "length": 0}),
        ((0, 3), {"dim": 1, "start": 1, "length": 1}),
    ),
    "select": _one(((3,), {"dim": 0, "index": 1}), ((2, 3), {"dim": 1, "index": 2}), ((0, 3), {"dim": 1, "index": 0})),
    "cat": (
        (((3,),), {"dim": 0}),
        (((3,), (2,)), {"dim": 0}),
        (((2, 3), (2, 1)), {"dim": 1}),
        (((0, 3), (2, 3)), {"dim": 0}),
        (((0, 3), (0, 3)), {"dim": 0}),
    ),
    "stack": (
        (((3,), (3,)), {"dim": 0}),
        (((2, 3), (2, 3)), {"dim": -1}),
        (((), ()), {"dim": 0}),
        (((0,), (0,)), {"dim": 1}),
    ),
    "split": _one(
        ((3,), {"split_size": 2, "dim": 0}),
        ((2, 3), {"split_size": 2, "dim": 1}),
        ((0, 3), {"split_size": 2, "dim": 0}),
    ),
    "unbind": _one(((3,), {"dim": 0}), ((2, 3), {"dim": 1}), ((2, 0), {"dim": 0})),
    "index_select": (
        (((3,), (4,)), {"dim": 0}),
        (((2, 3), (3,)), {"dim": 1}),
        (((3,), (0,)), {"dim": 0}),
        (((0, 3), (2,)), {"dim": 1}),
    ),
    "complex": tuple(((shape, shape), {}) for shape in ((3,), (2, 3), (), (0, 3))),
}
"""Operand shapes and attributes of what is not simply unary or binary."""

_TWICE = frozenset({"add", "sub", "mul", "div", "cat", "stack"})
"""Operations that are tried with one value in both places, too."""


def cases_of(operation: str, dtype: str = "float64") -> list[tuple[str, Program]]:
    """The programs that qualify one operation, each with its class.

    Args:
        operation: a name of the operation table.
        dtype: the real element type: "float64" or "float32" ("float16" where the operation needs no complex numbers).

    Returns:
        Class and program: one step on fixed dyadic operands that require grad, one root with an explicit seed. An
        operation with several results has a program for each of them.

    Raises:
        Unsupported: the operation makes or takes complex numbers, and no complex dtype belongs to `dtype`.
    """
    if operation in ("complex", *_TAKE_COMPLEX) and dtype not in _COMPLEX:
        raise Unsupported(f"a complex dtype beside {dtype}")
    found = [case for row in _rows(operation) for case in _programs(operation, dtype, *row)]
    return sorted(found, key=lambda case: CLASSES.index(case[0]))


def _rows(operation: str) -> Iterator[tuple[tuple[Shape, ...], dict[str, Any], tuple[int, ...]]]:
    arity = OPERATIONS[operation].arity
    for shapes, attributes in _ROWS.get(operation, _BINARY if arity == 2 else _UNARY):
        yield shapes, attributes, tuple(range(len(shapes)))
    if operation in _TWICE:
        for shape in ((3,), (2, 3)):
            yield (shape,), {"dim": 0} if "dim" in OPERATIONS[operation].attributes else {}, (0, 0)


def _programs(
    operation: str, dtype: str, shapes: Sequence[Shape], attributes: Mapping[str, Any], operands: tuple[int, ...]
) -> Iterator[tuple[str, Program]]:
    inputs = tuple(_operand(operation, at, shape, dtype, shapes[0], attributes) for at, shape in enumerate(shapes))
    step = Step(operation, operands, tuple(sorted(attributes.items())))
    bare = Program(inputs, (step,)).check()
    results = bare.shapes()
    sizes = {math.prod(shape) for shape in results}
    name = "zero-size" if 0 in sizes else "0-d" if all(shape == () for shape in shapes) else "ordinary"
    for value in range(len(inputs), len(results)):
        count = math.prod(results[value])
        seed: tuple[Scalar, ...] = tuple(itertools.islice(itertools.cycle(_SEEDS), value, value + count))
        if bare.dtypes()[value].startswith("complex"):
            seed = _pairs(_SEEDS, count)
        yield name, bare.with_roots(Root(value, seed))


def _operand(operation: str, at: int, shape: Shape, dtype: str, first: Shape, attributes: Mapping[str, Any]) -> Input:
    count, row = math.prod(shape), OPERATIONS[operation]
    if row.role(at) == "mask":
        return Input(shape, tuple(n % 2 == 0 for n in range(count)), "bool")
    if row.role(at) == "index":
        size = first[attributes["dim"]]
        return Input(shape, tuple((size - 1, 0, size - 1, 1)[n] for n in range(count)), "int64")
    if operation in _TAKE_COMPLEX:
        return Input(shape, _pairs(_NUMBERS, count), _COMPLEX[dtype], requires_grad=True)
    numbers = itertools.islice(itertools.cycle(_NUMBERS), 3 * at, 3 * at + count)
    values = tuple(abs(n) if row.domain == "positive" else n for n in numbers)
    return Input(shape, values, dtype, requires_grad=True)


def _pairs(numbers: Sequence[float], count: int) -> tuple[complex, ...]:
    parts = itertools.islice(itertools.cycle(numbers), 2 * count)
    return tuple(complex(real, imaginary) for real, imaginary in zip(*[parts] * 2, strict=True))


def every_case(offered: Capabilities) -> st.SearchStrategy[Case]:
    """Every declared operation, qualified or not, on every class of operands that it takes: the cases of VALUE-61."""
    table = [(name, _walkable(name, offered)) for name in offered.declared]
    table = [(name, programs) for name, programs in table if programs]
    if not table:
        raise Unsupported("an operation on real numbers")

    @st.composite
    def cases(draw: Any) -> Case:
        _, programs = draw(st.sampled_from(table))
        return Case(draw(st.sampled_from(programs)))

    strategy: st.SearchStrategy[Case] = cases()
    return strategy


_OFFERED = "is offered, as it is declared"


def qualify(session: Session, capabilities: Capabilities) -> Qualification:
    """Try every declared operation alone.

    Args:
        session: over the implementation.
        capabilities: what it declares; classes that it cannot hold (by rank, by element type) are not tried.

    Returns:
        For every operation that failed, its misfits: class, expected, found; whether the qualification is void; the
        operations that are declared and said not to be offered when they were asked for.
    """
    return qualification_of({name: misfits_of(session, capabilities, name) for name in capabilities.operations})


def misfits_of(session: Session, capabilities: Capabilities, operation: str) -> list[dict[str, str]]:
    """What is wrong with one operation: class, expected and found for every program of it that fails."""
    return [
        {"class": name, "expected": misfit[0], "found": misfit[1]}
        for name, program in _offered(operation, capabilities)
        if (misfit := _misfit(session, capabilities, program)) is not None
    ]


def untried(capabilities: Capabilities, operation: str, why: str) -> list[dict[str, str]]:
    """The misfits of an operation that did not come to its end, in the class that is tried first."""
    classes = [name for name, _ in _offered(operation, capabilities)] or [CLASSES[0]]
    return [{"class": classes[0], "expected": f"{operation} by itself comes to its end", "found": why}]


def qualification_of(tried: Mapping[str, Sequence[dict[str, str]]]) -> Qualification:
    """The qualification from the misfits of every declared operation, none for one that is right."""
    failed = {name: _one_per_class(misfits) for name, misfits in tried.items() if misfits}
    absent = {
        name: [misfit["found"] for misfit in misfits if misfit["expected"].endswith(_OFFERED)]
        for name, misfits in tried.items()
    }
    not_offered = {name: texts[0] for name, texts in absent.items() if texts}
    return Qualification(2 * len(failed) > len(tried), failed, not_offered)


def _offered(operation: str, capabilities: Capabilities) -> list[tuple[str, Program]]:
    try:
        cases = cases_of(operation, capabilities.real_dtype)
    except Unsupported:  # no real dtype, or no complex one beside it
        return []
    return [
        (name, program)
        for name, program in cases
        if max(len(shape) for shape in program.shapes()) <= capabilities.max_rank
        and set(program.dtypes()) <= set(capabilities.dtypes)
    ]


def _one_per_class(misfits: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    first: dict[str, dict[str, str]] = {}
    for misfit in misfits:
        first.setdefault(misfit["class"], misfit)
    return list(first.values())


def _walkable(operation: str, offered: Capabilities) -> list[Program]:
    """The programs of an operation that backward can start from: all of them where seeds are offered."""
    programs = [program for _, program in _offered(operation, offered)]
    if "seed" in offered.features:
        return programs
    return [unseeded(program) for program in programs if needs_no_seed(program)]


def needs_no_seed(program: Program) -> bool:
    """Whether the root has one real element."""
    root = program.roots[0].value
    return math.prod(program.shapes()[root]) == 1 and not program.dtypes()[root].startswith("complex")


def unseeded(program: Program) -> Program:
    """The program with the implicit seed."""
    return program.with_roots(Root(program.roots[0].value))


def _misfit(session: Session, capabilities: Capabilities, program: Program) -> tuple[str, str] | None:
    """What was expected and what was found, None where the operation is right."""
    seeded, scalar = "seed" in capabilities.features, needs_no_seed(program)
    if not seeded and scalar:
        program = unseeded(program)
    step = program.steps[0]
    text = f"{step.op} of {', '.join(str(program.shapes()[o]) for o in step.operands)}"
    with isolated():
        try:
            session.start()
            run = build(session, program)
            wrong = _wrong_value(run, text)
            return _wrong_gradient(run, text) if wrong is None and (seeded or scalar) else wrong
        except BuildFailed as error:
            raised = session.trace[-1].raised or {}
            return f"{text} succeeds", f"raised {raised['type']}: {raised['text']}" if raised else str(error)
        except NativeError as error:
            return f"{text} and its backward succeed", f"{error.act} raised {error.type}: {error.text}"
        except Unsupported as error:
            if len(session.trace) < len(program.inputs):
                return f"the operands of {text} are offered", str(error)
            return f"{text} {_OFFERED}", str(error)


def _wrong_value(run: Run, text: str) -> tuple[str, str] | None:
    same, expected, found = right_value(run)
    return None if same else (f"{text} is {show(expected)}", show(found))


def _wrong_gradient(run: Run, text: str) -> tuple[str, str] | None:
    run.backward()
    verdict = oracles.judge(run.program, run.slots())
    if verdict.agrees:
        return None
    what = f"the gradient of {text} is {show(verdict.expected)}"
    return what, "None" if verdict.found is None else show(verdict.found)
