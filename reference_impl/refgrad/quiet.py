"""Keeps NumPy's floating-point warnings inside refgrad.

`np.errstate` costs more than a small operation. NumPy 2 keeps the error state in a context variable, which can be set
and reset for a tenth of that; elsewhere `np.seterr` does the same work slowly. Either way the caller's state is back
when the operation ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def _pair() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The two functions that silence NumPy and restore its state."""
    config = getattr(getattr(np, "_core", None), "_ufunc_config", None)
    variable = getattr(config, "_extobj_contextvar", None)
    make = getattr(config, "_make_extobj", None)
    if variable is None or make is None:
        return (lambda: np.seterr(all="ignore")), (lambda old: np.seterr(**old))
    ignore, put = make(all="ignore"), variable.set
    return (lambda: put(ignore)), variable.reset


hush, restore = _pair()
