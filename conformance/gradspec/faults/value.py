# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of one operation: its value, its derivative, or a class of operands that it does not take."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradspec.faults.copying import part
from gradspec.faults.registry import fault


def operation(ag: Any, name: str, function: Any) -> None:
    """Put another function in the place of an operation, under all of its names."""
    for place in (ag, ag.ops, ag.Tensor):
        setattr(place, name, function)


@fault(
    "H19",
    clauses=["VALUE-61"],
    title="a fused cumsum has no derivative: its result is a plain leaf, without an error",
    source="huggingface/candle#3568",
)
def forward_only(ag: Any) -> None:
    cumsum = ag.cumsum
    operation(ag, "cumsum", lambda *arguments, **keywords: cumsum(*arguments, **keywords).detach())


@fault("VALUE_61_sign_of_cos", clauses=["VALUE-61"], title="the derivative of cos has the wrong sign")
def sign_of_cos(ag: Any) -> None:
    rule = ag.tape.VJP["cos"]
    ag.tape.VJP["cos"] = lambda *arguments: [-each for each in rule(*arguments)]


@fault(
    "VALUE_61_value_of_flip",
    clauses=["VALUE-61"],
    title="flip reverses all axes whatever dims says",
)
def value_of_flip(ag: Any) -> None:
    flip = ag.flip
    operation(ag, "flip", lambda x, *_dims, **_named: flip(x, tuple(range(x.ndim))))


@fault(
    "VALUE_61_shape_of_a_0d_sum",
    clauses=["VALUE-61"],
    title="the sum of a 0-d tensor has one axis",
    source="seen in candle-python",
)
def shape_of_a_0d_sum(ag: Any) -> None:
    total = ag.sum
    operation(ag, "sum", lambda x, *a, **k: total(x, *a, **k).reshape((1,)) if x.ndim == 0 else total(x, *a, **k))


@fault(
    "VALUE_61_zero_size_mean",
    clauses=["VALUE-61"],
    title="mean over an axis raises where the tensor has no elements",
    source="seen in candle-python",
)
def zero_size_mean(ag: Any) -> None:
    rule = ag.tape.VJP["mean"]

    def strict(xp: Any, node: Any, g: Any, saved: Any) -> Any:
        if g.size == 0:
            raise ag.errors.BadShapeError("there is nothing to divide by")
        return rule(xp, node, g, saved)

    ag.tape.VJP["mean"] = strict


@fault(
    "VALUE_61_unused_results_count",
    clauses=["VALUE-61"],
    title="results of split and unbind that nobody used contribute ones",
)
def unused_results_count(ag: Any) -> None:
    index = part(ag, "ops.index")
    all_parts = index.all_parts

    def filled(xp: Any, node: Any, g: Any) -> Any:
        parts = all_parts(xp, node, g)
        return [part_ + 1 if given is None else part_ for part_, given in zip(parts, g, strict=True)]

    index.all_parts = filled


@fault(
    "VALUE_61_integers_for_numbers",
    clauses=["VALUE-61"],
    title="reciprocal rounds towards zero, as integer division does",
)
def integers_for_numbers(ag: Any) -> None:
    reciprocal = ag.reciprocal

    def rounded(x: Any) -> Any:
        made = reciprocal(x)
        np.trunc(made._data, out=made._data)
        return made

    operation(ag, "reciprocal", rounded)
