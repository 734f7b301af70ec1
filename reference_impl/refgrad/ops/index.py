"""Parts of tensors, and tensors put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import arrays
from ..errors import BadArgumentError, BadIndexError, BadShapeError, BadTypeError
from ..record import record, record_many, recording, wrap
from ..tape import vjp
from ..tensor import Tensor
from ..views import attach, view_of
from .common import axis_of, cast, operands, tensor_of
from .complexes import imag, real
from .shape import expand, permute, reshape

# --- parts at basic indices: views ----------------------------------------------------------------------------------


def part(label: str, x: Tensor, place: Any) -> Tensor:
    """The view at an index of integers, slices, None and Ellipsis."""
    try:
        data = x._data[place if isinstance(place, tuple) else (place,)]
    except IndexError as error:
        raise BadIndexError(f"index {place} does not fit a tensor of shape {x.shape}") from error
    data = arrays.take(x._data, (*place, ...)) if type(data) is not np.ndarray else data
    return view_of(label, x, data, (place, x._data.shape), ("take", place))


def take(x: Tensor, place: Any) -> Tensor:
    """`part` under the name it has in `arrays`."""
    return part("slice", x, place)


@vjp("slice", "select", "narrow")
def part_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The gradient at its place, zeros elsewhere (VALUE-57)."""
    place, shape = node.attrs
    return (xp.put(g, place, shape),)


def put(x: Tensor, place: Any, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape` with x at a basic index."""
    data = arrays.put(x._data, place, shape)
    return record("put", data, (x,), (), place) if recording(x) else wrap(data)


@vjp("put")
def put_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """What is at the place."""
    return (xp.take(g, node.attrs),)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements along an axis, from `start` on."""
    x = tensor_of(input)
    axis = axis_of(dim, x._data.ndim)
    size = x.shape[axis] if x.shape else 0
    first = start + size if start < 0 else start
    if length < 0 or not 0 <= first <= first + length <= size or not x.shape:
        raise BadShapeError(f"narrow({dim}, {start}, {length}) does not fit a tensor of shape {x.shape}")
    return part("narrow", x, (*(slice(None),) * axis, slice(first, first + length)))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The part at one place of an axis, without that axis."""
    x = tensor_of(input)
    if not x.shape:
        raise BadIndexError("select() cannot be used on a 0-d tensor")
    axis = axis_of(dim, x._data.ndim)
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise BadIndexError(f"index {index} does not exist along axis {dim} of a tensor of shape {x.shape}")
    return part("select", x, (*(slice(None),) * axis, int(index), ...))


# --- parts at arrays of indices -------------------------------------------------------------------------------------


def getitem(input: Tensor, index: Any) -> Tensor:
    """Gives input[index]: a view at a basic index, a copy at lists or tensors of indices or bools."""
    place, basic = place_of(index)
    return part("slice", input, place) if basic else take_many(input, place)


def place_of(index: Any) -> tuple[tuple[Any, ...], bool]:
    """An index as NumPy takes it, and whether it is basic."""
    items = [item_of(each) for each in (index if isinstance(index, tuple) else (index,))]
    basic = not any(isinstance(each, np.ndarray) for each in items)
    if basic and Ellipsis not in items:
        items.append(Ellipsis)  # an array comes back, never a scalar
    return tuple(items), basic


def item_of(item: Any) -> Any:
    """One part of an index."""
    if isinstance(item, Tensor):
        item = item._data
        return int(item) if item.ndim == 0 and item.dtype.kind in "iu" else index_array(item)
    if isinstance(item, list | np.ndarray):
        return index_array(np.asarray(item))
    if isinstance(item, slice) and item.step is not None and item.step <= 0:
        raise BadArgumentError("the step of a slice must be positive; use flip")
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool):
        return np.asarray(item)
    if isinstance(item, int | np.integer):
        return int(item)
    raise BadTypeError(f"a {type(item).__name__} cannot be an index")


def index_array(item: Any) -> Any:
    """A copy, so that later writes to an index change no gradient."""
    if item.size == 0 and item.dtype.kind == "f":
        return item.astype(np.int64)
    if item.dtype.kind not in "iub":
        raise BadIndexError(f"a tensor of indices is of integers or bools, not {item.dtype}")
    return item.copy()


def take_many(x: Tensor, index: Any) -> Tensor:
    """The elements at an index with arrays in it."""
    try:
        data = arrays.take_many(x._data, index)
    except IndexError as error:
        raise BadIndexError(f"the index does not fit a tensor of shape {x.shape}: {error}") from error
    return record("index", data, (x,), (), (index, x._data.shape)) if recording(x) else wrap(data)


@vjp("index", "index_select")
def index_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Elements that were read several times sum up (VALUE-33)."""
    return (xp.put_many(g, *node.attrs),)


def put_many(x: Tensor, index: Any, shape: Sequence[int]) -> Tensor:
    """Zeros of `shape` to which x is added at an index with arrays in it."""
    data = arrays.put_many(x._data, index, shape)
    return record("put_many", data, (x,), (), index) if recording(x) else wrap(data)


@vjp("put_many")
def put_many_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """What is at the index."""
    return (xp.take_many(g, node.attrs),)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The places of an axis that a vector of integers names."""
    x, places = tensor_of(input), tensor_of(index)._data
    if places.ndim > 1 or places.dtype.kind not in "iu":
        raise BadIndexError(f"index_select() takes a vector of integers, not shape {places.shape} of {places.dtype}")
    axis = axis_of(dim, x._data.ndim)
    size = x.shape[axis] if x.shape else 1
    if places.size and not (places.min() >= 0 and places.max() < size):
        raise BadIndexError(f"an index does not exist along axis {dim} of a tensor of shape {x.shape}")
    place: Any = (*(slice(None),) * axis, places.reshape(-1).copy())
    data = x._data[place] if x.shape else x._data.copy()
    if not recording(x):
        return wrap(data)
    return record("index_select", data, (x,), (), (place if x.shape else (...,), x._data.shape))


# --- writing at an index --------------------------------------------------------------------------------------------


def with_part(x: Tensor, index: Any, value: Any) -> Tensor:
    """Gives x with the value at an index (INPLACE-22)."""
    place, basic = place_of(index)
    value = cast(value, x.dtype) if isinstance(value, Tensor) else wrap(np.asarray(value, x.dtype))
    data = x._data.copy()
    try:
        spot = data[place].ndim
        while value.ndim > spot and value.shape[0] == 1:
            value = reshape(value, value.shape[1:])
        data[place] = value._data
    except IndexError as error:
        raise BadIndexError(f"the index does not fit a tensor of shape {x.shape}: {error}") from error
    except ValueError as error:
        raise BadShapeError(f"a value of shape {value.shape} does not fit at the index: {error}") from error
    return record("index_put", data, (x, value), (), (place, basic)) if recording(x, value) else wrap(data)


@vjp("index_put")
def with_part_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The former elements at the index get zeros, the value what is there."""
    place, basic = node.attrs
    return xp.zero_at(g, place), xp.take(g, place) if basic else xp.take_many(g, place)


def zero_at(x: Tensor, place: Any) -> Tensor:
    """A copy of x with zeros at an index."""
    data = arrays.zero_at(x._data, place)
    return record("zero_at", data, (x,), (), place) if recording(x) else wrap(data)


@vjp("zero_at")
def zero_at_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The same again."""
    return (xp.zero_at(g, node.attrs),)


def zero_region(x: Tensor, steps: Sequence[tuple[str, Any]]) -> Tensor:
    """A copy of x with zeros where a view of it lies."""
    data = arrays.zero_region(x._data, steps)
    return record("zero_region", data, (x,), (), steps) if recording(x) else wrap(data)


@vjp("zero_region")
def zero_region_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The same again."""
    return (xp.zero_region(g, node.attrs),)


def replay(x: Tensor, steps: Sequence[tuple[str, Any]]) -> Tensor:
    """The view of x that a chain of view operations gives, recorded step by step."""
    for name, argument in steps:
        x = VIEWS[name](x) if argument is None else VIEWS[name](x, argument)
    return x


VIEWS: dict[str, Callable[..., Tensor]] = {
    "permute": permute,
    "reshape": reshape,
    "expand": expand,
    "take": take,
    "real": real,
    "imag": imag,
}


# --- several to one, one to several ---------------------------------------------------------------------------------


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors side by side along an axis."""
    given = listed("cat", tensors)
    axis = axis_of(dim, given[0]._data.ndim)
    if not all(each.shape for each in given):
        raise BadShapeError("cat() cannot join 0-d tensors; use stack")
    try:
        data = np.concatenate([each._data for each in given], axis)
    except ValueError as error:
        raise BadShapeError(f"cat() cannot join shapes {[x.shape for x in given]} along axis {dim}") from error
    sizes = [each.shape[axis] for each in given]
    return record("cat", data, given, (), (axis, sizes)) if recording(*given) else wrap(data)


def listed(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """One or more tensors, of one dtype."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        raise BadTypeError(f"{name}() takes a sequence of tensors, not a {type(tensors).__name__}")
    if not tensors:
        raise BadArgumentError(f"{name}() needs at least one tensor")
    return operands(*[tensor_of(each) for each in tensors])


@vjp("cat")
def cat_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Each gets its part."""
    axis, sizes = node.attrs
    start, parts = 0, []
    for edge, size in zip(node.edges, sizes, strict=True):
        place = (*(slice(None),) * axis, slice(start, start + size))
        parts.append(None if edge is None else xp.take(g, place))
        start += size
    return parts


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    given = listed("stack", tensors)
    axis = axis_of(dim, given[0]._data.ndim + 1)
    if len({each.shape for each in given}) != 1:
        raise BadShapeError(f"stack() needs tensors of one shape, not {[x.shape for x in given]}")
    data = np.stack([each._data for each in given], axis)
    return record("stack", data, given, (), axis) if recording(*given) else wrap(data)


@vjp("stack")
def stack_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Each gets its part."""
    before = (slice(None),) * node.attrs
    return [None if edge is None else xp.take(g, (*before, i, ...)) for i, edge in enumerate(node.edges)]


def split(
    tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None
) -> tuple[Tensor, ...]:
    """Pieces of a given size (the last may be smaller), or of given sizes, along an axis: views."""
    x = tensor_of(tensor)
    wanted = split_size_or_sections if split_size is None else split_size
    if not x.shape:
        raise BadShapeError("split() needs a tensor with at least one axis")
    axis = axis_of(dim, x._data.ndim)
    total = x.shape[axis]
    if isinstance(wanted, int | np.integer):
        if wanted < 1:
            raise BadArgumentError(f"split() needs a size of at least 1, not {wanted}")
        sizes = [min(int(wanted), total - at) for at in range(0, total, int(wanted))] or [0]
    else:
        sizes = [int(n) for n in wanted]
        if sum(sizes) != total or any(n < 0 for n in sizes):
            raise BadShapeError(f"sizes {sizes} do not add up to the {total} elements along axis {dim}")
    places, start = [], 0
    for size in sizes:
        places.append((*(slice(None),) * axis, slice(start, start + size)))
        start += size
    return pieces("split", x, places, axis)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts at each place of an axis, without that axis: views."""
    x = tensor_of(input)
    if not x.shape:
        raise BadShapeError("unbind() needs a tensor with at least one axis")
    axis = axis_of(dim, x._data.ndim)
    return pieces("unbind", x, [(*(slice(None),) * axis, i, ...) for i in range(x.shape[axis])], axis)


def pieces(label: str, x: Tensor, places: Sequence[Any], axis: int) -> tuple[Tensor, ...]:
    """Several views of one tensor, by one node."""
    cut = [arrays.take(x._data, place) for place in places]
    made = record_many(label, cut, x, axis) if recording(x) else tuple(wrap(each) for each in cut)
    for each, place in zip(made, places, strict=True):
        attach(each, x, ("take", place))
    return made


@vjp("split")
def split_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The pieces joined; unused ones count as zeros (BACKWARD-48)."""
    return (xp.cat(all_parts(xp, node, g), node.attrs),)


@vjp("unbind")
def unbind_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The parts stacked; unused ones count as zeros (BACKWARD-48)."""
    return (xp.stack(all_parts(xp, node, g), node.attrs),)


def all_parts(xp: Any, node: Any, g: Any) -> list[Any]:
    """The gradients of all outputs, zeros for those that nobody used."""
    return [xp.blank(node.shape[i], node.dtype) if part is None else part for i, part in enumerate(g)]


def blank(shape: Sequence[int], dtype: Any) -> Tensor:
    """Zeros, untracked."""
    return wrap(np.zeros(shape, dtype))
