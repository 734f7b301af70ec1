"""Strategies of the chapter BACKWARD: programs that reach what a general graph seldom does.

Each is a function from what an implementation offers to a Hypothesis strategy, or returns one. What a strategy needs is
asked for before anything is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gradspec.adapter import Unsupported
from gradspec.capabilities import Capabilities
from gradspec.programs.building import SHAPES, Draw, dyadics
from gradspec.programs.editing import appended, onto_root, scalar, size_of, summed, with_sum
from gradspec.programs.operations import Shape
from gradspec.programs.oracles import is_exact
from gradspec.programs.program import Case, Input, Program, Root, Step
from gradspec.programs.strategies import (
    CaseStrategy,
    Parameter,
    graphs,
    numbers,
    one_of,
    other_shape,
    times_a_constant,
    tracked_value,
    with_steps,
)

Cases = st.SearchStrategy[Case]

COMPLEX = ("neg", "square", "add", "sub", "mul", "sum", "clone", "conj")
"""Operations that take complex operands to complex results."""


def losses(**keywords: Any) -> CaseStrategy:
    """Programs whose root has one element and no seed: what every implementation can walk back from."""

    def strategy(offered: Capabilities) -> Cases:
        frozen = "frozen" in offered.features
        return graphs(root="scalar", seed="implicit", frozen=frozen, **keywords)(offered)

    return strategy


def then(cases: Cases, more: Callable[[Draw, Case], Case]) -> Cases:
    """Draw a case and make another of it."""

    @st.composite
    def strategy(draw: Draw) -> Case:
        return more(draw, draw(cases))

    made: Cases = strategy()
    return made


def drawn(draws: Callable[[Draw], Case]) -> Cases:
    """Draw a case by a function."""

    @st.composite
    def strategy(draw: Draw) -> Case:
        return draws(draw)

    made: Cases = strategy()
    return made


# -- pieces of programs ------------------------------------------------------------------------------------------------


def dtype_of(program: Program) -> str:
    """The element type of the first leaf."""
    return program.inputs[program.leaves[0]].dtype


def new_leaf(draw: Draw, shape: Shape, dtype: str, *, tracked: bool = True) -> Input:
    """An input of this shape with drawn elements."""
    return Input(shape, dyadics(draw, math.prod(shape)), dtype, tracked)


def new_shape(draw: Draw, offered: Capabilities, *, least: int = 0) -> Shape:
    """A shape of as many axes as are on offer, `least` or more."""
    shapes = [s for s in SHAPES if least <= len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported(f"tensors of {least} axes")
    shape: Shape = draw(st.sampled_from(shapes))
    return shape


# -- roots and seeds ---------------------------------------------------------------------------------------------------


def one_element_roots(offered: Capabilities) -> Cases:
    """Roots of one element and of one axis or more, a leaf among them."""
    if not offered.max_rank:
        raise Unsupported("tensors with axes")

    def more(draw: Draw, case: Case) -> Case:
        extra = new_leaf(draw, (1,) * draw(st.integers(1, min(3, offered.max_rank))), dtype_of(case.the_program))
        if draw(st.integers(0, 4)) == 0:
            return Case(Program((extra,), (), (Root(0),)))
        return Case(onto_root(case.the_program, "mul", extra))

    return then(losses()(offered), more)


def empty_roots(offered: Capabilities) -> Cases:
    """Roots without elements."""
    shapes = [s for s in SHAPES if 0 in s and len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported("tensors without elements")

    def more(draw: Draw, case: Case) -> Case:
        extra = new_leaf(draw, draw(st.sampled_from(shapes)), dtype_of(case.the_program), tracked=draw(st.booleans()))
        return Case(onto_root(case.the_program, "mul", extra))

    return then(losses()(offered), more)


def mismatched_seeds(offered: Capabilities) -> Cases:
    """Programs and `case["shape"]`, another shape than the root's: one that broadcasts, one of other sizes."""

    def more(draw: Draw, case: Case) -> Case:
        shape = case.the_program.shapes()[case.the_program.roots[0].value]
        return replace(case, parameters={"shape": draw(other_shape(shape, offered))})

    if not offered.max_rank:
        raise Unsupported("tensors with axes")
    return then(graphs(seed="explicit")(offered), more)


def misfit_of_root(draw: Draw, program: Program, offered: Capabilities) -> tuple[int, Shape]:
    """The place of a root in the list, any, and a shape that is not that root's."""
    at = draw(st.integers(0, len(program.roots) - 1))
    return at, draw(other_shape(program.shapes()[program.roots[at].value], offered))


def wrong_seeds(offered: Capabilities) -> Cases:
    """Programs and `case["wrong"]`, a seed that is no tensor, alone or (`case["listed"]`) in a list of seeds."""
    ways = (False, True) if "backward.many" in offered.features else (False,)

    def wrong(draw: Draw, _program: Program, _offered: Capabilities) -> Any:
        return draw(st.sampled_from((1.0, 0, True, "1", (1.0,))))

    def listed(draw: Draw, _program: Program, _offered: Capabilities) -> Any:
        return draw(st.sampled_from(ways))

    return graphs(seed="explicit", wrong=wrong, listed=listed)(offered)


def complex_graphs(*, root: str = "any") -> CaseStrategy:
    """Programs on complex values, with complex seeds."""

    def strategy(offered: Capabilities) -> Cases:
        return then(graphs(operations=COMPLEX, dtype="complex128", root=root, seed="explicit")(offered), more)

    def more(draw: Draw, case: Case) -> Case:
        program = case.the_program
        inputs = tuple(replace(i, values=_turned(draw, i.values)) for i in program.inputs)
        roots = tuple(Root(r.value, _turned(draw, r.seed or ())) for r in program.roots)
        return Case(replace(program, inputs=inputs, roots=roots))

    return strategy


def _turned(draw: Draw, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(complex(re, im) for re, im in zip(values, dyadics(draw, len(values)), strict=True))


def real_roots(offered: Capabilities) -> Cases:
    """Real programs where complex numbers are on offer, and `case["seed"]`, a complex seed."""
    if "complex128" not in offered.dtypes:
        raise Unsupported("dtype complex128")

    def more(draw: Draw, case: Case) -> Case:
        return replace(case, parameters={"seed": _turned(draw, case.the_program.roots[0].seed or ())})

    return then(graphs(dtype="float64", seed="explicit")(offered), more)


def leaf_roots(offered: Capabilities) -> Cases:
    """A leaf as root, of any shape where seeds are on offer, and consumers of it that do not matter."""

    def more(draw: Draw, case: Case) -> Case:
        seeded = "seed" in offered.features and draw(st.booleans())
        shape = new_shape(draw, offered) if seeded else ()
        at = len(case.the_program.inputs)
        leaf = new_leaf(draw, shape, dtype_of(case.the_program))
        program = with_steps(case.the_program, [Step("mul", (at, at))] if draw(st.booleans()) else [], [leaf])
        root = Root(at, dyadics(draw, math.prod(shape)) if seeded else None)
        return Case(program.with_roots(root), parameters={"passes": draw(st.integers(1, 3))})

    return then(losses(exact=True)(offered), more)


def several_roots(kind: str, *, count: tuple[int, int] = (2, 3), **parameters: Parameter) -> CaseStrategy:
    """Programs with several roots and unequal seeds.

    Args:
        kind: "apart": distinct, none computed from another. "nested": distinct, one computed from another at least.
            "repeated": one of them stands twice or more. "implicit": apart, with at least one of one element unseeded.
        count: fewest and most roots.
        **parameters: further parameters of the case.
    """

    def strategy(offered: Capabilities) -> Cases:
        if "backward.many" not in offered.features:
            raise Unsupported("backward.many")

        def more(draw: Draw, case: Case) -> Case:
            number = draw(st.integers(*count))
            program, values = _ROOTS[kind](draw, case.the_program, number)
            roots = [Root(v, _seed(draw, program, v, at)) for at, v in enumerate(values)]
            if kind == "implicit":
                few = [n for n, r in enumerate(roots) if size_of(program, r.value) == 1]
                bare = [n for n in few if n == few[0] or draw(st.booleans())]
                roots = [Root(r.value) if n in bare else r for n, r in enumerate(roots)]
            program = program.with_roots(*draw(st.permutations(roots)))
            drawn = {name: parameter(draw, program, offered) for name, parameter in parameters.items()}
            return Case(program, parameters=drawn)

        return then(graphs(exact=True, apart=True, seed="explicit")(offered), more)

    return strategy


def _seed(draw: Draw, program: Program, value: int, at: int) -> tuple[Any, ...]:
    """Never zero, and other numbers for each place in the list."""
    return tuple(v + 2 * at for v in dyadics(draw, size_of(program, value), nonzero=True))


def _tracked(program: Program, *, results: bool = False) -> list[int]:
    first = len(program.inputs) if results else 0
    return [n for n, flag in enumerate(program.tracked()) if flag and n >= first][-50:]


def _sinks(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    """Roots that nothing is computed from: each a new result."""
    found = []
    for value in [draw(st.sampled_from(_tracked(program))) for _ in range(number)]:
        found.append(len(program.shapes()))
        program = appended(program, "add", value, value)
    return program, found


def _chain(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    """A result, one of its ancestors, and others."""
    outer = draw(st.sampled_from(_tracked(program, results=True)))
    inner = draw(st.sampled_from(sorted(program.reached(outer) - {outer})[-50:]))
    others = [n for n in _tracked(program) if n not in (outer, inner)]
    more = draw(st.permutations(others))[: number - 2] if others else []
    return program, [outer, inner, *more]


def _repeats(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    """One value twice or more, and perhaps another that has nothing to do with it."""
    value = draw(st.sampled_from(_tracked(program, results=True)))
    apart = [
        n
        for n in _tracked(program, results=True)
        if n not in program.reached(value) and value not in program.reached(n)
    ]
    more = [draw(st.sampled_from(apart))] if apart and draw(st.booleans()) else []
    return program, [value] * number + more


def _one_unseeded(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    program, found = _sinks(draw, program, number)
    if any(size_of(program, value) == 1 for value in found):
        return program, found
    program, single = scalar(program, found[0])
    return program, [single, *found[1:]]


_ROOTS: Mapping[str, Callable[[Draw, Program, int], tuple[Program, list[int]]]] = {
    "apart": _sinks,
    "nested": _chain,
    "repeated": _repeats,
    "implicit": _one_unseeded,
}


def edge_roots(offered: Capabilities) -> Cases:
    """Programs with one to three roots of any kind, outputs of an operation with several among them.

    `case["edges"]` says which are to be named by an edge, `case["dropped"]` whether tensors are dropped then.
    """
    if "backward.many" not in offered.features:
        raise Unsupported("backward.many")
    cuts = [name for name in ("split", "unbind") if name in offered.operations]

    def more(draw: Draw, case: Case) -> Case:
        program, pieces = case.the_program, []
        if cuts and draw(st.integers(0, 3)):
            leaf = new_leaf(draw, (draw(st.integers(2, 3)),), dtype_of(program))
            program = with_steps(program, [], [leaf])
            long = [n for n in _tracked(program) if program.shapes()[n][:1] > (1,)]
            name, first = draw(st.sampled_from(cuts)), len(program.shapes())
            size = {"split_size": 1} if name == "split" else {}
            program = appended(program, name, draw(st.sampled_from(long)), dim=0, **size)
            pieces = list(range(first, len(program.shapes())))
        # always named by an edge; shrinks to an output that is not the first
        lead = draw(st.sampled_from(pieces[1:] + pieces[:1] or _tracked(program)))
        others = [n for n in _tracked(program) if n != lead]
        values = [lead, *draw(st.lists(st.sampled_from(others), max_size=2, unique=True))]
        bare = [size_of(program, value) == 1 and draw(st.booleans()) for value in values]
        seeds = [None if bare[at] else _seed(draw, program, value, at) for at, value in enumerate(values)]
        edges = (True, *(draw(st.booleans()) for _ in values[1:]))
        program = program.with_roots(*map(Root, values, seeds))
        return Case(program, parameters={"edges": edges, "dropped": draw(st.booleans())})

    return then(graphs(exact=True, apart=True, seed="explicit")(offered), more)


def combined_seeds(offered: Capabilities) -> Cases:
    """Exact programs, two seeds `case["u"]` and `case["w"]`, and the numbers `case["a"]` and `case["b"]`."""

    def more(draw: Draw, case: Case) -> Case:
        size = size_of(case.the_program, case.the_program.roots[0].value)
        names = {"a": draw(st.integers(-3, 3)), "b": draw(st.integers(-3, 3))}
        return replace(case, parameters=names | {"u": dyadics(draw, size), "w": dyadics(draw, size)})

    def exact(case: Case) -> bool:
        # of this size and granularity are all seeds that the law combines
        root = case.the_program.roots[0]
        wide = Root(root.value, (12.125,) * size_of(case.the_program, root.value))
        return is_exact(case.the_program.with_roots(wide))

    return then(graphs(exact=True, apart=True, seed="explicit")(offered), more).filter(exact)


# -- leaves: used often, not reached, reached with nothing -------------------------------------------------------------


def reached_leaves(*, proper: bool = False) -> Parameter:
    """Numbers of some of the leaves that reach a root; `proper` leaves another leaf out where there is one."""

    def parameter(draw: Draw, program: Program, _offered: Capabilities) -> Any:
        found = [n for n in program.leaves if n in program.reached()]
        chosen = tuple(n for n in found if draw(st.booleans()))
        if proper and len(chosen) == len(program.leaves) > 1:
            chosen = chosen[1:]
        return chosen or tuple(found[:1])

    return parameter


def listed_leaves(offered: Capabilities) -> Cases:
    """Programs, reached leaves `case["chosen"]`, and an intermediate `case["inner"]` to be listed with them or not."""
    inner = tracked_value(leaves=False, reached=True)
    chosen = reached_leaves(proper=True)
    made = losses(
        exact=True, apart=True, min_leaves=2, chosen=chosen, inner=inner, both=one_of(False, True), before=numbers(0, 1)
    )
    return made(offered)


def unreached(offered: Capabilities) -> Cases:
    """A leaf `case["leaf"]` that no path leads to, its product `case["inner"]` and loss `case["loss"]`.

    A consumer of both the loss and the root dangles behind the root.
    """

    def more(draw: Draw, case: Case) -> Case:
        leaf = len(case.the_program.inputs)
        program = with_steps(
            case.the_program, [], [new_leaf(draw, new_shape(draw, offered), dtype_of(case.the_program))]
        )
        root, inner = program.roots[0].value, len(program.shapes())
        program, loss = scalar(appended(program, "mul", leaf, leaf), inner)
        if draw(st.booleans()):
            program = appended(program, "mul", root, loss)
        names = {"leaf": leaf, "inner": inner, "loss": loss, "filled": draw(st.booleans())}
        return Case(program, parameters=names)

    return then(losses(exact=True, apart=True)(offered), more)


def zero_derivatives(offered: Capabilities) -> Cases:
    """A leaf `case["leaf"]` on which the root depends by a recorded path, with a derivative of zero."""
    ways = ["times", *(name for name in ("sub", "narrow") if name in offered.operations)]

    def more(draw: Draw, case: Case) -> Case:
        way = draw(st.sampled_from(ways))
        shape = new_shape(draw, offered, least=1) if way == "narrow" and offered.max_rank else new_shape(draw, offered)
        dtype, leaf = dtype_of(case.the_program), len(case.the_program.inputs)
        zero = Input((), (0.0,), dtype)
        program = with_steps(case.the_program, [], [new_leaf(draw, shape, dtype), zero])
        value = len(program.shapes())
        if way == "sub":
            program = appended(program, "sub", leaf, leaf)
        elif way == "narrow" and shape:
            program = appended(program, "narrow", leaf, dim=0, start=0, length=0)
        else:
            program = appended(program, "mul", leaf, leaf + 1)
        return Case(with_sum(program, value), parameters={"leaf": leaf})

    return then(losses()(offered), more)


def reused_leaves(offered: Capabilities) -> Cases:
    """One leaf, number 0, that is used one to forty times: in a chain, or twice by one operation."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape, dtype = new_shape(draw, offered), offered.real_dtype
        few = st.sampled_from((1.0, 2.0, -1.0, 0.5, 0.0))
        leaf = Input(shape, tuple(draw(few) for _ in range(math.prod(shape))), dtype, requires_grad=True)
        program, last = Program((leaf, Input((), (draw(few),), dtype))), 1
        left = draw(st.integers(1, 12))
        while left:
            twice = left > 1 and draw(st.integers(0, 5)) == 0
            op = draw(st.sampled_from(("mul", "add")))
            if twice:
                own = len(program.shapes())
                program = appended(appended(program, op, 0, 0), "add", last, own)
            else:
                program = appended(program, op, *((0, last) if draw(st.booleans()) else (last, 0)))
            last, left = len(program.shapes()) - 1, left - 1 - twice
        # now and then many more: what counts or stores uses may have a bound
        for _ in range(draw(st.integers(4, 28)) if draw(st.integers(0, 5)) == 5 else 0):
            program, last = appended(program, "add", last, 0), len(program.shapes())
        program, last = scalar(program, last)
        return Case(program.with_roots(Root(last)))

    return drawn(draws)


def mixed_dtypes(offered: Capabilities) -> Cases:
    """A leaf of float32 and a tensor of float64, tracked or not, that are multiplied or added in either order."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))
    if not {"float32", "float64"} <= set(offered.dtypes):
        raise Unsupported("dtypes float32 and float64")

    def draws(draw: Draw) -> Case:
        shape, way = new_shape(draw, offered), draw(st.sampled_from(("mul", "add")))
        narrow = new_leaf(draw, shape, "float32")
        wide = new_leaf(draw, shape, "float64", tracked="frozen" not in offered.features or draw(st.booleans()))
        operands = (0, 1) if draw(st.booleans()) else (1, 0)
        program, root = scalar(appended(Program((narrow, wide)), way, *operands), 2)
        return Case(program.with_roots(Root(root)))

    return drawn(draws)


def diamonds(offered: Capabilities) -> Cases:
    """Intermediates that several later ones consume, over paths of different lengths; the leaf enters once."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape, dtype = new_shape(draw, offered), offered.real_dtype
        few = st.sampled_from((1.0, 2.0, -1.0, 0.5))
        leaf = Input(shape, tuple(draw(few) for _ in range(math.prod(shape))), dtype, requires_grad=True)
        program = appended(Program((leaf, Input((), (1.0,), dtype))), "mul", 0, 1)
        products = 0
        for at in range(2, draw(st.integers(3, 9))):
            op = draw(st.sampled_from(("add", "mul"))) if products < 3 else "add"
            products += op == "mul"
            operands = (at, draw(st.integers(2, at)))
            program = appended(program, op, *(operands if draw(st.booleans()) else reversed(operands)))
        program, last = scalar(program, len(program.shapes()) - 1)
        return Case(program.with_roots(Root(last)))

    return drawn(draws)


def unsaved_leaves(offered: Capabilities) -> Cases:
    """Programs whose leaves enter through the addition of zero, which saves nothing; `case["write"]` changes a leaf."""

    def more(draw: Draw, case: Case) -> Case:
        program = case.the_program
        inputs = (*program.inputs[:-1], replace(program.inputs[-1], values=(0.0,)))
        entries = len(program.leaves)
        steps = (*(replace(s, op="add") for s in program.steps[:entries]), *program.steps[entries:])
        write = draw(st.sampled_from((("add", 1.0), ("mul", 3.0), ("fill", 5.0), ("zero",))))
        return Case(replace(program, inputs=inputs, steps=steps), parameters={"write": write})

    return then(losses(apart=True)(offered), more)


def accumulated(offered: Capabilities) -> Cases:
    """Programs, whole or times 0.1 so that gradients fill the digits of their dtype, and a number of passes."""

    def more(draw: Draw, case: Case) -> Case:
        whole = draw(st.integers(0, 3)) == 0
        return case if whole else replace(case, program=times_a_constant(case.the_program, (0.1,)))

    return then(losses(exact=True, apart=True, passes=numbers(2, 3))(offered), more)


# -- sums and unused branches ------------------------------------------------------------------------------------------


def summands(offered: Capabilities) -> Cases:
    """Two to four roots of one element, and `case["order"]` in which to add them; see `summed`."""

    def more(draw: Draw, case: Case) -> Case:
        program, found = case.the_program, [case.the_program.roots[0].value]
        for value in [draw(st.sampled_from(_tracked(program, results=True))) for _ in range(draw(st.integers(1, 3)))]:
            program, single = scalar(program, value)
            found.append(single)
        program = program.with_roots(*(Root(value) for value in found))
        return Case(program, parameters={"order": tuple(draw(st.permutations(range(len(found)))))})

    return then(losses(exact=True)(offered), more)


def paddings(offered: Capabilities) -> Cases:
    """Programs and `case["padding"]`: (position, operation, value or -1 for the last padding); see `padded`."""
    names = [name for name in ("mul", "add", "neg") if name in offered.operations]

    def parameter(draw: Draw, program: Program, _offered: Capabilities) -> Any:
        found = []
        for _ in range(draw(st.integers(1, 5))):
            position = draw(st.integers(0, len(program.steps)))
            done = replace(program, steps=program.steps[:position])
            value = draw(st.sampled_from([*_tracked(done), -1]))
            found.append((position, draw(st.sampled_from(names)), value))
        return tuple(sorted(found))

    return losses(exact=True, apart=True, padding=parameter)(offered)


def partly_used(offered: Capabilities) -> Cases:
    """An operation with several results of which the root uses some; `case["unused"]` are the numbers of the others."""
    names = [name for name in ("split", "unbind") if name in offered.operations]
    if not names:
        raise Unsupported("operation split or unbind")
    offered.require("mul", "add", "sum")

    def draws(draw: Draw) -> Case:
        name, length, dtype = draw(st.sampled_from(names)), draw(st.integers(2, 5)), offered.real_dtype
        rest = draw(st.sampled_from([s for s in ((), (2,), (1,), (0,)) if len(s) < offered.max_rank]))
        leaf, one = new_leaf(draw, (length, *rest), dtype), Input((), (1.0,), dtype)
        program = appended(Program((leaf, one)), "mul", 0, 1)
        split = {"split_size": draw(st.integers(1, length - 1)), "dim": 0} if name == "split" else {"dim": 0}
        program = appended(program, name, 2, **split)
        pieces = range(3, len(program.shapes()))
        kept = [n for n in pieces if draw(st.booleans())] or [pieces[-1]]
        used = kept[1:] if len(kept) == len(pieces) else kept
        parts = []
        for piece in used:
            program = appended(program, "mul", piece, piece)
            program, part = scalar(program, len(program.shapes()) - 1)
            parts.append(part)
        program = summed(program.with_roots(*map(Root, parts)), range(len(parts)))
        return Case(program, parameters={"unused": tuple(n for n in pieces if n not in used)})

    return drawn(draws)


# -- recorded passes and intermediates ---------------------------------------------------------------------------------


def polynomials(offered: Capabilities) -> Cases:
    """`case["shape"]`, `case["x"]`, and coefficients `case["first"]`, `case["second"]` of a x + b x^2 + c x^3."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape = new_shape(draw, offered)
        few = st.integers(-3, 3)
        names: dict[str, Any] = {n: tuple(float(draw(few)) for _ in range(3)) for n in ("first", "second")}
        names |= {"shape": shape, "x": dyadics(draw, math.prod(shape)), "old": draw(st.booleans())}
        return Case(parameters=names)

    return drawn(draws)


def inner_values(offered: Capabilities) -> Cases:
    """Programs, an intermediate on the way to the root, how many passes are to be run, and whether it is retained."""
    most = 3 if "backward.retain_graph" in offered.keywords else 1

    def more(draw: Draw, case: Case) -> Case:
        program = case.the_program
        found = [n for n in _tracked(program, results=True) if n in program.reached()]
        names = {"number": draw(st.sampled_from(found)), "passes": draw(st.integers(1, most))}
        retained = "retain_grad" in offered.features and draw(st.booleans())
        return replace(case, parameters=names | {"retained": retained})

    return then(losses(exact=True, apart=True)(offered), more)
