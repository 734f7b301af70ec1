"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BadShapeError
from ..modes import state
from ..quiet import hush, restore
from ..record import record_two, wrap
from ..tape import vjp
from ..tensor import Tensor
from .common import mismatch, operands, tensor_of


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The product of vectors, matrices and stacks of matrices."""
    a, b = operands(tensor_of(input), tensor_of(other))
    if not a.shape or not b.shape:
        raise BadShapeError(f"matmul() takes tensors of at least one axis, not shapes {a.shape} and {b.shape}")
    token = hush()
    try:
        data = np.matmul(a._data, b._data)
    except ValueError as error:
        raise mismatch("matmul", a, b, error) from error
    finally:
        restore(token)
    if (a._tracked or b._tracked) and state.recording:
        made = record_two("matmul", data, a, b, (a if b._tracked else None, b if a._tracked else None))
        made._node.attrs = a._data.shape, b._data.shape
        return made
    return wrap(data)


@vjp("matmul")
def matmul_vjp(xp: Any, node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The rules g b^H and a^H g, vectors taken as a row and a column."""
    row, column = node.attrs
    a, b = saved
    as_row, as_column = len(row) == 1, len(column) == 1
    full = g.shape
    if as_column:
        full = (*full, 1)
    if as_row:
        full = (*full[:-1], 1, full[-1])
    g = xp.reshape(g, full)
    ga = gb = None
    if b is not None:
        ga = xp.matmul(g, adjoint(xp, xp.reshape(b, (*column, 1)) if as_column else b))
        ga = xp.reshape(xp.sum_to(ga, (1, *row)), row) if as_row else ga
    if a is not None:
        gb = xp.matmul(adjoint(xp, xp.reshape(a, (1, *row)) if as_row else a), g)
        gb = xp.reshape(xp.sum_to(gb, (*column, 1)), column) if as_column else gb
    return ga, gb


def adjoint(xp: Any, x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    order = list(range(len(x.shape)))
    order[-1], order[-2] = order[-2], order[-1]
    return xp.conj(xp.permute(x, tuple(order)))


def ranked(name: str, a: Tensor, b: Tensor, ranks: tuple[int, int]) -> Tensor:
    """`matmul` for operands of given ranks."""
    if (tensor_of(a)._data.ndim, tensor_of(b)._data.ndim) != ranks:
        raise BadShapeError(f"{name}() takes tensors of {ranks[0]} and {ranks[1]} axes, not {a.shape} and {b.shape}")
    return matmul(a, b)


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Matrix times matrix."""
    return ranked("mm", input, mat2, (2, 2))


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    return ranked("mv", input, vec, (2, 1))


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    return ranked("dot", input, tensor, (1, 1))
