"""The namespace `refgrad.autograd.graph`."""

from __future__ import annotations

from .tape import GradientEdge, Node, get_gradient_edge

__all__ = ["GradientEdge", "Node", "get_gradient_edge"]
