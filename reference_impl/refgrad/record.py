"""Turns the ndarray that an operation computed into a tensor, recorded or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .modes import state
from .tape import (
    AccumulateGrad,
    Node,
    SavedOutput,
    Slot,
    check_version,
    edge_of,
    leaf_edge,
    next_order,
    saved_by,
    versions_of,
)
from .tensor import Tensor, alias

_tensor = Tensor.__new__
_node = Node.__new__
ndarray = np.ndarray


def wrap(data: Any) -> Tensor:
    """An untracked tensor over what NumPy returned (which makes scalars of 0-d results)."""
    made = _tensor(Tensor)
    made._data = data if type(data) is ndarray else np.asarray(data)
    made._node = made._counter = made._meta = None
    made._tracked = False
    return made


def recording(*inputs: Any) -> bool:
    """Whether an operation on these is to be recorded (LEAF-07)."""
    if state.recording:
        for each in inputs:
            if each._tracked:
                return True
    return False


def result_of(node: Node, data: Any, counter: list[int] | None = None) -> Tensor:
    """The tensor that `node` made."""
    made = _tensor(Tensor)
    made._data = data
    made._node = node
    made._tracked = True
    made._counter = counter
    made._meta = None
    return made


def new_node(label: str, data: Any, edges: tuple[Any, ...], saved: tuple[Any, ...], attrs: Any) -> Node:
    """A node whose only output is `data`."""
    node = _node(Node)
    node.order = next_order()
    node.label = label
    node.edges = edges
    node.saved = saved
    node.versions = versions_of(saved) if saved else None
    node.attrs = attrs
    node.shape = data.shape
    node.dtype = data.dtype
    node.watch = None
    return node


def record(
    label: str,
    data: Any,
    inputs: Sequence[Any],
    saved: tuple[Any, ...] = (),
    attrs: Any = None,
    *,
    output: bool = False,
) -> Tensor:
    """The recorded result of an operation.

    Args:
        label: name of its rule in `tape.VJP`.
        data: what it computed.
        inputs: its operands, in the order of the gradients that the rule returns.
        saved: the values the rule needs: None or an operand, in the places of `inputs`, then others.
        attrs: what else the rule needs.
        output: the rule needs the result too: it is appended to `saved`.
    """
    if type(data) is not ndarray:
        data = np.asarray(data)
    counter = None
    node = new_node(label, data, tuple([edge_of(each) for each in inputs]), saved, attrs)
    if output:
        counter = [0]
        node.saved = (*saved, *[None] * (len(inputs) - len(saved)), SavedOutput(data, counter))
        if node.versions is not None:
            node.versions = versions_of(node.saved)
    return result_of(node, data, counter)


def record_one(label: str, data: Any, x: Tensor, *, keep_input: bool, keep_output: bool) -> Tensor:
    """`record` for one operand, with what its rule needs: frequent, hence spelled out."""
    if type(data) is not ndarray:
        data = np.asarray(data)
    node = _node(Node)
    node.order = next_order()
    node.label = label
    node.edges = (x._node or leaf_edge(x),)
    node.saved = (x,) if keep_input else ()
    node.versions = node.attrs = node.watch = None
    counter = None
    if keep_output:
        counter = [0]
        node.saved = (x if keep_input else None, SavedOutput(data, counter))
    if keep_input and x._counter is not None:
        node.versions = versions_of(node.saved)
    node.shape = data.shape
    node.dtype = data.dtype
    return result_of(node, data, counter)


def record_two(label: str, data: Any, a: Tensor, b: Tensor, saved: tuple[Any, ...]) -> Tensor:
    """`record` for two operands, none or both of them in `saved`: the most frequent case, hence spelled out."""
    if type(data) is not ndarray:
        data = np.asarray(data)
    node = _node(Node)
    node.order = next_order()
    node.label = label
    node.edges = (
        (a._node or leaf_edge(a)) if a._tracked else None,
        (b._node or leaf_edge(b)) if b._tracked else None,
    )
    node.saved = saved
    node.versions = node.attrs = node.watch = None
    if saved and (a._counter is not None or b._counter is not None):
        node.versions = versions_of(saved)
    node.shape = data.shape
    node.dtype = data.dtype
    made = _tensor(Tensor)
    made._data = data
    made._node = node
    made._tracked = True
    made._counter = made._meta = None
    return made


def record_many(label: str, arrays: Sequence[Any], source: Tensor, attrs: Any) -> tuple[Tensor, ...]:
    """The results of an operation with several outputs, of one operand of which nothing is saved."""
    node = new_node(label, source._data, (edge_of(source),), (), attrs)
    node.shape = [each.shape for each in arrays]
    made = []
    for number, data in enumerate(arrays):
        made.append(result_of(node, data))
        made[-1]._node = Slot(node, number, data.shape, data.dtype)
    return tuple(made)


def saved_tensors(node: Node) -> list[Any]:
    """The saved values as tensors that have the history they had when they were saved."""
    values: list[Any] = []
    for position, value in enumerate(saved_by(node)):
        if value is not None and value._counter is not None:
            check_version(node, position, value)
        if value is None:
            values.append(None)
        elif type(value) is SavedOutput:
            values.append(result_of(node, value._data, value._counter))
        elif position < len(node.edges):
            values.append(as_recorded(value, node.edges[position]))
        else:
            values.append(value)
    return values


def as_recorded(value: Tensor, edge: Any) -> Tensor:
    """The operand itself, or an alias where its history has changed since (LEAF-25, `detach_`)."""
    if edge is None:
        return value.detach() if value._tracked else value
    if edge is value._node or (type(edge) is AccumulateGrad and edge.variable is value and value._node is None):
        return value
    old = alias(value._data, value._counter)
    old._node, old._tracked = edge, True
    return old
