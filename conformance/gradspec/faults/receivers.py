# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of the slot `.grad`: which tensors receive a gradient, and what they receive."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np

from gradspec.faults.copying import Notes, part
from gradspec.faults.gradslot import slot
from gradspec.faults.registry import fault

# --- slots of non-leaves ------------------------------------------------------------------------------------------


@fault("GRADSLOT_08_no_warning", clauses=["GRADSLOT-08"], title="reading .grad of a non-leaf draws no warning")
def no_warning(ag: Any) -> None:
    part(ag, "tensor").warn_unretained = lambda _tensor: None


def warn(ag: Any) -> None:
    """The warning of a non-leaf."""
    warnings.warn("call retain_grad() before backward", ag.errors.NonLeafGradWarning, stacklevel=3)


@fault(
    "GRADSLOT_08_warns_though_retained",
    clauses=["GRADSLOT-08"],
    title="the warning of a non-leaf comes also where it retains its gradient",
)
def warns_though_retained(ag: Any) -> None:
    part(ag, "tensor").warn_unretained = lambda _tensor: warn(ag)


@fault(
    "GRADSLOT_08_warns_at_an_empty_leaf",
    clauses=["GRADSLOT-08"],
    title="reading the empty slot of a leaf warns as that of a non-leaf does",
)
def warns_at_an_empty_leaf(ag: Any) -> None:
    read = ag.Tensor.grad.fget

    def warning(self: Any) -> Any:
        found = read(self)
        if found is None and self._node is None:
            warn(ag)
        return found

    slot(ag.Tensor, warning, None)


@fault(
    "GRADSLOT_09_last_use_only",
    clauses=["GRADSLOT-09"],
    title="a retained gradient is that of the use which came last, not the sum",
)
def last_use_only(ag: Any) -> None:
    send, fill_retained = ag.engine.send, ag.engine.fill_retained
    last: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def noting(run: Any, edge: Any, gradient: Any) -> None:
        node = ag.tape.node_of(edge)
        if node.watch is not None:
            last.setdefault(node, {})[edge.slot or 0] = gradient
        send(run, edge, gradient)

    def keeping(run: Any, node: Any, number: int, gradient: Any) -> None:
        fill_retained(run, node, number, last.get(node, {}).pop(number, gradient))

    ag.engine.send, ag.engine.fill_retained = noting, keeping


@fault(
    "GRADSLOT_09_zeros_where_not_reached",
    clauses=["GRADSLOT-09"],
    title="retain_grad allocates the slot as zeros, so it is not None where the root does not depend on it",
)
def zeros_where_not_reached(ag: Any) -> None:
    retain_grad = ag.Tensor.retain_grad

    def allocate(self: Any) -> None:
        retain_grad(self)
        if self._node is not None and self._rare().grad is None:
            self._meta.grad = part(ag, "tensor").alias(np.zeros_like(self._data))

    ag.Tensor.retain_grad = allocate


@fault(
    "GRADSLOT_10_true_after_backward_only",
    clauses=["GRADSLOT-10"],
    title="retains_grad says whether the slot is filled",
)
def true_after_backward_only(ag: Any) -> None:
    asked, read, fill_retained = ag.Tensor.retains_grad, ag.Tensor.grad.fget, ag.engine.fill_retained
    told = property(lambda self: asked.fget(self) and self._meta.grad is not None)

    def as_asked(function: Any) -> Any:
        def calling(*arguments: Any) -> Any:
            ag.Tensor.retains_grad = asked
            try:
                return function(*arguments)
            finally:
                ag.Tensor.retains_grad = told

        return calling

    ag.engine.fill_retained = as_asked(fill_retained)
    slot(ag.Tensor, as_asked(read), None)
    ag.Tensor.retains_grad = told


@fault(
    "GRADSLOT_10_detach_inherits",
    clauses=["GRADSLOT-10"],
    title="detach() copies the mark of retain_grad",
)
def detach_inherits(ag: Any) -> None:
    asked, detach = ag.Tensor.retains_grad.fget, ag.Tensor.detach
    marked = Notes()

    def copying(self: Any) -> Any:
        made = detach(self)
        if asked(self):
            marked.add(made)
        return made

    ag.Tensor.detach = copying
    ag.Tensor.retains_grad = property(lambda self: asked(self) or self in marked)


@fault(
    "GRADSLOT_11_accepts_constants",
    clauses=["GRADSLOT-11"],
    title="retain_grad does nothing on a tensor that does not require grad",
)
def accepts_constants(ag: Any) -> None:
    retain_grad = ag.Tensor.retain_grad
    ag.Tensor.retain_grad = lambda self: retain_grad(self) if self._tracked else None


@fault(
    "GRADSLOT_12_overwrites",
    clauses=["GRADSLOT-12"],
    title="a retained gradient is overwritten by each pass",
)
def overwrites(ag: Any) -> None:
    write_slots = ag.engine.write_slots

    def writing(run: Any) -> None:
        for tensor, _ in run.retained:
            if tensor.retains_grad:
                tensor._meta.grad = None
        write_slots(run)

    ag.engine.write_slots = writing


@fault(
    "GRADSLOT_13_first_requires_grad",
    clauses=["GRADSLOT-13"],
    title="the first gradient of a leaf takes over its requires_grad",
)
def first_requires_grad(ag: Any) -> None:
    first_grad = ag.engine.first_grad

    def tracked(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        made._tracked = True
        return made

    ag.engine.first_grad = tracked


@fault(
    "GRADSLOT_13_sum_requires_grad",
    clauses=["GRADSLOT-13"],
    title="a gradient requires grad once a second pass was added to it",
)
def sum_requires_grad(ag: Any) -> None:
    add_in_place = ag.engine.add_in_place

    def adding(old: Any, gradient: Any) -> None:
        add_in_place(old, gradient)
        old._tracked = True

    ag.engine.add_in_place = adding


# --- who receives -------------------------------------------------------------------------------------------------


@fault(
    "H01",
    clauses=["GRADSLOT-14"],
    title="a leaf frozen after the forward receives a gradient all the same",
    source="Oneflow-Inc/oneflow#5889",
)
def frozen_too_late(ag: Any) -> None:
    ag.engine.receives = lambda _tensor: True


@fault(
    "GRADSLOT_14_pass_fails",
    clauses=["GRADSLOT-14"],
    title="a backward that meets a leaf frozen after the forward raises",
)
def pass_fails(ag: Any) -> None:
    observe = ag.engine.observe

    def strict(run: Any, node: Any, gradient: Any) -> Any:
        if isinstance(node, ag.tape.AccumulateGrad) and not node.variable._tracked:
            raise ag.errors.NotRequiringGradError("a leaf of the graph does not require grad any more")
        return observe(run, node, gradient)

    ag.engine.observe = strict


@fault(
    "GRADSLOT_14_loses_its_grad",
    clauses=["GRADSLOT-14"],
    title="freezing a leaf empties its slot when a backward passes",
)
def loses_its_grad(ag: Any) -> None:
    accumulate = ag.engine.accumulate

    def clearing(tensor: Any, gradient: Any, create_graph: bool) -> None:
        if not tensor._tracked:
            tensor._rare().grad = None
        accumulate(tensor, gradient, create_graph)

    ag.engine.accumulate = clearing


@fault(
    "GRADSLOT_15_frozen_receives",
    clauses=["GRADSLOT-15"],
    title="operations record every operand as if it required grad",
)
def frozen_receives(ag: Any) -> None:
    record, linalg, pointwise = part(ag, "record"), part(ag, "ops.linalg"), part(ag, "ops.pointwise")
    record_two, edge_of, receives = record.record_two, record.edge_of, ag.engine.receives
    recorded = Notes()

    def edge(x: Any) -> Any:
        if not x._tracked and x._data.dtype.kind in "fc":
            recorded.add(x)
            return record.leaf_edge(x)
        return edge_of(x)

    def eager(label: str, data: Any, a: Any, b: Any, saved: Any) -> Any:
        made = record_two(label, data, a, b, (a, b) if saved else ())
        made._node.edges = edge(a), edge(b)
        return made

    record.edge_of, linalg.record_two, pointwise.record_two = edge, eager, eager
    ag.engine.receives = lambda tensor: receives(tensor) or tensor in recorded


@fault(
    "GRADSLOT_16_root_gets_its_seed",
    clauses=["GRADSLOT-16"],
    title="the slot of a non-leaf root is filled with the seed",
)
def root_gets_its_seed(ag: Any) -> None:
    backward = ag.engine.backward

    def seeding(tensors: Any, grad_tensors: Any = None, *arguments: Any, **keywords: Any) -> None:
        backward(tensors, grad_tensors, *arguments, **keywords)
        if isinstance(tensors, ag.Tensor) and tensors._node is not None and not tensors.retains_grad:
            seed = np.ones_like(tensors._data) if grad_tensors is None else grad_tensors._data
            ag.engine.accumulate(tensors, seed, create_graph=False)

    ag.engine.backward = ag.autograd.backward = seeding


@fault(
    "GRADSLOT_16_unary_results_keep",
    clauses=["GRADSLOT-16"],
    title="results of operations on one operand keep their gradient unasked",
)
def unary_results_keep(ag: Any) -> None:
    common, fill_retained = part(ag, "ops.common"), ag.engine.fill_retained
    keepers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def noting(record: Any) -> Any:
        def noted(*arguments: Any, **keywords: Any) -> Any:
            made = record(*arguments, **keywords)
            made._node.watch = made._node.watch or ag.tape.Watch()
            keepers[made._node] = weakref.ref(made)
            return made

        return noted

    def filling(run: Any, node: Any, number: int, gradient: Any) -> None:
        tensor = keepers[node]() if node in keepers else None
        if tensor is not None and run.accumulates and not tensor.retains_grad:
            run.retained.append((tensor, gradient))
        fill_retained(run, node, number, gradient)

    common.record, common.record_one = noting(common.record), noting(common.record_one)
    ag.engine.fill_retained = filling


@fault(
    "GRADSLOT_17_each_call_counts",
    clauses=["GRADSLOT-17"],
    title="each further call of retain_grad adds the gradient once more",
)
def each_call_counts(ag: Any) -> None:
    retain_grad = ag.Tensor.retain_grad

    def again(self: Any) -> None:
        known, this = self.retains_grad, weakref.ref(self)
        retain_grad(self)

        def add(gradient: Any) -> None:
            tensor = this()
            if tensor is not None:
                ag.engine.accumulate(tensor, gradient.detach()._data, create_graph=False)

        if known:
            self.register_hook(add)

    ag.Tensor.retain_grad = again


@fault(
    "GRADSLOT_18_hook_holds_the_tensor",
    clauses=["GRADSLOT-18"],
    title="what retain_grad leaves at the node holds the tensor",
    source="from the clause; upstream test_retain_grad_cycle",
)
def hook_holds_the_tensor(ag: Any) -> None:
    retain_grad = ag.Tensor.retain_grad

    def holding(self: Any) -> None:
        retain_grad(self)
        if self._node is not None:
            part(ag, "tensor").watch_of(self._node).retained[self._node.slot or 0] = lambda: self

    ag.Tensor.retain_grad = holding


@fault(
    "H18",
    clauses=["GRADSLOT-18"],
    title="a recorded node holds its own output",
    source="pytorch/pytorch#25340",
)
def node_holds_its_output(ag: Any) -> None:
    class Holding(ag.tape.Watch):  # type: ignore[misc] # of the private copy
        __slots__ = ("output",)

    def watching(made: Any) -> Any:
        node = ag.tape.node_of(made._node)
        node.watch = node.watch or Holding()
        node.watch.output = [made, getattr(node.watch, "output", None)]
        return made

    record, linalg, pointwise = part(ag, "record"), part(ag, "ops.linalg"), part(ag, "ops.pointwise")
    result_of, record_two = record.result_of, record.record_two
    record.result_of = lambda *arguments: watching(result_of(*arguments))
    linalg.record_two = pointwise.record_two = lambda *arguments: watching(record_two(*arguments))


@fault(
    "GRADSLOT_20_always_double",
    clauses=["GRADSLOT-20"],
    title="gradients are accumulated in double precision whatever the dtype of the leaf",
)
def always_double(ag: Any) -> None:
    first_grad = ag.engine.first_grad

    def widened(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        return made.to(ag.complex128 if made.is_complex() else ag.float64)

    ag.engine.first_grad = widened


@fault("GRADSLOT_22_leaf_says_true", clauses=["GRADSLOT-22"], title="retains_grad is True for a leaf that was asked")
def leaf_says_true(ag: Any) -> None:
    asked, retain_grad = ag.Tensor.retains_grad.fget, ag.Tensor.retain_grad
    leaves = Notes()

    def marking(self: Any) -> None:
        retain_grad(self)
        leaves.add(self)

    ag.Tensor.retain_grad = marking
    ag.Tensor.retains_grad = property(lambda self: asked(self) or self in leaves)


@fault("GRADSLOT_22_leaf_counts_twice", clauses=["GRADSLOT-22"], title="a leaf that retains its gradient gets it twice")
def leaf_counts_twice(ag: Any) -> None:
    retain_grad, observe = ag.Tensor.retain_grad, ag.engine.observe
    leaves = Notes()

    def marking(self: Any) -> None:
        retain_grad(self)
        if self._node is None:
            leaves.add(self)

    def twice(run: Any, node: Any, gradient: Any) -> Any:
        found = observe(run, node, gradient)
        if run.accumulates and isinstance(node, ag.tape.AccumulateGrad) and node.variable in leaves:
            run.retained.append((node.variable, found))
        return found

    ag.Tensor.retain_grad, ag.engine.observe = marking, twice
