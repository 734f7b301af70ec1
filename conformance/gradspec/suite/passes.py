"""Passes over programs: run one again, one root at a time, on leaves of another layout; what may share memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gradspec.behaviour import Act, Behaviour, Ref
from gradspec.programs.forward import to_array
from gradspec.programs.program import Case, Program, Root
from gradspec.session import Handle, Session
from gradspec.suite.running import Run, apply_steps, build, close, equal_slots, judged, plus, times
from gradspec.suite.support import Array, as_array, holds, show, tensor

Slots = dict[int, Array | None]


def again(run: Run) -> Run:
    """The same program, run once more on the same inputs and with the same seeds."""
    inputs = run.handles[: len(run.program.inputs)]
    return Run(run.impl, run.program, apply_steps(run.impl, run.program, inputs), run.seeds)


def one_by_one(impl: Session, program: Program) -> Slots:
    """The sum of what single passes from each root, each on a build of its own, put into the slots."""
    total: Slots = dict.fromkeys(program.leaves)
    for root in program.roots:
        total = plus(total, build(impl, program.with_roots(root), passes=1).slots())
    return total


def sum_over_roots(impl: Session, clause: str, case: Case) -> None:
    """One pass from all roots gives the gradients that the oracles expect and the sum of passes from single roots."""
    run = build(impl, case, passes=1)
    judged(impl, clause, run, run.slots())
    equal_slots(impl, clause, one_by_one(impl, run.program), run.slots(), run.program)


def with_seed(program: Program, seed: Sequence[Any]) -> Program:
    """The program with one root and this seed."""
    return program.with_roots(Root(program.roots[0].value, tuple(seed)))


def share_seed(run: Run) -> Run:
    """Let all roots have one seed tensor, the first."""
    run.seeds = [run.seeds[0]] * len(run.seeds)
    return run


def once_or_twice(impl: Session, clause: str, run: Run, single: Slots, numbers: Iterable[int]) -> None:
    """The slots hold the gradient of a single pass, or twice that."""
    for number in numbers:
        found, wanted = run.slot(number), single[number]
        allowed = (wanted, times(2, single)[number])
        right = any(close(run.program, number, w, found) for w in allowed)
        expected = f"the slot of value {number} is {show(wanted)} or twice that"
        holds(impl, clause, right, expected=expected, found=show(found), kind="wrong_value")


def logger(label: str) -> Behaviour:
    """A hook that records what it is called with under a label."""
    return Behaviour("log", ("g",), (Act("record", (label, Ref("g"))),))


def watched(run: Run) -> list[int]:
    """Register a logging hook on every intermediate that reaches a root; their numbers."""
    numbers = sorted(n for n in run.program.reached() if n >= len(run.program.inputs))
    for number in numbers:
        run.impl.register_hook(run.handles[number], logger(f"value {number}"))
    return numbers


def called(events: Sequence[Any], number: int) -> list[Array]:
    """The gradients with which the hook on a value was called."""
    return [as_array(gradient) for label, gradient in events if label == f"value {number}"]


def apart_in_memory(impl: Session, clause: str, run: Run) -> None:
    """The slots of the leaves share memory neither with each other nor with a seed or another value of the program."""
    slots = [(f"{leaf}.grad", slot) for leaf in run.leaves if (slot := impl.grad(leaf)) is not None]
    seeds = {id(s): s for s in run.seeds if s is not None}.values()
    others = [(f"{x}", x) for x in (*seeds, *run.handles)]
    pairs = [*itertools.combinations(slots, 2), *itertools.product(slots, others)]
    for (name, a), (other, b) in pairs:
        shared = impl.shares_storage(a, b)
        holds(impl, clause, not shared, expected=f"{name} and {other} share no memory", found="shared", kind="aliased")


# -- leaves of another layout --------------------------------------------------------------------------------------------------


def laid(impl: Session, case: Case, *, dense: bool) -> Run:
    """Build a program on leaves that lie in memory in another order, or with gaps or overlaps where not `dense`."""
    program = case.the_program
    handles = []
    for given in program.inputs:
        data = to_array(given.shape, given.values, given.dtype)
        if not given.requires_grad or not data.ndim:
            handles.append(tensor(impl, data, **({"requires_grad": True} if given.requires_grad else {})))
            continue
        made = _turned(impl, data, case["turn"]) if dense else _loose(impl, data, gaps=case["gaps"])
        leaf = impl.detach(made)
        impl.set_requires_grad(leaf, True)
        handles.append(leaf)
    return Run(impl, program, apply_steps(impl, program, handles), [None] * len(program.roots))


def _turned(impl: Session, data: Array, turn: str) -> Handle:
    axes = list(range(data.ndim))
    dims = {"reversed": axes[::-1], "rolled": axes[1:] + axes[:1], "row-major": axes}[turn]
    handle: Handle = impl.apply("permute", tensor(impl, data.transpose(np.argsort(dims))), dims=tuple(dims))
    return handle


def _loose(impl: Session, data: Array, *, gaps: bool) -> Handle:
    size = data.shape[-1]
    handle: Handle
    if gaps:
        wide = np.concatenate([data, data[..., :1]], axis=-1) if size else data
        handle = impl.apply("narrow", tensor(impl, wide), dim=data.ndim - 1, start=0, length=size)
    else:
        handle = impl.apply("expand", tensor(impl, data[:1]), shape=data.shape) if size else tensor(impl, data)
    return handle


def long_strides(impl: Session, x: Handle) -> list[int]:
    """The strides along the axes that are longer than one."""
    return [stride for stride, size in zip(impl.strides(x), impl.shape(x), strict=True) if size > 1]


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor along the axes that are longer than one."""
    steps = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    return [step for step, size in zip(steps, shape, strict=True) if size > 1]


def is_dense(strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether elements with these strides fill their memory without gap or overlap; axes longer than one only."""
    wanted = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if stride != wanted:
            return False
        wanted *= size
    return True


# -- polynomials ---------------------------------------------------------------------------------------------------------------


def polynomial(impl: Session, x: Handle, coefficients: Sequence[float]) -> Handle:
    """The sum over all elements of a x + b x^2 + c x^3, by multiplications and additions."""
    a, b, c = coefficients
    inner = impl.apply("add", impl.apply("mul", x, c), b)
    whole: Handle = impl.apply("mul", impl.apply("add", impl.apply("mul", inner, x), a), x)
    return whole if impl.shape(x) == () else impl.apply("sum", whole, dim=None, keepdim=False)


def slope(x: Array, coefficients: Sequence[float]) -> Array:
    """The derivative of the polynomial."""
    a, b, c = coefficients
    return np.asarray(a + 2 * b * x + 3 * c * x * x)


def curvature(x: Array, coefficients: Sequence[float]) -> Array:
    """The second derivative of the polynomial."""
    _, b, c = coefficients
    return np.asarray(2 * b + 6 * c * x)
