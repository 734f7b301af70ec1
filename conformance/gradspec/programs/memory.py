"""Strategies of cases about memory: gradients that go through views, leaves that lie in memory in other orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from gradspec.adapter import Unsupported
from gradspec.capabilities import Capabilities
from gradspec.programs.building import Draw, dyadics
from gradspec.programs.editing import appended, scalar, size_of, summed, with_sum
from gradspec.programs.operations import Shape
from gradspec.programs.program import Case, Program, Root
from gradspec.programs.special import Cases, drawn, dtype_of, losses, new_leaf, then
from gradspec.programs.strategies import CaseStrategy, with_steps


def _view(draw: Draw, name: str, shape: Shape, most: int) -> dict[str, Any] | None:
    """Attributes with which a view operation takes a shape; None where it does not."""
    rank, size = len(shape), math.prod(shape)
    if name == "reshape":
        even = [(2, size // 2), (size // 2, 2)] if size and size % 2 == 0 else []
        return {"shape": draw(st.sampled_from([s for s in ((size,), (1, size), (size, 1), *even) if len(s) <= most]))}
    if name == "unsqueeze" and rank < most:
        return {"dim": draw(st.integers(0, rank))}
    if name == "transpose" and rank > 1:
        return {"dim0": draw(st.integers(0, rank - 2)), "dim1": rank - 1}
    if name == "permute" and rank > 1:
        first = draw(st.integers(1, rank - 1))
        return {"dims": (*range(first, rank), *range(first))}
    if name == "squeeze" and rank:
        return {"dim": draw(st.integers(0, rank - 1))}
    if name == "expand" and rank < most:
        return {"shape": (draw(st.integers(1, 2)), *shape)}
    return None


VIEWS = ("reshape", "unsqueeze", "transpose", "permute", "squeeze", "expand")


def through_shapes(offered: Capabilities) -> Cases:
    """A leaf that goes through views only, so that gradients arrive out of order in memory.

    `case["turned"]`: the seed has axes that can be turned, so that it is to be tried as a view too.
    """
    views = [name for name in VIEWS if name in offered.operations]
    shapes = [s for s in ((2, 3), (3, 2), (6,), (2, 1, 3), (2, 2)) if len(s) <= offered.max_rank]
    if not views or not shapes:
        raise Unsupported("a view operation")
    offered.require("add")

    def draws(draw: Draw) -> Case:
        program = Program((new_leaf(draw, draw(st.sampled_from(shapes)), offered.real_dtype),))
        between = [draw(st.sampled_from(views)) for _ in range(draw(st.integers(0, 4)))]
        # what a reshape gets back from a turn is not in the order of memory
        for name in (*between, *(n for n in ("reshape", "permute") if n in views)):
            last = len(program.shapes()) - 1
            attributes = _view(draw, name, program.shapes()[last], offered.max_rank)
            if attributes is not None:
                program = appended(program, name, last, **attributes)
        last = len(program.shapes()) - 1
        if not last:
            program, last = appended(program, "add", 0, 0), 1
        program = program.with_roots(Root(last, dyadics(draw, size_of(program, last))))
        turned = "permute" in views and len(program.shapes()[last]) > 1
        return Case(program, parameters={"turned": turned})

    return drawn(draws)


def through_views(*, seeded: bool = False) -> CaseStrategy:
    """Leaves that enter through the same views and meet in an addition, a cat, a stack, or as roots with one seed.

    Without a seed the root is a sum: never where `seeded`. `case["passes"]` is a number of passes.
    """

    def strategy(offered: Capabilities) -> Cases:
        views = [name for name in VIEWS if name in offered.operations]
        if not views or not offered.max_rank:
            raise Unsupported("a view operation")
        offered.require("add", "mul", "sum")
        shapes = [s for s in ((2,), (1,), (2, 3), (3, 1)) if len(s) <= offered.max_rank]
        offers = "seed" in offered.features
        meetings = ["add", "add", *(name for name in ("cat", "stack") if name in offered.operations)]
        meetings += ["roots"] if offers and "backward.many" in offered.features else []

        def draws(draw: Draw) -> Case:
            shape, count = draw(st.sampled_from(shapes)), draw(st.integers(1, 3))
            program = Program(tuple(new_leaf(draw, shape, offered.real_dtype) for _ in range(count)))
            ends = list(range(count))
            for name in [draw(st.sampled_from(views)) for _ in range(draw(st.integers(0, 2)))]:
                attributes = _view(draw, name, program.shapes()[ends[0]], offered.max_rank)
                if attributes is not None:
                    first = len(program.shapes())
                    for n in ends:
                        program = appended(program, name, n, **attributes)
                    ends = list(range(first, first + count))
            program = _met(draw, program, ends, draw(st.sampled_from(meetings)), offered.max_rank)
            if offers and (seeded or len(program.roots) > 1 or draw(st.booleans())):
                seed = dyadics(draw, size_of(program, program.roots[0].value), nonzero=True)
                # tenths fill the digits of their dtype
                seed = tuple(v / 10 for v in seed) if draw(st.booleans()) else seed
                program = program.with_roots(*(Root(r.value, seed) for r in program.roots))
            else:
                program, single = scalar(program.with_roots(program.roots[0]), program.roots[0].value)
                program = program.with_roots(Root(single))
            return Case(program, parameters={"passes": draw(st.integers(2, 3))})

        return drawn(draws)

    return strategy


def _met(draw: Draw, program: Program, ends: Sequence[int], way: str, most: int) -> Program:
    shape = program.shapes()[ends[0]]
    if way == "roots":
        return program.with_roots(*map(Root, ends))
    if (way == "cat" and shape) or (way == "stack" and len(shape) < most):
        program = appended(program, way, *ends, dim=0)
    else:
        program = summed(program.with_roots(*map(Root, ends)), range(len(ends)))
    last = len(program.shapes()) - 1
    if draw(st.booleans()):  # a gradient of its own in front of the views
        program, last = appended(program, "add", last, last), last + 1
    return program.with_roots(Root(last))


def laid_out(offered: Capabilities) -> Cases:
    """Programs with a leaf of two axes or more, number `case["leaf"]`, that is used in several ways.

    `case["turn"]` says how leaves lie in memory (`suite/passes.py::laid`).
    """
    offered.require("permute", "narrow", "expand", "mul", "sum")
    shapes = [s for s in ((2, 3), (2, 2), (3, 2), (2, 1, 2), (2, 2, 3), (3, 1)) if len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported("tensors of two axes")

    def more(draw: Draw, case: Case) -> Case:
        shape, leaf, dtype = draw(st.sampled_from(shapes)), len(case.the_program.inputs), dtype_of(case.the_program)
        new = [new_leaf(draw, shape, dtype), new_leaf(draw, shape, dtype, tracked=False)]
        program = with_steps(case.the_program, [], new)
        ways = st.sampled_from(("alone", "constant", "square", "turned"))
        for way in [draw(ways) for _ in range(draw(st.integers(1, 2)))]:
            count = len(program.shapes())
            if way == "turned":
                dims = tuple(reversed(range(len(shape))))
                turned = appended(appended(program, "permute", leaf, dims=dims), "permute", leaf + 1, dims=dims)
                program, count = appended(turned, "mul", count, count + 1), count + 2
            elif way != "alone":
                program = appended(program, "mul", leaf, leaf + (way == "constant"))
            program = with_sum(program, leaf if way == "alone" else count)
        turn = draw(st.sampled_from(("reversed", "rolled", "row-major")))
        return Case(program, parameters={"leaf": leaf, "turn": turn, "gaps": draw(st.booleans())})

    return then(losses()(offered), more)
