"""Passes over programs: one root at a time, with wrong seeds, on leaves of another layout; what may share memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradspec.adapter import Value
from gradspec.behaviour import Act, Behaviour, Ref
from gradspec.programs import editing
from gradspec.programs.forward import to_array
from gradspec.programs.program import Case, Program, Root
from gradspec.session import Caught, Handle, Session
from gradspec.suite.running import (
    Run,
    Slots,
    again,
    apply_steps,
    build,
    close,
    equal_slots,
    judged,
    judged_values,
    plus,
    times,
)
from gradspec.suite.support import (
    Array,
    Outcome,
    array,
    as_array,
    equal,
    holds,
    is_none,
    ones,
    refused,
    show,
    tensor,
    twin,
    unchanged,
)


def all_unchanged(
    impl: Session, clause: str, before: Sequence[Value | None], tensors: Sequence[Handle | None], what: str
) -> None:
    """The tensors are bitwise what they were; `what` they are."""
    for held, x in zip(before, tensors, strict=True):
        unchanged(impl, clause, held, x, f"{what} {x}")


def slots_unchanged(impl: Session, clause: str, before: Sequence[Value | None], owners: Sequence[Handle]) -> None:
    """The slots are bitwise what they were, None where they held nothing."""
    for held, x in zip(before, owners, strict=True):
        unchanged(impl, clause, held, impl.grad(x), f"{x}.grad")


def needs_a_seed(impl: Session, clause: str, case: Case) -> None:
    """Without a seed the root is refused; the sum of its elements is taken."""
    run, other = build(impl, case), build(impl, case)
    with refused(impl, clause, "not_scalar"):
        run.backward()
    with twin(impl, clause):
        impl.backward(impl.apply("sum", other.root, dim=None, keepdim=False))


def refuses_seed(impl: Session, clause: str, kind: str, case: Case, wrong: Any, *, listed: bool = False) -> None:
    """A pass with the wrong seed, an array or something else, is refused; with the seed of the case it is taken.

    `listed` gives it in a list, behind a right one.
    """
    run, other = build(impl, case), build(impl, case)
    seed = tensor(impl, wrong) if isinstance(wrong, np.ndarray) else wrong
    with refused(impl, clause, kind):
        impl.backward_many(2 * run.roots, [run.seed, seed]) if listed else impl.backward(run.root, seed)
    with twin(impl, clause):
        impl.backward_many(2 * other.roots, 2 * other.seeds) if listed else other.backward()


def refuses_one_shape(impl: Session, clause: str, case: Case, at: int, shape: Sequence[int]) -> None:
    """A pass from several roots is refused where the seed of root number `at` has another shape than that root."""
    run, other = build(impl, case), build(impl, case)
    run.seeds[at] = tensor(impl, ones(shape, impl.dtype(run.roots[at])))
    with refused(impl, clause, "bad_seed_shape"):
        impl.backward_many(run.roots, run.seeds)
    with twin(impl, clause):
        impl.backward_many(other.roots, other.seeds)


def refuses_count(impl: Session, clause: str, case: Case, count: int) -> None:
    """A pass from several roots with this number of seeds is refused; with a seed for each it is taken."""
    run, other = build(impl, case), build(impl, case)
    with refused(impl, clause, "wrong_seed_count"):
        impl.backward_many(run.roots, (3 * run.seeds)[:count])
    with twin(impl, clause):
        impl.backward_many(other.roots, other.seeds)


def adds_to_listed(impl: Session, clause: str, run: Run, full: Slots, listed: Sequence[int]) -> None:
    """One more pass over the same inputs, restricted to `listed`, adds to their slots what a full pass puts there."""
    before, second = run.slots(), again(run)
    second.backward(inputs=[second.handles[n] for n in listed])
    after = plus(before, full)
    expected = {n: after[n] if n in listed else was for n, was in before.items()}
    equal_slots(impl, clause, expected, run.slots(), run.program)


def listed_inner(impl: Session, clause: str, case: Case, number: int, count: int, *, retained: bool) -> None:
    """Passes over one graph add the gradient of an intermediate, listed alone in inputs=, to its slot once each."""
    single, run = build(impl, case), build(impl, case)
    if retained:
        impl.retain_grad(run.handles[number])
    single.backward(inputs=[single.handles[number]])
    for _ in range(count - 1):
        run.backward(inputs=[run.handles[number]], retain_graph=True)
    run.backward(inputs=[run.handles[number]])
    judged_values(impl, clause, single, single.slots([number]))
    equal_slots(impl, clause, times(count, single.slots([number])), run.slots([number]), run.program)


def returned(impl: Session, numbers: Sequence[int], found: Sequence[Handle | None]) -> Slots:
    """What `gradients` returned for some values, by their number."""
    return {n: None if g is None else array(impl, g) for n, g in zip(numbers, found, strict=True)}


def from_edges(impl: Session, run: Run, edges: Sequence[bool], *, dropped: bool) -> None:
    """One pass from all roots, those of `edges` named by their edge; where `dropped`, no tensor of those is left."""
    roots = [impl.gradient_edge(x) if edge else x for x, edge in zip(run.roots, edges, strict=True)]
    if dropped:
        run.release_others(*(root.value for root, edge in zip(run.program.roots, edges, strict=True) if not edge))
    impl.backward_many(roots, run.seeds)


def warned(impl: Session, clause: str, caught: Caught, kind: str, *, wanted: bool) -> None:
    """The acts drew a warning of this kind, or none of it where it is not `wanted`."""
    expected = f"{'the' if wanted else 'no'} warning {kind}"
    holds(impl, clause, (kind in caught.kinds) == wanted, expected=expected, found=f"warnings: {list(caught.texts)}")


def zeros_as_none(impl: Session, clause: str, case: Case, count: int) -> None:
    """Leaves that are reached hold the same after passes that began with zeros and with None in their slots."""
    empty, zeroed = build(impl, case), build(impl, case)
    reached = [n for n in case.the_program.leaves if n in case.the_program.reached()]
    for number in reached:
        data = array(impl, zeroed.handles[number])
        impl.set_grad(zeroed.handles[number], tensor(impl, np.zeros_like(data)))
        impl.set_grad(empty.handles[number], None)
    for run in (empty, zeroed):
        for _ in range(count):
            again(run).backward()
    equal_slots(impl, clause, empty.slots(reached), zeroed.slots(reached), zeroed.program)


def added_unrecorded(impl: Session, clause: str, case: Case, number: int, factor: float) -> None:
    """A pass writes its sum into the tensor that was assigned to a slot, a product, which keeps its history."""
    single, run = build(impl, case, passes=1), build(impl, case)
    leaf, data = run.handles[number], array(impl, run.handles[number])
    source = tensor(impl, data, requires_grad=True)
    assigned = impl.apply("mul", source, factor)
    impl.set_grad(leaf, assigned)
    run.backward()
    slot = impl.grad(leaf)
    same = slot is not None and impl.same(assigned, slot)
    holds(impl, clause, same, expected="the slot holds the assigned tensor", found="another")
    equal_slots(impl, clause, plus({number: data * factor}, single.slots()), run.slots([number]), run.program)
    impl.backward(assigned, tensor(impl, ones(data.shape, data.dtype.name)))
    equal(impl, clause, impl.grad(source), factor * ones(data.shape), "the gradient of its source")


def undisturbed(impl: Session, clause: str, case: Case, *, dropped: bool) -> None:
    """Gradients are those of the oracles and of the program without the unused steps, which are alive or dropped."""
    program, unused = editing.padded(case.the_program, case["padding"])
    plain, run = build(impl, case, passes=1), build(impl, program)
    if dropped:
        impl.release(*(run.handles[n] for n in unused))
    run.backward()
    judged(impl, clause, run, run.slots())
    equal_slots(impl, clause, plain.slots(), run.slots(), program)


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


def total(slots: Slots) -> Array | None:
    """The sum of all slots; None counts as nothing."""
    found: Slots = {0: None}
    for slot in slots.values():
        found = plus(found, {0: slot})
    return found[0]


def right_or_untouched(impl: Session, clause: str, run: Run, outcome: Outcome) -> None:
    """A pass that was accepted gives the right gradients; one that was refused leaves every slot empty."""
    if outcome.error is None:
        return judged(impl, clause, run, run.slots())
    for leaf in run.leaves:
        is_none(impl, clause, leaf, "the pass was refused")
    return None


def fits_leaves(impl: Session, clause: str, run: Run) -> None:
    """Every filled slot of a leaf has the leaf's shape and dtype."""
    for leaf in run.leaves:
        slot = impl.grad(leaf)
        if slot is not None:
            found, wanted = (impl.shape(slot), impl.dtype(slot)), (impl.shape(leaf), impl.dtype(leaf))
            holds(impl, clause, found == wanted, expected=f"{leaf}.grad is {wanted}", found=found)


def with_seed(program: Program, seed: Sequence[Any]) -> Program:
    """The program with one root and this seed."""
    return program.with_roots(Root(program.roots[0].value, tuple(seed)))


def share_seed(run: Run) -> Run:
    """Let all roots have one seed tensor, a new one with the elements of the first."""
    if run.seed is not None:
        run.seeds = [tensor(run.impl, array(run.impl, run.seed))] * len(run.seeds)
    return run


def turned_seed(run: Run, *, turned: bool) -> Run:
    """Where `turned`, let the seed of the first root be a view of a tensor that lies in the order of reversed axes."""
    if turned and run.seed is not None:
        run.seeds = [_turned(run.impl, array(run.impl, run.seed), "reversed"), *run.seeds[1:]]
    return run


def retained_beside(impl: Session, run: Run, count: int) -> None:
    """Passes with the same seeds over another graph, in which all intermediates retain their gradients.

    None where that is not offered: the graph must be kept, so that the passes add to the same slots.
    """
    if "retain_grad" not in impl.features or "backward.retain_graph" not in impl.keywords:
        return
    kept = again(run)
    for number in sorted(run.program.reached() - set(run.program.leaves)):
        impl.retain_grad(kept.handles[number])
    for _ in range(count):
        kept.backward(retain_graph=True)


def once_or_twice(impl: Session, clause: str, run: Run, single: Slots, numbers: Iterable[int]) -> None:
    """The slots hold the gradient of a single pass, or twice that."""
    for number in numbers:
        found, wanted = run.slot(number), single[number]
        allowed = (wanted, times(2, single)[number])
        right = any(close(run.program, number, w, found) for w in allowed)
        expected = f"{run.handles[number]}.grad is {show(wanted)} or twice that"
        holds(impl, clause, right, expected=expected, found=show(found), kind="wrong_value")


def logger(label: str) -> Behaviour:
    """A hook that records what it is called with under a label."""
    return Behaviour("log", ("g",), (Act("record", (label, Ref("g"))),))


def fires_once(impl: Session, clause: str, case: Case) -> None:
    """A hook on every intermediate that reaches the root is called once in a pass, with the total gradient."""
    run = build(impl, case)
    numbers = sorted(n for n in run.program.reached() if n >= len(run.program.inputs))
    for number in numbers:
        impl.register_hook(run.handles[number], logger(f"value {number}"))
    run.backward()
    calls: dict[int, list[Array | None]] = {number: [] for number in numbers}
    for label, gradient in impl.events():
        calls[int(label.split()[1])].append(as_array(gradient))
    for number, seen in calls.items():
        what, found = f"one call of the hook on {run.handles[number]}", f"{len(seen)} calls"
        holds(impl, clause, len(seen) == 1, expected=what, found=found)
    judged(impl, clause, run, {n: seen[0] for n, seen in calls.items()}, leaves=False)


def apart_in_memory(impl: Session, clause: str, run: Run) -> None:
    """The slots of the leaves share memory neither with each other nor with a seed or another value of the program."""
    slots = [(f"{leaf}.grad", slot) for leaf in run.leaves if (slot := impl.grad(leaf)) is not None]
    seeds = {id(s): s for s in run.seeds if s is not None}.values()
    others = [(f"{x}", x) for x in (*seeds, *run.handles)]
    pairs = [*itertools.combinations(slots, 2), *itertools.product(slots, others)]
    for (name, a), (other, b) in pairs:
        shared = impl.shares_storage(a, b)
        holds(impl, clause, not shared, expected=f"{name} and {other} share no memory", found="shared", kind="aliased")


@dataclass
class Held:
    """A slot as it was: the tensor, its elements and strides, another tensor over the same memory where it is one."""

    slot: Handle
    data: Array
    strides: tuple[int, ...]
    alias: Handle | None


def held(run: Run) -> dict[int, Held]:
    """The filled slots of the leaves, by number."""
    impl, found = run.impl, {}
    for number in run.program.leaves:
        slot = impl.grad(run.handles[number])
        if slot is not None:
            alias = impl.detach(slot) if "aliasing" in impl.features else None
            alias = alias if alias is not None and impl.shares_storage(alias, slot) else None
            found[number] = Held(slot, array(impl, slot), impl.strides(slot), alias)
    return found


def kept_in_place(impl: Session, clause: str, run: Run, before: dict[int, Held]) -> None:
    """The slots are the tensors that they were, in the same memory with the same strides, and hold twice as much."""
    for number, was in before.items():
        now, leaf = impl.grad(run.handles[number]), run.handles[number]
        same = now is not None and impl.same(was.slot, now)
        holds(impl, clause, same, expected=f"{leaf}.grad is the tensor that it was", found="another")
        stayed = was.alias is None or impl.shares_storage(was.alias, was.slot)
        holds(impl, clause, stayed, expected=f"{leaf}.grad is in the memory that it was in", found="another")
        strides = impl.strides(was.slot)
        holds(
            impl, clause, strides == was.strides, expected=f"{leaf}.grad has strides {was.strides}", found=str(strides)
        )
        equal_slots(impl, clause, {number: 2 * was.data}, {number: array(impl, was.slot)}, run.program)


# -- leaves of another layout ------------------------------------------------------------------------------------------


def laid(impl: Session, case: Case, *, dense: bool) -> Run:
    """Build a program on leaves that lie in memory in another order, or with gaps or overlaps where not `dense`."""
    program = case.the_program
    handles = []
    for given in program.inputs:
        data = to_array(given.shape, given.values, given.dtype)
        if not given.requires_grad or not data.ndim:
            handles.append(tensor(impl, data, requires_grad=given.requires_grad))
            continue
        made = _turned(impl, data, case["turn"]) if dense else _loose(impl, data, case["turn"], gaps=case["gaps"])
        leaf = impl.detach(made)
        impl.set_requires_grad(leaf, True)
        handles.append(leaf)
    return Run(impl, program, apply_steps(impl, program, handles), [None] * len(program.roots))


def _order(rank: int, turn: str) -> tuple[int, ...]:
    axes = tuple(range(rank))
    return {"reversed": axes[::-1], "rolled": axes[1:] + axes[:1], "row-major": axes}[turn]


def _turned(impl: Session, data: Array, turn: str) -> Handle:
    dims = _order(data.ndim, turn)
    handle: Handle = impl.apply("permute", tensor(impl, data.transpose(np.argsort(dims))), dims=dims)
    return handle


def _loose(impl: Session, data: Array, turn: str, *, gaps: bool) -> Handle:
    dims = _order(data.ndim, turn)
    base = data.transpose(np.argsort(dims))
    if gaps:
        wide = tensor(impl, np.concatenate([base, base], axis=-1))
        part = impl.apply("narrow", wide, dim=base.ndim - 1, start=0, length=base.shape[-1])
    else:
        part = impl.apply("expand", tensor(impl, base[:1]), shape=base.shape) if base.size else tensor(impl, base)
    handle: Handle = impl.apply("permute", part, dims=dims)
    return handle


def has_layout(impl: Session, clause: str, case: Case, *, dense: bool) -> None:
    """New slots have the strides of leaves that are dense; they are row-major where a leaf has gaps or overlaps."""
    run = laid(impl, case, dense=dense)
    run.backward()
    for leaf in run.leaves:
        slot, shape = impl.grad(leaf), impl.shape(leaf)
        own = long_strides(impl, leaf)
        if slot is None or 0 in shape or is_dense(own, [n for n in shape if n > 1]) != dense:
            continue
        wanted, found = own if dense else row_major(shape), long_strides(impl, slot)
        holds(impl, clause, found == wanted, expected=f"{leaf}.grad has strides {wanted}", found=str(found))


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


# -- polynomials -------------------------------------------------------------------------------------------------------


def two_recorded(impl: Session, case: Case) -> tuple[Array, Handle, Handle | None, Value]:
    """Two passes over polynomials of one leaf, the second recorded: its values, the leaf, the first slot as it was."""
    data = to_array(case["shape"], case["x"])
    x = tensor(impl, data, requires_grad=True)
    impl.backward(polynomial(impl, x, case["first"]), create_graph=case["old"])
    old = impl.grad(x)
    before: Value = impl.value(old)
    impl.backward(polynomial(impl, x, case["second"]), create_graph=True)
    return data, x, old, before


def differentiable_sum(impl: Session, clause: str, case: Case) -> None:
    """The slot holds the sum of two recorded passes, and its derivative is that of both."""
    data, x, _, _ = two_recorded(impl, case)
    slot = impl.grad(x)
    equal(impl, clause, slot, slope(data, case["first"], case["second"]), "the sum")
    impl.set_grad(x, None)
    impl.backward(slot if not case["shape"] else impl.apply("sum", slot, dim=None, keepdim=False))
    expected = curvature(data, case["second"]) + case["old"] * curvature(data, case["first"])
    equal(impl, clause, impl.grad(x), expected, "the derivative of the sum")


def polynomial(impl: Session, x: Handle, coefficients: Sequence[float]) -> Handle:
    """The sum over all elements of a x + b x^2 + c x^3, by multiplications and additions."""
    a, b, c = coefficients
    inner = impl.apply("add", impl.apply("mul", x, c), b)
    whole: Handle = impl.apply("mul", impl.apply("add", impl.apply("mul", inner, x), a), x)
    return whole if impl.shape(x) == () else impl.apply("sum", whole, dim=None, keepdim=False)


def slope(x: Array, *polynomials: Sequence[float]) -> Array:
    """The derivative of the sum of polynomials."""
    return np.asarray(sum(a + 2 * b * x + 3 * c * x * x for a, b, c in polynomials))


def curvature(x: Array, coefficients: Sequence[float]) -> Array:
    """The second derivative of the polynomial."""
    _, b, c = coefficients
    return np.asarray(2 * b + 6 * c * x)
