"""Dtypes and how they combine. They are NumPy's; the rules of combination are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import BadTypeError

float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8 = np.dtype("uint8")
bool_ = np.dtype("bool")

_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def category(dtype: np.dtype[Any]) -> int:
    """0 bool, 1 integer, 2 real, 3 complex."""
    return _CATEGORY[dtype.kind]


def scalar_dtype(value: Any) -> np.dtype[Any]:
    """The dtype a Python number stands for where nothing else decides."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    if isinstance(value, float | np.floating):
        return float32
    if isinstance(value, complex | np.complexfloating):
        return complex64
    raise BadTypeError(f"an operand is a tensor or a number, not {type(value).__name__}")


def promote(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype for both; between integer and real it is the real one, whatever the sizes."""
    if category(a) > category(b) and category(b) < 2:
        return a
    if category(b) > category(a) and category(a) < 2:
        return b
    return np.promote_types(a, b)


def combine(strong: np.dtype[Any] | None, weak: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """The dtype where `weak` (0-d tensors, or Python numbers) counts by its category only."""
    if strong is None or weak is None:
        return weak if strong is None else strong
    if category(weak) <= category(strong):
        return strong
    if category(strong) == 2:  # real with complex: complex of the same precision
        return complex128 if strong == float64 else complex64
    return weak


def result_dtype(operands: Any) -> np.dtype[Any]:
    """The common dtype of tensors and Python numbers: arrays before 0-d tensors before numbers."""
    ranks: list[np.dtype[Any] | None] = [None, None, None]
    for each in operands:
        data = getattr(each, "_data", None)
        place = 2 if data is None else (0 if data.ndim else 1)
        dtype = scalar_dtype(each) if data is None else data.dtype
        known = ranks[place]
        ranks[place] = dtype if known is None else promote(known, dtype)
    found = combine(combine(ranks[0], ranks[1]), ranks[2])
    assert found is not None
    return found
