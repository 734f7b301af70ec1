"""What operations share: operands of one dtype, axes, and errors instead of NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import arrays
from ..dtypes import float32, result_dtype
from ..errors import BadIndexError, BadShapeError, BadTypeError
from ..modes import state
from ..quiet import hush, restore
from ..record import record, record_one, wrap
from ..tape import vjp
from ..tensor import Tensor


def tensor_of(x: Any) -> Tensor:
    """The operand, which must be a tensor."""
    if not isinstance(x, Tensor):
        raise BadTypeError(f"this operand must be a tensor, not {type(x).__name__}")
    return x


def operands(*given: Any) -> list[Any]:
    """Tensors of one dtype out of tensors and numbers; a number takes the dtype of the tensors (VALUE-43)."""
    dtype = result_dtype(given)
    return [cast(x, dtype) if isinstance(x, Tensor) else wrap(np.asarray(x, dtype)) for x in given]


def floating(x: Any) -> Tensor:
    """The operand, converted where it holds integers."""
    return cast(x, float32) if tensor_of(x)._data.dtype.kind not in "fc" else x


def cast(x: Tensor, dtype: Any) -> Tensor:
    """Gives x in another dtype, x itself if it has it already (LEAF-12, VALUE-44)."""
    dtype = np.dtype(dtype)
    if tensor_of(x)._data.dtype == dtype:
        return x
    token = hush()
    try:
        data = arrays.cast(x._data, dtype)
    finally:
        restore(token)
    if x._tracked and state.recording and dtype.kind in "fc":
        return record("cast", data, (x,))
    return wrap(data)


@vjp("cast")
def cast_vjp(_xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The engine casts back."""
    return (g,)


def unary(
    label: str, x: Tensor, kernel: Callable[[Any], Any], *, keep_input: bool = False, keep_output: bool = False
) -> Tensor:
    """An operation on each element."""
    token = hush()
    try:
        data = kernel(x._data)
    finally:
        restore(token)
    if x._tracked and state.recording:
        return record_one(label, data, x, keep_input=keep_input, keep_output=keep_output)
    return wrap(data)


def axis_of(dim: int, rank: int) -> int:
    """The axis, counted from the front; a 0-d tensor may be asked for axis 0 or -1."""
    span = max(rank, 1)
    if not isinstance(dim, int | np.integer):
        raise BadTypeError(f"an axis is an integer, not {type(dim).__name__}")
    if not -span <= dim < span:
        raise BadIndexError(f"axis {dim} does not exist in a tensor of {rank} axes; use {-span} to {span - 1}")
    return int(dim) % span


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """Axes to reduce over: all for None or an empty list."""
    if dim is None or (not isinstance(dim, int | np.integer) and len(dim) == 0):
        return tuple(range(rank))
    named: Sequence[int] = (int(dim),) if isinstance(dim, int | np.integer) else dim
    found = tuple(axis_of(d, rank) for d in named)
    if len(set(found)) != len(found):
        raise BadShapeError(f"an axis is named twice in {dim}")
    return found if rank else ()


def sizes_of(given: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """Sizes or axes given one by one, as one sequence, or by keyword."""
    if named is not None:
        given = (named,)
    if len(given) == 1 and not isinstance(given[0], int | np.integer):
        given = tuple(given[0])
    return tuple(int(n) for n in given)


def mismatch(name: str, a: Any, b: Any, reason: Exception) -> BadShapeError:
    """The error for operands whose shapes do not go together."""
    error = BadShapeError(f"{name}: shapes {a.shape} and {b.shape} do not go together; reshape one of the operands")
    error.__cause__ = reason
    return error
