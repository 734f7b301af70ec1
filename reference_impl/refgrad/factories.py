"""Tensors out of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays, dtypes, ops
from .errors import BadArgumentError, BadShapeError, BadTypeError
from .quiet import hush, restore
from .record import wrap
from .tensor import Tensor, alias, check_differentiable


def finished(data: NDArray[Any], requires_grad: bool, device: Any = None) -> Tensor:
    """A leaf over new memory (LEAF-01, LEAF-02)."""
    if device is not None and not str(device).startswith("cpu"):
        raise BadArgumentError(f"refgrad has tensors on the CPU only, not on {device}")
    if requires_grad:
        check_differentiable(data.dtype)
    made = wrap(data)
    made._tracked = bool(requires_grad)
    return made


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf with a copy of the data.

    Args:
        data: a number, nested sequences of numbers, an ndarray or a tensor (whose history is not taken, LEAF-24).
        dtype: by default that of the data; Python floats give float32, integers int64.
        device: must name the CPU if given.
        requires_grad: whether gradients are computed for it.

    Raises:
        NotDifferentiableError: for a tracked tensor of integers or booleans.
        BadArgumentError: if the sequences are ragged.
    """
    return finished(np.array(array_of(data, dtype), order="K"), requires_grad, device)


def array_of(data: Any, dtype: Any) -> NDArray[Any]:
    """The data as an ndarray of a dtype that refgrad has."""
    given = isinstance(data, Tensor | np.ndarray | np.generic)
    made = np.asarray(data._data if isinstance(data, Tensor) else data) if given else from_sequences(data)
    if made.dtype.kind not in "biufc":
        raise BadTypeError(f"a tensor holds numbers or booleans, not {made.dtype}")
    wanted = np.dtype(dtype) if dtype is not None else made.dtype if given else default_dtype(made.dtype)
    token = hush()
    try:
        return arrays.cast(made, wanted) if made.dtype != wanted else made
    finally:
        restore(token)


def from_sequences(data: Any) -> NDArray[Any]:
    """Nested sequences of Python numbers."""
    try:
        return np.asarray(plain(data))
    except ValueError as error:
        raise BadArgumentError("the nested sequences have different lengths; make them rectangular") from error


def default_dtype(found: Any) -> Any:
    """The dtype for Python numbers: float32, complex64, int64 or bool (LEAF-01)."""
    return {"f": dtypes.float32, "c": dtypes.complex64, "b": dtypes.bool_}.get(found.kind, dtypes.int64)


def plain(data: Any) -> Any:
    """Sequences with their tensors replaced by numbers."""
    if isinstance(data, Tensor):
        return data.tolist()
    return [plain(each) for each in data] if isinstance(data, list | tuple) else data


def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """A tensor over the data, copied only where needed; a tensor keeps its history (LEAF-27)."""
    if isinstance(data, Tensor):
        return data if dtype is None else ops.cast(data, dtype)
    return alias(array_of(data, dtype))


def from_numpy(ndarray: NDArray[Any]) -> Tensor:
    """A tensor over the memory of an ndarray."""
    if not isinstance(ndarray, np.ndarray):
        raise BadTypeError(f"from_numpy() takes an ndarray, not {type(ndarray).__name__}")
    return alias(ndarray)


def sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    found = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int | np.integer) else given
    if any(n < 0 for n in found):
        raise BadShapeError(f"a tensor cannot have shape {found}")
    return tuple(int(n) for n in found)


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros; float32 by default."""
    return finished(np.zeros(sizes(size), dtype or dtypes.float32), requires_grad, device)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones; float32 by default."""
    return finished(np.ones(sizes(size), dtype or dtypes.float32), requires_grad, device)


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Memory as it is found; float32 by default."""
    return finished(np.empty(sizes(size), dtype or dtypes.float32), requires_grad, device)


def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """One number everywhere; the dtype is that of the number by default."""
    return finished(np.full(sizes((size,)), fill_value, dtype or dtypes.scalar_dtype(fill_value)), requires_grad)


def zeros_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros in the shape, layout and dtype of a tensor."""
    return finished(np.zeros_like(input._data, dtype=dtype), requires_grad)


def ones_like(input: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones in the shape, layout and dtype of a tensor."""
    return finished(np.ones_like(input._data, dtype=dtype), requires_grad)


def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """One number in the shape, layout and dtype of a tensor."""
    return finished(np.full_like(input._data, fill_value, dtype=dtype), requires_grad)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Evenly spaced numbers from start (0 by default) to below end; int64 for integers, else float32."""
    first, last = (0, start) if end is None else (start, end)
    if dtype is None:
        dtype = dtypes.int64 if all(isinstance(n, int) for n in (first, last, step)) else dtypes.float32
    return finished(np.arange(first, last, step, dtype=dtype), requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal."""
    return finished(np.eye(n, m, dtype=dtype or dtypes.float32), requires_grad)


_generator = np.random.default_rng()


def manual_seed(seed: int) -> None:
    """Starts the random numbers of `randn` and `rand` again."""
    _generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state


def randn(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Standard normal numbers; float32 by default."""
    return finished(np.asarray(_generator.standard_normal(sizes(size)), dtype or dtypes.float32), requires_grad)


def rand(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers evenly distributed over [0, 1); float32 by default."""
    return finished(np.asarray(_generator.random(sizes(size)), dtype or dtypes.float32), requires_grad)


def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return input.shape == other.shape and bool(np.array_equal(input._data, other._data))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are equal within atol + rtol * |other|."""
    return bool(np.allclose(input._data, other._data, rtol=rtol, atol=atol, equal_nan=equal_nan))
