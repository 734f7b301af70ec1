# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of what a backward leaves alone: other leaves, other consumers, values."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gradspec.faults.backward import entrance
from gradspec.faults.copying import Notes, part
from gradspec.faults.passes import with_counts
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
