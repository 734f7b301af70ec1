"""Sums, means and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import arrays
from ..dtypes import int64
from ..errors import BadArgumentError
from ..quiet import hush, restore
from ..record import record, recording, wrap
from ..tape import vjp
from ..tensor import Tensor
from .common import axes_of, axis_of, cast, tensor_of


def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over some axes, over all by default. Integers and booleans are summed as int64."""
    x = tensor_of(input)
    if dtype is not None:
        x = cast(x, dtype)
    elif x._data.dtype.kind in "biu":
        x = cast(x, int64)
    return sum_axes(x, axes_of(dim, x._data.ndim), keepdim)


def sum_axes(x: Tensor, axes: tuple[int, ...], keepdim: bool = False) -> Tensor:
    """The sum over given axes."""
    token = hush()
    try:
        data = arrays.sum_axes(x._data, axes, keepdim)
    finally:
        restore(token)
    return record("sum", data, (x,), (), (x._data.shape, axes, keepdim)) if recording(x) else wrap(data)


@vjp("sum")
def sum_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Every summand gets the gradient (VALUE-36)."""
    return (spread(xp, g, *node.attrs),)


def spread(xp: Any, g: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced gradient repeated along the axes of the reduction."""
    if not keepdim:
        g = xp.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))
    return xp.expand(g, shape)


def sum_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The sum over the axes along which `shape` was broadcast to that of x."""
    data = arrays.sum_to(x._data, shape)
    return record("sum_to", data, (x,), (), x._data.shape) if recording(x) else wrap(data)


@vjp("sum_to")
def sum_to_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Broadcast again."""
    return (xp.expand(g, node.attrs),)


def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over some axes, over all by default."""
    x = tensor_of(input) if dtype is None else cast(input, dtype)
    if x._data.dtype.kind not in "fc":
        raise BadArgumentError(f"mean() needs a floating-point or complex tensor, not {x.dtype}; convert it first")
    axes = axes_of(dim, x._data.ndim)
    count = int(np.prod([x._data.shape[i] for i in axes], dtype=np.int64))
    token = hush()
    try:
        data = np.asarray(arrays.sum_axes(x._data, axes, keepdim)) / x._data.dtype.type(count)
    finally:
        restore(token)
    return record("mean", data, (x,), (), (x._data.shape, axes, keepdim, count)) if recording(x) else wrap(data)


@vjp("mean")
def mean_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Every element gets its share."""
    shape, axes, keepdim, count = node.attrs
    if count == 0:
        return (
            xp.expand(xp.zeros_of(xp.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))), shape),
        )
    return (spread(xp, g / count, shape, axes, keepdim),)


def cumsum(input: Tensor, dim: int) -> Tensor:
    """Running sums along an axis."""
    x = tensor_of(input)
    if x._data.dtype.kind in "biu":
        x = cast(x, int64)
    axis = axis_of(dim, x._data.ndim)
    token = hush()
    try:
        data = arrays.cumsum(x._data, axis) if x._data.ndim else x._data.copy()
    finally:
        restore(token)
    return record("cumsum", data, (x,), (), axis) if recording(x) else wrap(data)


@vjp("cumsum")
def cumsum_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Running sums from the other end."""
    if not node.shape:
        return (g,)
    dims = (node.attrs,)
    return (xp.flip(xp.cumsum(xp.flip(g, dims), node.attrs), dims),)
