"""Other shapes for the same elements: views, except `flip` and what `reshape` must copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import arrays
from ..errors import BadArgumentError, BadShapeError
from ..record import record, recording, wrap
from ..tape import vjp
from ..tensor import Tensor
from ..views import view_of
from .common import axes_of, axis_of, sizes_of, tensor_of


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The axes in another order."""
    x = tensor_of(input)
    rank = x._data.ndim
    places = tuple(axis_of(d, rank) for d in sizes_of(order, dims))
    if sorted(places) != list(range(rank)):
        raise BadShapeError(f"{places} is no order of the axes of a tensor of shape {x.shape}")
    return permuted("permute", x, places)


def permuted(label: str, x: Tensor, order: tuple[int, ...]) -> Tensor:
    """The recorded view with axes in a valid order."""
    return view_of(label, x, x._data.transpose(order), order, ("permute", order))


@vjp("permute", "transpose", "t")
def permute_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The inverse order."""
    inverse = [0] * len(node.attrs)
    for place, axis in enumerate(node.attrs):
        inverse[axis] = place
    return (xp.permute(g, tuple(inverse)),)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes swapped."""
    x = tensor_of(input)
    order = list(range(x._data.ndim))
    i, j = axis_of(dim0, len(order)), axis_of(dim1, len(order))
    if order:
        order[i], order[j] = j, i
    return permuted("transpose", x, tuple(order))


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix."""
    x = tensor_of(input)
    if x._data.ndim > 2:
        raise BadShapeError(f"t() takes tensors of at most 2 axes, not {x._data.ndim}; use permute")
    return permuted("t", x, tuple(range(x._data.ndim))[::-1])


def reversed_axes(input: Tensor) -> Tensor:
    """All axes in reverse order (`Tensor.T`)."""
    return permuted("permute", input, tuple(range(input._data.ndim))[::-1])


def full_shape(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with its -1 filled in."""
    holes = [i for i, n in enumerate(shape) if n == -1]
    known = math.prod(n for n in shape if n != -1)
    size = x._data.size
    if any(n < -1 for n in shape) or len(holes) > 1 or (holes and (known == 0 or size % known)):
        raise BadShapeError(f"shape {shape} is not possible for {size} elements")
    full = tuple(size // known if n == -1 else n for n in shape) if holes else shape
    if math.prod(full) != size:
        raise BadShapeError(
            f"a tensor of shape {x.shape} cannot be reshaped to {shape}: the numbers of elements differ"
        )
    return full


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The elements in row-major order in another shape: a view where strides allow it."""
    x = tensor_of(input)
    full = full_shape(x, sizes_of(sizes, shape))
    data = x._data.reshape(full)
    if x._data.flags.c_contiguous or np.may_share_memory(data, x._data):
        return view_of("view", x, data, x._data.shape, ("reshape", full))
    return record("reshape", data, (x,), (), x._data.shape) if recording(x) else wrap(data)


def view(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """`reshape` without copies.

    Raises:
        BadShapeError: if the strides do not allow it.
    """
    x = tensor_of(input)
    if len(sizes) == 1 and isinstance(sizes[0], np.dtype):
        raise BadArgumentError("view(dtype) is not offered; use to(dtype)")
    full = full_shape(x, sizes_of(sizes, size))
    data = x._data.reshape(full)
    if data.size and not np.may_share_memory(data, x._data):
        raise BadShapeError(f"strides {x.stride()} of shape {x.shape} do not allow a view as {full}; use reshape")
    return view_of("view", x, data, x._data.shape, ("reshape", full))


@vjp("view", "reshape", "squeeze", "unsqueeze")
def reshape_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The former shape."""
    return (xp.reshape(g, node.attrs),)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Some adjacent axes as one."""
    shape = tensor_of(input).shape
    first, last = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if first > last:
        raise BadShapeError("flatten() needs start_dim before end_dim")
    return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without axes of size 1, or without those named."""
    x = tensor_of(input)
    gone = axes_of(dim, x._data.ndim) if dim is None or x._data.ndim else ()
    shape = tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in gone)
    return view_of("squeeze", x, x._data.reshape(shape), x._data.shape, ("reshape", shape))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new axis of size 1."""
    x = tensor_of(input)
    place = axis_of(dim, x._data.ndim + 1)
    shape = (*x.shape[:place], 1, *x.shape[place:])
    return view_of("unsqueeze", x, x._data.reshape(shape), x._data.shape, ("reshape", shape))


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Repeated along new axes and axes of size 1, without a copy; -1 keeps a size."""
    x = tensor_of(input)
    wanted = sizes_of(sizes, size)
    extra = len(wanted) - x._data.ndim
    full = tuple(x.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(wanted))
    try:
        data = np.broadcast_to(x._data, full)
    except ValueError as error:
        raise BadShapeError(f"a tensor of shape {x.shape} does not expand to {wanted}") from error
    return view_of("expand", x, data, None, ("expand", full))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`expand` to the shape of another tensor."""
    return expand(input, tensor_of(other).shape)


@vjp("expand")
def expand_vjp(_xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The engine sums back to the former shape."""
    return (g,)


def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The order along some axes reversed; a copy."""
    x = tensor_of(input)
    places = tuple(axis_of(d, x._data.ndim) for d in sizes_of(axes, dims))
    if len(set(places)) != len(places):
        raise BadShapeError(f"flip() was given an axis twice: {places}")
    data = arrays.flip(x._data, places if x._data.ndim else ())
    return record("flip", data, (x,), (), places) if recording(x) else wrap(data)


@vjp("flip")
def flip_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The same again."""
    return (xp.flip(g, node.attrs) if node.shape else g,)


def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if it is row-major, else a copy that is."""
    x = tensor_of(input)
    if x.is_contiguous():
        return x
    data = np.ascontiguousarray(x._data)
    return record("clone", data, (x,)) if recording(x) else wrap(data)


def ravel(input: Tensor) -> Tensor:
    """All elements along one axis."""
    return reshape(input, (-1,))
