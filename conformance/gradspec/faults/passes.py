# ruff: noqa: SLF001
# (a fault reaches into the tensors of its private copy of refgrad)
"""Faults of what a backward does: how it walks, how it accumulates, what it leaves alone."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gradspec.faults.backward import entrance
from gradspec.faults.copying import Notes, part
from gradspec.faults.registry import fault


def on_record(ag: Any, seen: Any) -> None:
    """Call `seen(node)` for every operation that is recorded."""

    def telling(function: Any) -> Any:
        def recorded(*arguments: Any) -> Any:
            made = function(*arguments)
            seen(made if isinstance(made, ag.tape.Node) else made._node)
            return made

        return recorded

    record, linalg, pointwise = part(ag, "record"), part(ag, "ops.linalg"), part(ag, "ops.pointwise")
    record.new_node = telling(record.new_node)
    linalg.record_two = pointwise.record_two = telling(record.record_two)


def with_counts(ag: Any) -> None:
    """Give passes a place to count in: `counts`, by node."""

    class Counting(ag.engine.Pass):  # type: ignore[name-defined,misc] # of the private copy
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
    "BACKWARD_31_square_counts_once",
    clauses=["BACKWARD-31"],
    title="an intermediate that is both operands of one operation gets the gradient of one of them",
)
def square_counts_once(ag: Any) -> None:
    pass_on = ag.engine.pass_on

    def once(run: Any, node: Any, gradients: Any) -> None:
        edges: list[Any] = []
        kept = []
        for edge, gradient in zip(node.edges, gradients, strict=True):
            inner = edge is not None and not isinstance(edge, ag.tape.AccumulateGrad)
            kept.append(None if inner and edge in edges else gradient)
            edges.append(edge)
        pass_on(run, node, kept)

    ag.engine.pass_on = once


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
    "BACKWARD_54_zeros_are_skipped",
    clauses=["BACKWARD-54"],
    title="a gradient that is zero everywhere is not passed on",
)
def zeros_are_skipped(ag: Any) -> None:
    pass_on = ag.engine.pass_on

    def sparing(run: Any, node: Any, gradients: Any) -> None:
        arrays = [getattr(each, "_data", each) for each in gradients]
        zero = [each is not None and each.size > 0 and not each.any() for each in arrays]
        pass_on(run, node, [None if z else each for z, each in zip(zero, gradients, strict=True)])

    ag.engine.pass_on = sparing


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


# --- what a pass leaves alone -------------------------------------------------------------------------------------


def knowing_leaves(ag: Any) -> Notes:
    """The leaves that some operation has used."""
    leaves, leaf_edge = Notes(), ag.tape.leaf_edge

    def noting(leaf: Any) -> Any:
        leaves.add(leaf)
        return leaf_edge(leaf)

    ag.tape.leaf_edge = part(ag, "record").leaf_edge = noting
    return leaves


@fault(
    "BACKWARD_30_zeros_everywhere",
    clauses=["BACKWARD-30"],
    title="a pass fills the empty slots of leaves that it does not reach with zeros",
)
def zeros_everywhere(ag: Any) -> None:
    leaves, write_slots = knowing_leaves(ag), ag.engine.write_slots

    def writing(run: Any) -> None:
        write_slots(run)
        for leaf in leaves.living() if run.needed is None else []:
            if leaf._tracked and leaf._node is None and leaf._rare().grad is None:
                leaf._meta.grad = part(ag, "record").wrap(np.zeros_like(leaf._data))

    ag.engine.write_slots = writing


@fault(
    "BACKWARD_30_empties_the_others",
    clauses=["BACKWARD-30"],
    title="a pass empties the slots of leaves that it does not reach",
)
def empties_the_others(ag: Any) -> None:
    leaves, write_slots = knowing_leaves(ag), ag.engine.write_slots

    def writing(run: Any) -> None:
        write_slots(run)
        reached = {id(tensor) for tensor, _ in run.arrived}
        for leaf in leaves.living() if run.needed is None else []:
            if leaf._node is None and id(leaf) not in reached:
                leaf._rare().grad = None

    ag.engine.write_slots = writing


@fault(
    "BACKWARD_39_sums_save",
    clauses=["BACKWARD-39"],
    title="a sum saves its operands, which it does not need",
    source="from the clause; upstream test_no_unnecessary_save",
)
def sums_save(ag: Any) -> None:
    pointwise = part(ag, "ops.pointwise")
    record_two = pointwise.record_two

    def saving(label: str, data: Any, a: Any, b: Any, *rest: Any) -> Any:
        made = record_two(label, data, a, b, *rest)
        if label == "add":
            made._node.saved = (a, b)
            made._node.versions = ag.tape.versions_of((a, b))
        return made

    pointwise.record_two = saving


def waits_for_consumers(ag: Any, consumers_of: Any) -> None:
    """Let an intermediate pass on its gradient only if all of its consumers have contributed."""
    with_counts(ag)
    pass_on, run_node = ag.engine.pass_on, ag.engine.run_node

    def counting(run: Any, node: Any, gradients: Any) -> None:
        for edge in node.edges:
            if edge is not None:
                target = ag.tape.node_of(edge)
                run.counts[target] = run.counts.get(target, 0) + 1
        pass_on(run, node, gradients)

    def waiting(run: Any, node: Any, gradient: Any) -> Any:
        found = run_node(run, node, gradient)
        return found if run.counts.get(node, 0) == consumers_of(node) else [None] * len(node.edges)

    ag.engine.pass_on, ag.engine.run_node = counting, waiting


@fault(
    "BACKWARD_45_waits_for_living_consumers",
    clauses=["BACKWARD-45"],
    title="an intermediate waits for the gradients of all living consumers, used or not",
)
def waits_for_living_consumers(ag: Any) -> None:
    consumers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def note(node: Any) -> None:
        for edge in node.edges:
            if edge is not None:
                consumers.setdefault(ag.tape.node_of(edge), []).append(weakref.ref(node))

    on_record(ag, note)
    waits_for_consumers(ag, lambda node: sum(ref() is not None for ref in consumers.get(node, ())))


@fault(
    "BACKWARD_45_counts_when_recording",
    clauses=["BACKWARD-45", "BACKWARD-56"],
    title="consumers are counted when they are recorded, and the node waits for that many gradients",
)
def counts_when_recording(ag: Any) -> None:
    counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(node: Any) -> None:
        for edge in node.edges:
            if edge is not None:
                counts[ag.tape.node_of(edge)] = counts.get(ag.tape.node_of(edge), 0) + 1

    on_record(ag, note)
    waits_for_consumers(ag, lambda node: counts.get(node, 0))


@fault(
    "BACKWARD_56_dropped_consumer_frees",
    clauses=["BACKWARD-56"],
    title="a node that is dropped frees what the nodes of its operands saved",
)
def dropped_consumer_frees(ag: Any) -> None:
    watches: dict[int, Any] = {}

    def note(node: Any) -> None:
        key, operands = id(node), [ag.tape.node_of(e) for e in node.edges if e is not None]

        def gone(_: Any) -> None:
            watches.pop(key, None)
            for each in operands:
                ag.tape.free_saved(each)

        watches[key] = weakref.ref(node, gone)

    on_record(ag, note)


@fault(
    "BACKWARD_46_use_empties_the_slot",
    clauses=["BACKWARD-46"],
    title="using a leaf in a new graph empties its slot",
)
def use_empties_the_slot(ag: Any) -> None:
    leaf_edge = ag.tape.leaf_edge

    def clearing(leaf: Any) -> Any:
        old = leaf._rare().accumulator
        if old is None or old() is None:
            leaf._meta.grad = None
        return leaf_edge(leaf)

    ag.tape.leaf_edge = part(ag, "record").leaf_edge = clearing


@fault(
    "BACKWARD_46_detach_empties_the_slot",
    clauses=["BACKWARD-46"],
    title="reading a leaf by way of detach() empties its slot",
)
def detach_empties_the_slot(ag: Any) -> None:
    detach = ag.Tensor.detach

    def clearing(self: Any) -> Any:
        if self._node is None:
            self._rare().grad = None
        return detach(self)

    ag.Tensor.detach = clearing


@fault(
    "BACKWARD_47_outputs_are_recycled",
    clauses=["BACKWARD-47"],
    title="freeing a graph overwrites the memory of outputs that their operation had saved",
)
def outputs_are_recycled(ag: Any) -> None:
    free_saved = ag.engine.free_saved

    def recycling(node: Any) -> None:
        for value in node.saved:
            if isinstance(value, ag.tape.SavedOutput) and value._data.flags.writeable:
                value._data[...] = 0
        free_saved(node)

    ag.engine.free_saved = recycling


@fault(
    "BACKWARD_47_root_becomes_its_seed",
    clauses=["BACKWARD-47"],
    title="after a backward without a gradient the root holds its seed",
)
def root_becomes_its_seed(ag: Any) -> None:
    def wrapper(backward: Any) -> Any:
        def writing(tensors: Any, grad_tensors: Any = None, *arguments: Any, **keywords: Any) -> None:
            backward(tensors, grad_tensors, *arguments, **keywords)
            if grad_tensors is None and isinstance(tensors, ag.Tensor) and tensors._data.flags.writeable:
                tensors._data[...] = 1

        return writing

    entrance(ag, wrapper)
