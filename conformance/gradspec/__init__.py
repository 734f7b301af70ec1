"""gradspec: the executable specification of PyTorch-style automatic differentiation and modules.

`gradspec.check("torch")` runs the suite on an implementation and returns the record of the run. Importing the package
loads nothing else: the pytest plug-in lives in it, and pytest loads that into every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradspec.runner import check as check

__version__ = "0.1.0"
__all__ = ["__version__", "check"]


def __getattr__(name: str) -> Any:
    if name == "check":
        from gradspec.runner import check  # noqa: PLC0415 - only who checks pays for pytest and NumPy

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
