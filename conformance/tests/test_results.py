"""What an act may return: every sort of nonsense is told in words, and nothing right is refused."""

from typing import Any

import numpy as np
import pytest
from gradspec.adapter import Value
from gradspec.results import fault_of


@pytest.mark.parametrize(
    ("wanted", "result", "said"),
    [
        ("bool", 1, "1, not a Python bool"),
        ("bool", np.True_, "a numpy bool, not a Python bool"),
        ("int", True, "True, not a Python int"),
        ("int", None, "None, not a Python int"),
        ("str", b"x", "a bytes, not a Python str"),
        ("ints", [2, 3], "a list, not a tuple of Python ints"),
        ("ints", (2, True), "a tuple, not a tuple of Python ints"),
        ("data", [], "a list, not a tuple"),
        ("value", 3.0, "3.0, not a Value"),
        ("value", Value([2], "float64", [1.0, 2.0]), "shape is a list"),  # type: ignore[arg-type]
        ("value", Value((), "posit16", 1.0), "dtype is 'posit16'"),
        ("value", Value((), "x" * 10**6, 1.0), "dtype is 'xxx"),
        ("value", Value((2,), "float64", [1.0]), "asks for a list of 2"),
        ("value", Value((2,), "float64", (1.0, 2.0)), "data is a tuple"),
        ("value", Value((), "float32", np.float32(1)), "a numpy float32, not a Python number"),
        ("value", Value((), "float64", 10**400), "an element of 401 digits"),
        ("value", Value((), "float64", 1j), "the complex element 1j"),
        ("value", Value((1,), "float64", [None]), "the element None"),
    ],
)
def test_nonsense_is_told_in_words(wanted: str, result: Any, said: str) -> None:
    fault = fault_of(wanted, result)
    assert said in fault
    assert len(fault) < 400


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        ("bool", False),
        ("int", 0),
        ("str", ""),
        ("ints", ()),
        ("data", (1, "x")),
        ("value", Value((), "float64", float("nan"))),
        ("value", Value((0, 3), "float32", [])),
        ("value", Value((2, 1), "complex128", [[1j], [2.0]])),
        ("value", Value((2,), "bool", [True, False])),
    ],
)
def test_what_is_right_is_taken(wanted: str, result: Any) -> None:
    assert fault_of(wanted, result) == ""
