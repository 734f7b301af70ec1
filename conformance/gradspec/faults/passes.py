# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of what a backward does: how it walks, how it accumulates."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradspec.faults.backward import entrance
from gradspec.faults.copying import Notes, part
from gradspec.faults.registry import fault


def with_counts(ag: Any) -> None:
    """Give passes a place to count in: `counts`, by node."""

    class Counting(ag.engine.Pass):  # type: ignore[misc] # of the private copy
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.counts: dict[Any, int] = {}

    ag.engine.Pass = Counting


# --- accumulation -------------------------------------------------------------------------------------------------


@fault("BACKWARD_11_overwrites", clauses=["BACKWARD-11"], title="each pass overwrites the slots of the leaves")
def overwrites(ag: Any) -> None:
    accumulate = ag.engine.accumulate

    def fresh(tensor: Any, gradient: Any, create_graph: bool) -> None:
        if tensor._node is None and tensor._tracked:
            tensor._rare().grad = None
        accumulate(tensor, gradient, create_graph)

    ag.engine.accumulate = fresh


@fault(
    "BACKWARD_28_none_ends_accumulation",
    clauses=["BACKWARD-28"],
    title="after None was assigned each pass overwrites the slot; after zeros it adds",
)
def none_ends_accumulation(ag: Any) -> None:
    cleared, grad, accumulate = Notes(), ag.Tensor.grad, ag.engine.accumulate

    def assign(self: Any, value: Any) -> None:
        grad.fset(self, value)
        if value is None:
            cleared.add(self)
        else:
            cleared.pop(self)

    def fresh(tensor: Any, gradient: Any, create_graph: bool) -> None:
        if tensor in cleared:
            tensor._rare().grad = None
        accumulate(tensor, gradient, create_graph)

    ag.Tensor.grad, ag.engine.accumulate = property(grad.fget, assign, grad.fdel), fresh


@fault(
    "H03",
    clauses=["BACKWARD-29"],
    title="contributions to a leaf beyond the seventh of a pass are lost",
    source="apache/mxnet#17989",
)
def eighth_use_is_lost(ag: Any) -> None:
    with_counts(ag)
    send = ag.engine.send

    def losing(run: Any, edge: Any, gradient: Any) -> None:
        run.counts[edge] = run.counts.get(edge, 0) + 1
        if not isinstance(edge, ag.tape.AccumulateGrad) or run.counts[edge] <= 7:
            send(run, edge, gradient)

    ag.engine.send = losing


@fault(
    "BACKWARD_40_first_counts_twice",
    clauses=["BACKWARD-40", "BACKWARD-29"],
    title="where a leaf gets three contributions or more the first is counted twice",
    source="apache/mxnet#17989",
)
def first_counts_twice(ag: Any) -> None:
    with_counts(ag)
    send = ag.engine.send

    def doubling(run: Any, edge: Any, gradient: Any) -> None:
        if isinstance(edge, ag.tape.AccumulateGrad):
            run.counts[edge] = run.counts.get(edge, 0) + 1
            first = run.counts.setdefault((edge, "first"), gradient)
            if run.counts[edge] == 3:
                send(run, edge, first)
        send(run, edge, gradient)

    ag.engine.send = doubling


@fault(
    "BACKWARD_24_row_major",
    clauses=["BACKWARD-24"],
    title="a new .grad is row-major whatever the strides of the leaf",
)
def row_major(ag: Any) -> None:
    first_grad = ag.engine.first_grad

    def plain(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        if not create_graph:
            made._data = np.array(made._data, order="C")
        return made

    ag.engine.first_grad = plain


@fault(
    "BACKWARD_52_order_of_gaps",
    clauses=["BACKWARD-52"],
    title="a new .grad follows the order of the leaf's axes also where the leaf has gaps",
)
def order_of_gaps(ag: Any) -> None:
    first_grad = ag.engine.first_grad

    def following(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        if not create_graph:
            laid_out = np.empty_like(tensor._data)
            laid_out[...] = made._data
            made._data = laid_out
        return made

    ag.engine.first_grad = following


@fault("BACKWARD_25_new_tensor", clauses=["BACKWARD-25"], title="each accumulation puts a new tensor into the slot")
def new_tensor(ag: Any) -> None:
    accumulate = ag.engine.accumulate

    def replacing(tensor: Any, gradient: Any, create_graph: bool) -> None:
        old = tensor._rare().grad
        if old is not None and not create_graph and tensor._tracked:
            tensor._meta.grad = part(ag, "record").wrap(old._data.copy(order="K"))
        accumulate(tensor, gradient, create_graph)

    ag.engine.accumulate = replacing


@fault(
    "BACKWARD_25_new_memory",
    clauses=["BACKWARD-25"],
    title="accumulation keeps the tensor in the slot, but gives it new memory",
)
def new_memory(ag: Any) -> None:
    add_in_place = ag.engine.add_in_place

    def moving(old: Any, gradient: Any) -> None:
        old._data = old._data.copy(order="K")
        add_in_place(old, gradient)

    ag.engine.add_in_place = moving


@fault("BACKWARD_26_sum_is_cut_off", clauses=["BACKWARD-26"], title="with create_graph the sum is not recorded")
def sum_is_cut_off(ag: Any) -> None:
    recorded_sum = ag.engine.recorded_sum
    ag.engine.recorded_sum = lambda old, gradient: recorded_sum(old, gradient).detach()


@fault(
    "BACKWARD_26_old_part_is_cut_off",
    clauses=["BACKWARD-26"],
    title="with create_graph the old gradient enters the sum detached",
)
def old_part_is_cut_off(ag: Any) -> None:
    recorded_sum = ag.engine.recorded_sum
    ag.engine.recorded_sum = lambda old, gradient: recorded_sum(old.detach(), gradient)


@fault(
    "BACKWARD_53_in_place",
    clauses=["BACKWARD-53"],
    title="with create_graph the sum is written into the old .grad, and recorded there",
)
def recorded_in_place(ag: Any) -> None:
    ag.engine.recorded_sum = lambda old, gradient: part(ag, "views").write(old, ag.ops.add, gradient)


# --- memory that two share ----------------------------------------------------------------------------------------


def stealing(ag: Any, may_steal: Any) -> None:
    """Let a slot take over the memory of a gradient for which `may_steal` holds."""
    first_grad = ag.engine.first_grad

    def first(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        fits = not create_graph and gradient.shape == tensor.shape and gradient.dtype == tensor.dtype
        if fits and gradient.flags.writeable and may_steal(gradient):
            return part(ag, "record").wrap(gradient)
        return first_grad(tensor, gradient, create_graph)

    ag.engine.first_grad = first


def noting_seeds(ag: Any, seeds: Notes) -> None:
    """Write down the seeds of each pass."""
    walk = ag.engine.walk

    def noting(run: Any, roots: Any, given: Any) -> None:
        seeds.add(*given)
        walk(run, roots, given)

    ag.engine.walk = noting


@fault(
    "BACKWARD_32_steals",
    clauses=["BACKWARD-32", "BACKWARD-44", "BACKWARD-49"],
    title="an empty slot takes over the memory in which its gradient arrives",
    source="pytorch/pytorch#34082",
)
def steals(ag: Any) -> None:
    stealing(ag, lambda _gradient: True)


@fault(
    "BACKWARD_32_two_slots",
    clauses=["BACKWARD-32"],
    title="leaves at which one and the same gradient arrives share the memory of their slots",
)
def two_slots(ag: Any) -> None:
    made, first_grad, write_slots = Notes(), ag.engine.first_grad, ag.engine.write_slots

    def first(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        if not isinstance(gradient, np.ndarray):
            return first_grad(tensor, gradient, create_graph)
        known = made.pop(gradient) if gradient.shape == tensor.shape else None
        slot = first_grad(tensor, gradient, create_graph)
        if known is not None:
            slot._data = known._data
        made[gradient] = slot
        return slot

    def writing(run: Any) -> None:
        write_slots(run)
        made.clear()

    ag.engine.first_grad, ag.engine.write_slots = first, writing


@fault(
    "BACKWARD_49_steals_views",
    clauses=["BACKWARD-49", "BACKWARD-32"],
    title="an empty slot takes over the memory of a gradient that is a view",
    source="pytorch/pytorch#34082",
)
def steals_views(ag: Any) -> None:
    stealing(ag, lambda gradient: gradient.base is not None)


@fault(
    "BACKWARD_44_steals_the_seed",
    clauses=["BACKWARD-44", "BACKWARD-32"],
    title="an empty slot takes over the memory of the seed where it arrives unchanged",
)
def steals_the_seed(ag: Any) -> None:
    seeds = Notes()
    noting_seeds(ag, seeds)
    stealing(ag, lambda gradient: any(gradient is each or gradient.base is each for each in seeds.living()))


@fault(
    "BACKWARD_44_sums_into_the_seed",
    clauses=["BACKWARD-44"],
    title="what arrives at a root in addition to its seed is added into the seed's own memory",
)
def sums_into_the_seed(ag: Any) -> None:
    seeds, sum_contributions = Notes(), ag.engine.sum_contributions
    noting_seeds(ag, seeds)

    def adding(known: Any, gradient: Any) -> Any:
        if isinstance(known, np.ndarray) and known in seeds and known.flags.writeable:
            np.add(known, gradient, out=known)
            return known
        return sum_contributions(known, gradient)

    ag.engine.sum_contributions = adding


# --- the walk -----------------------------------------------------------------------------------------------------


@fault(
    "BACKWARD_31_first_contribution_only",
    clauses=["BACKWARD-31"],
    title="a node runs as soon as a first contribution has come; later ones are lost",
)
def first_contribution_only(ag: Any) -> None:
    with_counts(ag)
    send = ag.engine.send

    def sending(run: Any, edge: Any, gradient: Any) -> None:
        if ag.tape.node_of(edge) not in run.counts:
            send(run, edge, gradient)

    def oldest(run: Any) -> Any:
        at = next((i for i, (order, _) in enumerate(run.queue) if order < 0), 0)
        node = run.queue.pop(at)[1]
        if node.order < 0:
            run.counts[node] = 1
        return node

    ag.engine.send, ag.engine.next_node = sending, oldest
    ag.engine.enqueue = lambda run, node: run.queue.append((node.order, node))


@fault(
    "BACKWARD_31_fourth_use_is_lost",
    clauses=["BACKWARD-31"],
    title="contributions to an intermediate beyond the third are lost",
)
def fourth_use_is_lost(ag: Any) -> None:
    with_counts(ag)
    send = ag.engine.send

    def losing(run: Any, edge: Any, gradient: Any) -> None:
        run.counts[edge] = run.counts.get(edge, 0) + 1
        if isinstance(edge, ag.tape.AccumulateGrad) or run.counts[edge] <= 3:
            send(run, edge, gradient)

    ag.engine.send = losing


@fault(
    "BACKWARD_48_last_use_of_an_output",
    clauses=["BACKWARD-48"],
    title="of several uses of one of the results of an operation only the last counts",
)
def last_use_of_an_output(ag: Any) -> None:
    send = ag.engine.send

    def replacing(run: Any, edge: Any, gradient: Any) -> None:
        if edge.slot is not None and edge.node in run.sums:
            run.sums[edge.node][edge.slot] = None
        send(run, edge, gradient)

    ag.engine.send = replacing


@fault(
    "BACKWARD_54_product_with_zeros",
    clauses=["BACKWARD-54"],
    title="a product passes nothing on to a factor whose partner is zero everywhere",
)
def product_with_zeros(ag: Any) -> None:
    rule = ag.tape.VJP["mul"]

    def sparing(xp: Any, node: Any, g: Any, saved: Any) -> Any:
        arrays = [getattr(each, "_data", each) for each in saved]
        zero = [each is not None and each.size > 0 and not each.any() for each in arrays]
        return [None if z else each for z, each in zip(zero[::-1], rule(xp, node, g, saved), strict=True)]

    ag.tape.VJP["mul"] = sparing


@fault(
    "H09",
    clauses=["BACKWARD-55"],
    title="a hook on an intermediate sees each contribution, not their sum",
    source="Oneflow-Inc/oneflow#7685",
)
def hook_on_each_contribution(ag: Any) -> None:
    send, observe_output = ag.engine.send, ag.engine.observe_output

    def hooked(run: Any, edge: Any, gradient: Any) -> None:
        watch = ag.tape.node_of(edge).watch
        hooks = None if watch is None else watch.hooks.get(edge.slot or 0)
        send(run, edge, ag.engine.run_hooks(run, hooks, gradient) if hooks else gradient)

    def unhooked(run: Any, node: Any, number: int, gradient: Any) -> Any:
        if node.watch is None:
            return observe_output(run, node, number, gradient)
        hooks, node.watch.hooks = node.watch.hooks, {}
        try:
            return observe_output(run, node, number, gradient)
        finally:
            node.watch.hooks = hooks

    ag.engine.send, ag.engine.observe_output = hooked, unhooked


@fault(
    "BACKWARD_33_refused",
    clauses=["BACKWARD-33"],
    title="a backward under no_grad raises",
)
def refused_under_no_grad(ag: Any) -> None:
    def wrapper(backward: Any) -> Any:
        def strict(*arguments: Any, **keywords: Any) -> None:
            if not ag.is_grad_enabled():
                raise ag.errors.NothingRequiresGradError("nothing requires grad under no_grad")
            backward(*arguments, **keywords)

        return strict

    entrance(ag, wrapper)


@fault(
    "BACKWARD_33_accumulates_nothing",
    clauses=["BACKWARD-33"],
    title="leaves do not accumulate under no_grad",
)
def accumulates_nothing(ag: Any) -> None:
    write_slots = ag.engine.write_slots
    ag.engine.write_slots = lambda run: write_slots(run) if ag.is_grad_enabled() else None
