# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of gradient edges, and of the dtype that a slot must have."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradspec.faults.copying import part
from gradspec.faults.registry import fault

# --- edges --------------------------------------------------------------------------------------------------------


def roots(ag: Any, edges: Any) -> None:
    """Let `edges(root, edge)` say where a root that is a gradient edge leads to, given what is right."""
    root_edge = ag.engine.root_edge

    def leading(root: Any) -> Any:
        edge = root_edge(root)
        return edges(root, edge) if isinstance(root, ag.tape.GradientEdge) else edge

    ag.engine.root_edge = leading


@fault(
    "BACKWARD_35_first_output",
    clauses=["BACKWARD-35"],
    title="an edge as root always means the first output of its node",
)
def first_output(ag: Any) -> None:
    def first(root: Any, edge: Any) -> Any:
        shape = edge.shape
        edge = edge if edge.slot is None else ag.tape.edge_to(root._replace(output_nr=0))
        return edge if edge.shape == shape else ag.tape.edge_to(root)

    roots(ag, first)


@fault(
    "BACKWARD_35_seed_ignored",
    clauses=["BACKWARD-35"],
    title="the seed of an edge is not used, its pass starts with ones",
)
def seed_ignored(ag: Any) -> None:
    backward, seed_of = ag.engine.backward, ag.engine.seed_of
    named: list[Any] = []

    def noting(tensors: Any, *arguments: Any, **keywords: Any) -> None:
        each = tensors if isinstance(tensors, list) else [tensors]
        named[:] = [isinstance(root, ag.tape.GradientEdge) for root in each]
        backward(tensors, *arguments, **keywords)
        named.clear()

    def starting(edge: Any, seed: Any) -> Any:
        found = seed_of(edge, seed)
        if named and named.pop(0):
            return part(ag, "record").wrap(np.ones(edge.shape, edge.dtype))
        return found

    ag.engine.backward = ag.autograd.backward = noting
    ag.engine.seed_of = starting


@fault(
    "BACKWARD_35_leaf_is_no_root",
    clauses=["BACKWARD-35"],
    title="nothing is accumulated into a leaf whose own edge is the root",
)
def leaf_is_no_root(ag: Any) -> None:
    walk = ag.engine.walk

    def inner(run: Any, edges: Any, seeds: Any) -> None:
        found = [(e, s) for e, s in zip(edges, seeds, strict=True) if not (id(e) in leaves and e.order > 0)]
        leaves.clear()
        walk(run, [e for e, _ in found], [s for _, s in found])

    def noting(_root: Any, edge: Any) -> Any:
        leaves.add(id(edge))
        return edge

    leaves: set[int] = set()
    roots(ag, noting)
    ag.engine.walk = inner


# --- the dtype of a slot ------------------------------------------------------------------------------------------


@fault(
    "GRADSLOT_19_not_cast",
    clauses=["GRADSLOT-19"],
    title="grad_dtype is only a rule for assignments: a backward fills the slot in the leaf's own dtype",
)
def not_cast(ag: Any) -> None:
    first_grad = ag.engine.first_grad

    def own(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        return made if part(ag, "slots").slot_dtype(tensor) is None else made.to(tensor.dtype)

    ag.engine.first_grad = own


@fault(
    "GRADSLOT_19_new_graphs_only",
    clauses=["GRADSLOT-19"],
    title="a graph that was recorded before grad_dtype was set goes on casting to the old one",
)
def new_graphs_only(ag: Any) -> None:
    def setting(leaf: Any, dtype: Any) -> None:
        meta = leaf._rare()
        meta.grad_dtype, meta.any_dtype = dtype, dtype is None

    part(ag, "tensor").set_slot_dtype = setting


@fault(
    "GRADSLOT_19_sums_in_the_leaf_s_dtype",
    clauses=["GRADSLOT-19"],
    title="a slot of a wider dtype is added to in the leaf's dtype",
)
def sums_in_the_leaf_s_dtype(ag: Any) -> None:
    accumulate = ag.engine.accumulate

    def rounding(tensor: Any, gradient: Any, create_graph: bool) -> None:
        meta = tensor._meta
        filled = meta is not None and meta.grad is not None and meta.grad_dtype is not None
        accumulate(tensor, gradient, create_graph)
        if filled and not create_graph:
            meta.grad._data[...] = meta.grad._data.astype(tensor._data.dtype)

    ag.engine.accumulate = rounding


@fault(
    "GRADSLOT_19_not_enforced",
    clauses=["GRADSLOT-19"],
    title="once grad_dtype is set, a gradient of any dtype can be assigned",
)
def not_enforced(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        try:
            check(tensor, value)
        except ag.errors.BadGradDtypeError:
            if tensor._meta is None or tensor._meta.grad_dtype is None:
                raise

    part(ag, "tensor").check_grad = lenient


@fault(
    "GRADSLOT_19_own_dtype_is_taken",
    clauses=["GRADSLOT-19"],
    title="an assigned gradient may always have the leaf's own dtype, whatever grad_dtype says",
)
def own_dtype_is_taken(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        try:
            check(tensor, value)
        except ag.errors.BadGradDtypeError:
            if value.dtype != tensor.dtype:
                raise

    part(ag, "tensor").check_grad = lenient


def dtype_rule(ag: Any, read: Any, write: Any) -> None:
    """Give the class of tensors another `grad_dtype`."""
    known = ag.Tensor.grad_dtype
    ag.Tensor.grad_dtype = property(read or known.fget, write or known.fset)


@fault(
    "GRADSLOT_23_none_is_the_default",
    clauses=["GRADSLOT-23"],
    title="setting grad_dtype to None puts the leaf's own dtype back",
)
def none_is_the_default(ag: Any) -> None:
    write = ag.Tensor.grad_dtype.fset
    dtype_rule(ag, None, lambda self, dtype: write(self, self.dtype if dtype is None else dtype))


@fault(
    "GRADSLOT_23_still_enforced",
    clauses=["GRADSLOT-23"],
    title="with grad_dtype None only a gradient of the leaf's own dtype can be assigned",
)
def still_enforced(ag: Any) -> None:
    slot_dtype = part(ag, "tensor").slot_dtype

    def strict(tensor: Any) -> Any:
        found = slot_dtype(tensor)
        return tensor._data.dtype if found is None else found

    read = ag.Tensor.grad_dtype.fget
    free = property(lambda self: None if self._meta is not None and self._meta.any_dtype else read(self))
    part(ag, "tensor").slot_dtype = strict
    dtype_rule(ag, free.fget, None)


@fault(
    "GRADSLOT_23_converts",
    clauses=["GRADSLOT-23"],
    title="with grad_dtype None what is assigned is converted to the leaf's dtype",
)
def converts_what_is_free(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        free = isinstance(value, ag.Tensor) and self._meta is not None and self._meta.any_dtype
        write(self, value.detach().to(self.dtype) if free and value.dtype != self.dtype else value)

    ag.Tensor.grad = property(ag.Tensor.grad.fget, assign, ag.Tensor.grad.fdel)


@fault(
    "GRADSLOT_24_forgotten",
    clauses=["GRADSLOT-24"],
    title="grad_dtype of a non-leaf can be set, and is forgotten",
)
def forgotten(ag: Any) -> None:
    write = ag.Tensor.grad_dtype.fset

    def assign(self: Any, dtype: Any) -> None:
        if self._node is None:
            write(self, dtype)

    part(ag, "tensor").check_leaf = lambda _tensor: None
    dtype_rule(ag, None, assign)


@fault(
    "GRADSLOT_24_reads_none",
    clauses=["GRADSLOT-24"],
    title="grad_dtype of a non-leaf reads None, as if any dtype were allowed",
)
def reads_none(ag: Any) -> None:
    read = ag.Tensor.grad_dtype.fget
    dtype_rule(ag, lambda self: read(self) if self._node is None else None, None)
