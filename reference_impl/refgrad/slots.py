"""What dtype `.grad` must have: the tensor's own, unless `grad_dtype` of a leaf says another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import BadGradDtypeError, BadTypeError, NotLeafError

if TYPE_CHECKING:
    from .tensor import Tensor


def slot_dtype(tensor: Tensor) -> np.dtype[Any] | None:
    """The dtype that `.grad` must have; None where any will do (GRADSLOT-03, -19, -23)."""
    meta = tensor._meta
    if meta is None or tensor._node is not None:
        return tensor._data.dtype
    if meta.any_dtype:
        return None
    return tensor._data.dtype if meta.grad_dtype is None else meta.grad_dtype


def check_leaf(tensor: Tensor) -> None:
    """Refuses a non-leaf its grad_dtype (GRADSLOT-24)."""
    if tensor._node is not None:
        raise NotLeafError("only leaves have a grad_dtype, and an operation made this tensor; use its detach()")


def check_grad_dtype(tensor: Tensor, dtype: Any) -> None:
    """Refuses what cannot be the grad_dtype of a leaf, or cannot be it now."""
    if dtype is None:
        return
    if not isinstance(dtype, np.dtype):
        raise BadTypeError(f"grad_dtype takes a dtype or None, not {type(dtype).__name__}")
    if dtype.kind != tensor._data.dtype.kind:
        raise BadGradDtypeError(
            f"no gradient of a {tensor.dtype} leaf is {dtype}; set grad_dtype to a dtype of the same kind, or to None"
        )
    held = None if tensor._meta is None else tensor._meta.grad
    if held is not None and held._data.dtype != dtype:
        raise BadGradDtypeError(
            f"grad_dtype cannot become {dtype} while .grad is {held.dtype}; set .grad to None first"
        )


def set_slot_dtype(leaf: Tensor, dtype: np.dtype[Any] | None) -> None:
    """Lets gradients arrive in another dtype, in graphs that are recorded already as well."""
    meta = leaf._rare()
    meta.grad_dtype, meta.any_dtype = dtype, dtype is None
    node = None if meta.accumulator is None else meta.accumulator()
    if node is not None:
        node.dtype = leaf._data.dtype if dtype is None else dtype
