"""Strategies of programs whose leaves and gradients may differ in dtype."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gradspec.capabilities import Capabilities
from gradspec.programs.building import Draw
from gradspec.programs.editing import appended
from gradspec.programs.program import Case, Input, Program, Root
from gradspec.programs.special import Cases, drawn, new_leaf, new_shape
from gradspec.programs.strategies import CaseStrategy, graphs, one_of, subset_of_leaves


def either_dtype(**parameters: Any) -> CaseStrategy:
    """Programs of float32 that are to be run in `case["own"]`, and some leaves `case["chosen"]`."""
    own, chosen = one_of("float32", "float64"), subset_of_leaves()
    return graphs(dtype="float32", own=own, chosen=chosen, **parameters)


def uneven_seeds(offered: Capabilities) -> Cases:
    """A leaf of float32 times one, and `case["seeds"]`, whose sum float32 often cannot hold."""
    offered.require("mul")

    def draws(draw: Draw) -> Case:
        leaf, one = new_leaf(draw, new_shape(draw, offered), "float32"), Input((), (1.0,), "float32")
        program = appended(Program((leaf, one)), "mul", 0, 1).with_roots(Root(2))
        drawn_seeds = draw(st.lists(st.sampled_from((1.0, -1.0, 3.0, 2.0**24, 2.0**26)), min_size=2, max_size=4))
        return Case(program, parameters={"seeds": tuple(drawn_seeds)})

    return drawn(draws)


def number_dtype(draw: Draw, _program: Program, offered: Capabilities) -> str:
    """One of the dtypes on offer that a gradient may have where any will do, integers among them."""
    names = ("float64", "float32", "int64", "complex128")
    name: str = draw(st.sampled_from([name for name in names if name in offered.dtypes]))
    return name
