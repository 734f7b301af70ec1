"""The operations that derivatives are made of, on plain ndarrays.

A rule of `tape.VJP` computes with the functions of this module when nothing is to be recorded, and with those of the
same name in `ops` when it is: the two sets take the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

abs, log, sin, cos, sign = np.absolute, np.log, np.sin, np.cos, np.sign
matmul, reshape, stack = np.matmul, np.reshape, np.stack
permute = np.transpose
cat = np.concatenate


def conj(x: Any) -> Any:
    """The complex conjugate; a real array itself."""
    return x.conj() if x.dtype.kind == "c" else x


def real(x: Any) -> Any:
    """The real part."""
    return x.real


def imag(x: Any) -> Any:
    """The imaginary part; zeros of a real array."""
    return x.imag


def complex(real: Any, imag: Any) -> Any:
    """Real and imaginary parts to complex numbers."""
    real = np.asarray(real)
    made = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    made.real, made.imag = real, imag
    return made


def cast(x: Any, dtype: Any) -> Any:
    """Another dtype; of a complex array the real part where a real one is wanted."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    return x.astype(dtype)


def power(x: Any, exponent: Any) -> Any:
    """Gives x to the power of a number, in the dtype of x."""
    return np.power(x, np.asarray(exponent, x.dtype))


def masked(mask: Any, x: Any) -> Any:
    """Gives x where the mask holds, exact zeros elsewhere."""
    return np.where(mask, x, x.dtype.type(0))


def unmasked(mask: Any, x: Any) -> Any:
    """Gives x where the mask does not hold, exact zeros elsewhere."""
    return np.where(mask, x.dtype.type(0), x)


def sum_axes(x: Any, axes: tuple[int, ...], keepdim: bool = False) -> Any:
    """The sum over some axes."""
    return x.sum(axis=axes, keepdims=keepdim, dtype=x.dtype)


def sum_to(x: Any, shape: Sequence[int]) -> Any:
    """The sum over the axes along which `shape` was broadcast to that of x."""
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and x.shape[i + extra] != 1)
    return x.sum(axis=axes, keepdims=True, dtype=x.dtype).reshape(shape)


def expand(x: Any, shape: Sequence[int]) -> Any:
    """Gives x repeated along new axes and axes of size 1."""
    return np.broadcast_to(x, shape)


def flip(x: Any, dims: Sequence[int]) -> Any:
    """The order along some axes reversed."""
    return np.flip(x, tuple(dims)).copy()


def cumsum(x: Any, dim: int) -> Any:
    """Running sums along an axis."""
    return np.cumsum(x, axis=dim, dtype=x.dtype)


def take(x: Any, place: Any) -> Any:
    """The part of x at a basic index."""
    return np.asarray(x)[place]


def put(x: Any, place: Any, shape: Sequence[int]) -> Any:
    """Zeros of `shape` with x at a basic index."""
    made = np.zeros(shape, x.dtype)
    made[place] = x
    return made


def take_many(x: Any, index: Any) -> Any:
    """The elements of x at an index with arrays in it."""
    return x[index]


def put_many(x: Any, index: Any, shape: Sequence[int]) -> Any:
    """Zeros of `shape` to which x is added at an index with arrays in it (VALUE-33)."""
    made = np.zeros(shape, x.dtype)
    np.add.at(made, index, x)
    return made


def zero_at(x: Any, index: Any) -> Any:
    """A copy of x with zeros at an index."""
    made = np.array(x)
    made[index] = 0
    return made


def empty_laid_out(like: Any, dtype: Any) -> Any:
    """New memory with the strides of `like` where that is dense and without overlap, else row-major (BACKWARD-24)."""
    if like.flags.c_contiguous or like.flags.f_contiguous:
        return np.empty_like(like, dtype)
    expected = like.itemsize
    for step_, size in sorted((s, n) for s, n in zip(like.strides, like.shape, strict=True) if n != 1):
        if step_ != expected:
            return np.empty(like.shape, dtype)
        expected *= size
    return np.empty_like(like, dtype)


def own(x: Any, like: Any) -> Any:
    """A copy of x in memory of its own, laid out like `like`."""
    made = empty_laid_out(like, x.dtype)
    made[...] = x
    return made


def blank(shape: Sequence[int], dtype: Any) -> Any:
    """Zeros."""
    return np.zeros(shape, dtype)


def zeros_of(x: Any) -> Any:
    """Zeros like x."""
    return np.zeros(x.shape, x.dtype)


def replay(x: Any, steps: Sequence[tuple[str, Any]]) -> Any:
    """The view of x that a chain of view operations gives."""
    for name, argument in steps:
        x = VIEWS[name](x) if argument is None else VIEWS[name](x, argument)
    return x


def zero_region(x: Any, steps: Sequence[tuple[str, Any]]) -> Any:
    """A copy of x with zeros where the view of it lies."""
    made = np.array(x)
    replay(made, steps)[...] = 0
    return made


VIEWS: dict[str, Callable[..., Any]] = {
    "permute": permute,
    "reshape": reshape,
    "expand": expand,
    "take": take,
    "real": real,
    "imag": imag,
}
