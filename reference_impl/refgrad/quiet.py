"""Keeps NumPy's floating-point warnings inside refgrad.

`np.errstate` costs more than a small operation. NumPy 2 keeps the error state in a context variable, which can be set
and reset for a tenth of that; elsewhere `np.seterr` does the same work slowly. Either way the caller's state is back
when the operation ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np


def _reset(old: Any) -> None:
    """Puts an error state back the slow way."""
    np.seterr(**old)


def _pair() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The two functions that silence NumPy and restore its state."""
    config = getattr(getattr(np, "_core", None), "_ufunc_config", None)
    variable = getattr(config, "_extobj_contextvar", None)
    make = getattr(config, "_make_extobj", None)
    if variable is None or make is None:
        return partial(np.seterr, all="ignore"), _reset
    return partial(variable.set, make(all="ignore")), variable.reset


hush, restore = _pair()
