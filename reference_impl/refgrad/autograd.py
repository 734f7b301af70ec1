"""The namespace `refgrad.autograd`."""

from __future__ import annotations

from . import graph
from .engine import backward, grad
from .modes import enable_grad, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "graph", "no_grad", "set_grad_enabled"]
