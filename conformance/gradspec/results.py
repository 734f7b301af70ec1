"""What an act may return: an implementation's answer is data, checked before anything of the suite reads it."""

from __future__ import annotations

from typing import Any

from gradspec.adapter import Value
from gradspec.wire import bounded

DTYPES = frozenset(
    {
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    }
)
"""The names of element types that a value may have."""

_PLAIN: dict[str, type] = {"bool": bool, "int": int, "str": str}
_LARGEST = 2**63
_NUMBERS = (float, int, complex)


def fault_of(wanted: str, result: Any) -> str:
    """What is wrong with the result of an act that returns `wanted` (see `adapter.act`), in words; "" for nothing."""
    if wanted == "value":
        return _fault_of_value(result)
    if wanted == "ints":
        return "" if _is_ints(result) else f"{_named(result)}, not a tuple of Python ints"
    if wanted == "data":
        return "" if isinstance(result, tuple) else f"{_named(result)}, not a tuple"
    right = isinstance(result, _PLAIN[wanted]) and not (wanted == "int" and isinstance(result, bool))
    return "" if right else f"{_named(result)}, not a Python {wanted}"


def _fault_of_value(result: Any) -> str:
    if not isinstance(result, Value):
        return f"{_named(result)}, not a Value"
    if not _is_ints(result.shape):
        return f"a Value whose shape is {_named(result.shape)}, not a tuple of Python ints"
    if not isinstance(result.dtype, str) or result.dtype not in DTYPES:
        return f"a Value whose dtype is {_named(result.dtype)}, not one of {', '.join(sorted(DTYPES))}"
    return _fault_of_data(result.data, result.shape, result.dtype)


def _fault_of_data(data: Any, shape: tuple[int, ...], dtype: str) -> str:
    if shape:
        if not isinstance(data, list) or len(data) != shape[0]:
            return f"a Value whose data is {_named(data)} where its shape asks for a list of {shape[0]}"
        return next((fault for part in data if (fault := _fault_of_data(part, shape[1:], dtype))), "")
    if not isinstance(data, _NUMBERS):
        return f"a Value with the element {_named(data)}, not a Python number"
    if isinstance(data, complex) and not dtype.startswith("complex"):
        return f"a Value with the complex element {data} and the dtype {dtype}"
    if isinstance(data, int) and not -_LARGEST <= data < _LARGEST:
        return f"a Value with an element of {len(str(abs(data)))} digits, which no {dtype} holds"
    return ""


def _is_ints(result: Any) -> bool:
    return isinstance(result, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in result)


def _named(result: Any) -> str:
    """A short text for anything: a plain value as a literal, any other object by its type."""
    if (
        result is None
        or isinstance(result, bool | float | complex)
        or (isinstance(result, int) and abs(result) < _LARGEST)
    ):
        return repr(result)
    if isinstance(result, str):
        return bounded(repr(result[:80]))
    return f"a {type(result).__module__.partition('.')[0]} {type(result).__name__}".replace("a builtins ", "a ")
