# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of the slot `.grad`: when it is empty, what can be put into it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradspec.faults.copying import Notes, part
from gradspec.faults.registry import fault


def slot(tensor: Any, read: Any, write: Any) -> None:
    """Give the class of tensors another `.grad`."""
    tensor.grad = property(read or tensor.grad.fget, write or tensor.grad.fset, tensor.grad.fdel)


def refusing(ag: Any, kept: Any) -> None:
    """Let the check of an assigned gradient pass over what `kept` does not refuse."""
    part(ag, "tensor").check_grad = kept


# --- an empty slot ------------------------------------------------------------------------------------------------


@fault("GRADSLOT_01_starts_as_zeros", clauses=["GRADSLOT-01"], title="a new leaf gets a slot full of zeros")
def starts_as_zeros(ag: Any) -> None:
    factories = part(ag, "factories")
    finished = factories.finished

    def zeroed(*arguments: Any, **keywords: Any) -> Any:
        made = finished(*arguments, **keywords)
        if made.requires_grad:
            made._rare().grad = part(ag, "tensor").alias(np.zeros_like(made._data))
        return made

    factories.finished = zeroed


@fault(
    "GRADSLOT_01_forward_fills",
    clauses=["GRADSLOT-01"],
    title="recording the first operation on a leaf allocates its gradient as zeros",
)
def forward_fills(ag: Any) -> None:
    def prepared(leaf: Any) -> Any:
        edge = leaf_edge(leaf)
        if leaf._tracked and leaf._meta.grad is None:
            leaf._meta.grad = part(ag, "tensor").alias(np.zeros_like(leaf._data))
        return edge

    leaf_edge = ag.tape.leaf_edge
    ag.tape.leaf_edge = part(ag, "record").leaf_edge = prepared


# --- assignment ---------------------------------------------------------------------------------------------------


@fault("GRADSLOT_02_any_shape", clauses=["GRADSLOT-02"], title="the shape of an assigned gradient is not checked")
def any_shape(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        if not isinstance(value, ag.Tensor) or value.shape == tensor.shape or value.dtype != tensor.dtype:
            check(tensor, value)

    refusing(ag, lenient)


@fault(
    "GRADSLOT_02_broadcasts",
    clauses=["GRADSLOT-02"],
    title="an assigned gradient that broadcasts to the owner's shape is accepted",
)
def broadcasts(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        try:
            check(tensor, value)
        except ag.errors.BadGradShapeError:
            try:
                np.broadcast_to(value._data, tensor.shape)
            except ValueError:
                raise ag.errors.BadGradShapeError("shapes do not broadcast") from None

    refusing(ag, lenient)


@fault(
    "GRADSLOT_02_same_size",
    clauses=["GRADSLOT-02"],
    title="numbers of elements are compared, not shapes, when a gradient is assigned",
)
def same_size(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        try:
            check(tensor, value)
        except ag.errors.BadGradShapeError:
            if value._data.size != tensor._data.size:
                raise

    refusing(ag, lenient)


@fault(
    "GRADSLOT_02_refusal_empties",
    clauses=["GRADSLOT-02"],
    title="the slot is emptied before the shape of the new gradient is found to be wrong",
)
def refusal_empties(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        try:
            write(self, value)
        except ag.errors.BadGradShapeError:
            self._rare().grad = None
            raise

    slot(ag.Tensor, None, assign)


@fault("GRADSLOT_03_any_dtype", clauses=["GRADSLOT-03"], title="the dtype of an assigned gradient is not checked")
def any_dtype(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        try:
            check(tensor, value)
        except ag.errors.BadGradDtypeError:
            return

    refusing(ag, lenient)


@fault(
    "GRADSLOT_03_converts",
    clauses=["GRADSLOT-03"],
    title="an assigned gradient of another dtype is converted without a word",
)
def converts(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        if isinstance(value, ag.Tensor) and value.dtype != self.dtype and value.shape == self.shape:
            value = value.detach().to(self.dtype)
        write(self, value)

    slot(ag.Tensor, None, assign)


@fault("GRADSLOT_04_none_is_ignored", clauses=["GRADSLOT-04"], title="assigning None to .grad does nothing")
def none_is_ignored(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        if value is not None:
            write(self, value)

    slot(ag.Tensor, None, assign)


@fault("GRADSLOT_04_none_means_zeros", clauses=["GRADSLOT-04"], title="assigning None to .grad fills it with zeros")
def none_means_zeros(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        write(self, ag.zeros_like(self) if value is None else value)

    slot(ag.Tensor, None, assign)


@fault(
    "GRADSLOT_04_none_hides",
    clauses=["GRADSLOT-04"],
    title="None only hides the old gradient: the next backward adds to it",
)
def none_hides(ag: Any) -> None:
    hidden = Notes()
    write, first_grad = ag.Tensor.grad.fset, ag.engine.first_grad

    def assign(self: Any, value: Any) -> None:
        if value is None and self._rare().grad is not None:
            hidden[self] = self._meta.grad._data.copy()
        write(self, value)

    def first(tensor: Any, gradient: Any, create_graph: bool) -> Any:
        made = first_grad(tensor, gradient, create_graph)
        if tensor in hidden:
            made._data += hidden.pop(tensor)
        return made

    slot(ag.Tensor, None, assign)
    ag.engine.first_grad = first


@fault(
    "GRADSLOT_06_next_pass_overwrites",
    clauses=["GRADSLOT-06"],
    title="the next backward overwrites a gradient that was assigned",
)
def next_pass_overwrites(ag: Any) -> None:
    assigned = Notes()
    write, accumulate = ag.Tensor.grad.fset, ag.engine.accumulate

    def assign(self: Any, value: Any) -> None:
        write(self, value)
        assigned.add(self)

    def fresh(tensor: Any, gradient: Any, create_graph: bool) -> None:
        if tensor in assigned and tensor._tracked:
            assigned.pop(tensor)
            tensor._rare().grad = None
        accumulate(tensor, gradient, create_graph)

    slot(ag.Tensor, None, assign)
    ag.engine.accumulate = fresh


@fault(
    "GRADSLOT_06_assignment_adds",
    clauses=["GRADSLOT-06"],
    title="assigning to a slot that is filled adds to it",
)
def assignment_adds(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        old = self._rare().grad
        write(self, value)
        if old is not None and value is not None:
            self._meta.grad = (old + value).detach()

    slot(ag.Tensor, None, assign)


@fault(
    "GRADSLOT_07_drops_the_value",
    clauses=["GRADSLOT-07"],
    title="assigning .grad of a tensor that does not require grad is accepted and forgotten",
)
def drops_the_value(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        if self._tracked:
            write(self, value)
        else:
            part(ag, "tensor").check_grad(self, value)

    slot(ag.Tensor, None, assign)


@fault(
    "GRADSLOT_21_takes_numbers",
    clauses=["GRADSLOT-21"],
    title="a number or a nested list that is assigned to .grad is made a tensor",
)
def takes_numbers(ag: Any) -> None:
    write = ag.Tensor.grad.fset

    def assign(self: Any, value: Any) -> None:
        if isinstance(value, int | float | list):
            value = part(ag, "tensor").alias(np.array(np.broadcast_to(np.asarray(value, self.dtype), self.shape)))
        write(self, value)

    slot(ag.Tensor, None, assign)


@fault(
    "GRADSLOT_21_stores_anything",
    clauses=["GRADSLOT-21"],
    title="what is assigned to .grad is only checked if it is a tensor",
)
def stores_anything(ag: Any) -> None:
    check = part(ag, "tensor").check_grad

    def lenient(tensor: Any, value: Any) -> None:
        if isinstance(value, ag.Tensor):
            check(tensor, value)

    refusing(ag, lenient)
