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
from gradspec.programs.operations import OPERATIONS, Shape
from gradspec.programs.oracles import is_exact
from gradspec.programs.program import Case, Input, Program, Root, Step
from gradspec.programs.strategies import CaseStrategy, Parameter, graphs, with_steps

Cases = st.SearchStrategy[Case]

COMPLEX = ("neg", "square", "add", "sub", "mul", "sum", "clone", "conj")
"""Operations that take complex operands to complex results."""


def losses(**keywords: Any) -> CaseStrategy:
    """Programs whose root has one element and no seed: what every implementation can walk back from."""

    def strategy(offered: Capabilities) -> Cases:
        frozen = "frozen" in offered.features
        return graphs(root="scalar", seed="implicit", frozen=frozen, **keywords)(offered)

    return strategy


def _then(cases: Cases, more: Callable[[Draw, Case], Case]) -> Cases:
    """Draw a case and make another of it."""

    @st.composite
    def strategy(draw: Draw) -> Case:
        return more(draw, draw(cases))

    made: Cases = strategy()
    return made


def _drawn(draws: Callable[[Draw], Case]) -> Cases:
    @st.composite
    def strategy(draw: Draw) -> Case:
        return draws(draw)

    made: Cases = strategy()
    return made


# -- pieces of programs ----------------------------------------------------------------------------------------------------


def _dtype(program: Program) -> str:
    return program.inputs[program.leaves[0]].dtype


def _leaf(draw: Draw, shape: Shape, dtype: str, *, tracked: bool = True) -> Input:
    return Input(shape, dyadics(draw, math.prod(shape)), dtype, tracked)


def _shape(draw: Draw, offered: Capabilities, *, least: int = 0) -> Shape:
    shapes = [s for s in SHAPES if least <= len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported(f"tensors of {least} axes")
    shape: Shape = draw(st.sampled_from(shapes))
    return shape


def _size(program: Program, value: int) -> int:
    return math.prod(program.shapes()[value])


def appended(program: Program, op: str, *operands: int, **attributes: Any) -> Program:
    """The program with one more step."""
    return replace(program, steps=(*program.steps, Step(op, operands, tuple(sorted(attributes.items())))))


def scalar(program: Program, value: int) -> tuple[Program, int]:
    """The program with a one-element value made of `value` by a sum, and its number; nothing where it has one element."""
    if _size(program, value) == 1:
        return program, value
    return appended(program, "sum", value, dim=None, keepdim=False), len(program.shapes())


def onto_root(program: Program, op: str, extra: Input) -> Program:
    """The program whose first root is joined with a new input by an operation of two operands."""
    at, longer = len(program.inputs), with_steps(program, (), [extra])
    count = len(longer.shapes())
    return appended(longer, op, longer.roots[0].value, at).with_roots(Root(count))


def with_sum(program: Program, value: int) -> Program:
    """The program whose root is the sum of its first root and of all elements of `value`."""
    root = program.roots[0].value
    program, part = scalar(program, value)
    return appended(program, "add", root, part).with_roots(Root(len(program.shapes())))


# -- roots and seeds -------------------------------------------------------------------------------------------------------


def one_element_roots(offered: Capabilities) -> Cases:
    """Roots of one element and of one axis or more, a leaf among them."""
    if not offered.max_rank:
        raise Unsupported("tensors with axes")

    def more(draw: Draw, case: Case) -> Case:
        extra = _leaf(draw, (1,) * draw(st.integers(1, min(3, offered.max_rank))), _dtype(case.the_program))
        if draw(st.integers(0, 4)) == 0:
            return Case(Program((extra,), (), (Root(0),)))
        return Case(onto_root(case.the_program, "mul", extra))

    return _then(losses()(offered), more)


def empty_roots(offered: Capabilities) -> Cases:
    """Roots without elements."""
    shapes = [s for s in SHAPES if 0 in s and len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported("tensors without elements")

    def more(draw: Draw, case: Case) -> Case:
        extra = _leaf(draw, draw(st.sampled_from(shapes)), _dtype(case.the_program), tracked=draw(st.booleans()))
        return Case(onto_root(case.the_program, "mul", extra))

    return _then(losses()(offered), more)


def mismatched_seeds(offered: Capabilities) -> Cases:
    """Programs and `case["shape"]`, another shape than the root's: one that broadcasts, one of other sizes."""

    def more(draw: Draw, case: Case) -> Case:
        shape = case.the_program.shapes()[case.the_program.roots[0].value]
        near = [(*shape, 1), (1, *shape), shape[1:], (), (1,), (2,), (3,), tuple(n + 1 for n in shape), (1,) * len(shape)]
        others = [s for s in dict.fromkeys(near) if s != shape and len(s) <= offered.max_rank]
        return replace(case, parameters={"shape": draw(st.sampled_from(others))})

    if not offered.max_rank:
        raise Unsupported("tensors with axes")
    return _then(graphs(seed="explicit")(offered), more)


def complex_graphs(*, root: str = "any") -> CaseStrategy:
    """Programs on complex values, with complex seeds."""

    def strategy(offered: Capabilities) -> Cases:
        return _then(graphs(operations=COMPLEX, dtype="complex128", root=root, seed="explicit")(offered), more)

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

    return _then(graphs(dtype="float64", seed="explicit")(offered), more)


def leaf_roots(offered: Capabilities) -> Cases:
    """A leaf as root, of any shape where seeds are on offer, and consumers of it that do not matter."""

    def more(draw: Draw, case: Case) -> Case:
        seeded = "seed" in offered.features and draw(st.booleans())
        shape = _shape(draw, offered) if seeded else ()
        at = len(case.the_program.inputs)
        leaf = _leaf(draw, shape, _dtype(case.the_program))
        program = with_steps(case.the_program, [Step("mul", (at, at))] if draw(st.booleans()) else [], [leaf])
        root = Root(at, dyadics(draw, math.prod(shape)) if seeded else None)
        return Case(program.with_roots(root), parameters={"passes": draw(st.integers(1, 3))})

    return _then(losses(exact=True)(offered), more)


def several_roots(kind: str, *, count: tuple[int, int] = (2, 3), **parameters: Parameter) -> CaseStrategy:
    """Programs with several roots and unequal seeds.

    Args:
        kind: "apart": distinct, none computed from another. "nested": distinct, one computed from another at least.
            "repeated": one of them stands twice or more. "implicit": apart, with at least one of one element unseeded.
        count: fewest and most roots.
        **parameters: further parameters of the case.
    """

    def more(draw: Draw, case: Case) -> Case:
        number = draw(st.integers(*count))
        program, values = _ROOTS[kind](draw, case.the_program, number)
        roots = [Root(v, _seed(draw, program, v, at)) for at, v in enumerate(values)]
        if kind == "implicit":
            few = [n for n, r in enumerate(roots) if _size(program, r.value) == 1]
            roots = [Root(r.value) if n == few[0] or (n in few and draw(st.booleans())) else r for n, r in enumerate(roots)]
        program = program.with_roots(*draw(st.permutations(roots)))
        return Case(program, parameters={name: parameter(draw, program) for name, parameter in parameters.items()})

    def strategy(offered: Capabilities) -> Cases:
        return _then(graphs(exact=True, apart=True, seed="explicit")(offered), more)

    return strategy


def _seed(draw: Draw, program: Program, value: int, at: int) -> tuple[Any, ...]:
    """Never zero, and other numbers for each place in the list."""
    return tuple(v + 2 * at for v in dyadics(draw, _size(program, value), nonzero=True))


def _tracked(program: Program, *, results: bool = False) -> list[int]:
    first = len(program.inputs) if results else 0
    return [n for n, flag in enumerate(program.tracked()) if flag and n >= first][-50:]


def _sinks(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    """Roots that nothing is computed from: each a new result."""
    found = []
    for _ in range(number):
        value = draw(st.sampled_from(_tracked(program)[: len(program.tracked()) - len(found)]))
        value = program.roots[0].value if value in found else value
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
    """One value twice or more, and perhaps another."""
    value = draw(st.sampled_from(_tracked(program)))
    more = [draw(st.sampled_from(_tracked(program)))] if draw(st.booleans()) else []
    return program, [value] * number + more


def _one_unseeded(draw: Draw, program: Program, number: int) -> tuple[Program, list[int]]:
    program, found = _sinks(draw, program, number)
    if any(_size(program, value) == 1 for value in found):
        return program, found
    program, single = scalar(program, found[0])
    return program, [single, *found[1:]]


_ROOTS: Mapping[str, Callable[[Draw, Program, int], tuple[Program, list[int]]]] = {
    "apart": _sinks,
    "nested": _chain,
    "repeated": _repeats,
    "implicit": _one_unseeded,
}


def untracked(program: Program) -> Program:
    """The program in which no input that reaches a root requires grad."""
    reached = program.reached()
    inputs = (replace(i, requires_grad=i.requires_grad and n not in reached) for n, i in enumerate(program.inputs))
    return replace(program, inputs=tuple(inputs))


def combined_seeds(offered: Capabilities) -> Cases:
    """Exact programs, two seeds `case["u"]` and `case["w"]`, and the numbers `case["a"]` and `case["b"]`."""

    def more(draw: Draw, case: Case) -> Case:
        size = _size(case.the_program, case.the_program.roots[0].value)
        names = {"a": draw(st.integers(-3, 3)), "b": draw(st.integers(-3, 3))}
        return replace(case, parameters=names | {"u": dyadics(draw, size), "w": dyadics(draw, size)})

    def exact(case: Case) -> bool:
        # of this size and granularity are all seeds that the law combines
        root = case.the_program.roots[0]
        wide = Root(root.value, (12.125,) * _size(case.the_program, root.value))
        return is_exact(case.the_program.with_roots(wide))

    return _then(graphs(exact=True, apart=True, seed="explicit")(offered), more).filter(exact)


# -- leaves: used often, not reached, reached with nothing ---------------------------------------------------------------------


def reached_leaves(*, proper: bool = False) -> Parameter:
    """Numbers of some of the leaves that reach a root; `proper` leaves another leaf out where there is one."""

    def parameter(draw: Draw, program: Program) -> Any:
        found = [n for n in program.leaves if n in program.reached()]
        chosen = tuple(n for n in found if draw(st.booleans()))
        if proper and len(chosen) == len(program.leaves) > 1:
            chosen = chosen[1:]
        return chosen or tuple(found[:1])

    return parameter


def unreached(offered: Capabilities) -> Cases:
    """A leaf `case["leaf"]` that no path leads to, its product `case["inner"]` and loss `case["loss"]`.

    A consumer of both the loss and the root dangles behind the root.
    """

    def more(draw: Draw, case: Case) -> Case:
        leaf = len(case.the_program.inputs)
        program = with_steps(case.the_program, [], [_leaf(draw, _shape(draw, offered), _dtype(case.the_program))])
        root, inner = program.roots[0].value, len(program.shapes())
        program, loss = scalar(appended(program, "mul", leaf, leaf), inner)
        if draw(st.booleans()):
            program = appended(program, "mul", root, loss)
        names = {"leaf": leaf, "inner": inner, "loss": loss, "filled": draw(st.booleans())}
        return Case(program, parameters=names)

    return _then(losses(exact=True, apart=True)(offered), more)


def zero_derivatives(offered: Capabilities) -> Cases:
    """A leaf `case["leaf"]` on which the root depends by a recorded path, with a derivative of zero."""
    ways = ["times", *(name for name in ("sub", "narrow") if name in offered.operations)]

    def more(draw: Draw, case: Case) -> Case:
        way = draw(st.sampled_from(ways))
        shape = _shape(draw, offered, least=1) if way == "narrow" and offered.max_rank else _shape(draw, offered)
        dtype, leaf = _dtype(case.the_program), len(case.the_program.inputs)
        zero = Input((), (0.0,), dtype)
        program = with_steps(case.the_program, [], [_leaf(draw, shape, dtype), zero])
        value = len(program.shapes())
        if way == "sub":
            program = appended(program, "sub", leaf, leaf)
        elif way == "narrow" and shape:
            program = appended(program, "narrow", leaf, dim=0, start=0, length=0)
        else:
            program = appended(program, "mul", leaf, leaf + 1)
        return Case(with_sum(program, value), parameters={"leaf": leaf})

    return _then(losses()(offered), more)


def reused_leaves(offered: Capabilities) -> Cases:
    """One leaf, number 0, that is used one to twelve times: in a chain, or twice by one operation."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape, dtype = _shape(draw, offered), offered.real_dtype
        few = st.sampled_from((1.0, 2.0, -1.0, 0.5, 0.0))
        leaf = Input(shape, tuple(draw(few) for _ in range(math.prod(shape))), dtype, requires_grad=True)
        program, last = Program((leaf, Input((), (draw(few),), dtype))), 1
        left = draw(st.integers(1, 12))
        while left:
            twice = left > 1 and draw(st.integers(0, 5)) == 0
            op = draw(st.sampled_from(("mul", "add")))
            if twice:
                program, last = appended(appended(program, op, 0, 0), "add", last, len(program.shapes())), last
            else:
                program = appended(program, op, *((0, last) if draw(st.booleans()) else (last, 0)))
            last, left = len(program.shapes()) - 1, left - 1 - twice
        program, last = scalar(program, last)
        return Case(program.with_roots(Root(last)))

    return _drawn(draws)


def one_leaf_per_use(program: Program, leaf: int) -> tuple[Program, list[int]]:
    """The program in which each use of a leaf has a leaf of its own with the same values, and their numbers."""
    uses = sum(step.operands.count(leaf) for step in program.steps)
    first = len(program.inputs)
    longer = with_steps(program, [], [program.inputs[leaf]] * uses)
    fresh = iter(range(first, first + uses))
    steps = tuple(replace(s, operands=tuple(next(fresh) if o == leaf else o for o in s.operands)) for s in longer.steps)
    return replace(longer, steps=steps), list(range(first, first + uses))


def diamonds(offered: Capabilities) -> Cases:
    """Intermediates that several later ones consume, over paths of different lengths; the leaf enters once."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape, dtype = _shape(draw, offered), offered.real_dtype
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

    return _drawn(draws)


def unsaved_leaves(offered: Capabilities) -> Cases:
    """Programs whose leaves enter through the addition of zero, which saves nothing; `case["write"]` changes a leaf."""

    def more(draw: Draw, case: Case) -> Case:
        program = case.the_program
        inputs = (*program.inputs[:-1], replace(program.inputs[-1], values=(0.0,)))
        steps = (*(replace(s, op="add") for s in program.steps[: len(program.leaves)]), *program.steps[len(program.leaves) :])
        write = draw(st.sampled_from((("add", 1.0), ("mul", 3.0), ("fill", 5.0), ("zero",))))
        return Case(replace(program, inputs=inputs, steps=steps), parameters={"write": write})

    return _then(losses(apart=True)(offered), more)


# -- sums and unused branches --------------------------------------------------------------------------------------------------


def summands(offered: Capabilities) -> Cases:
    """Two to five roots of one element, and `case["order"]` in which to add them; see `summed`."""

    def more(draw: Draw, case: Case) -> Case:
        program, found = case.the_program, [case.the_program.roots[0].value]
        for value in [draw(st.sampled_from(_tracked(program))) for _ in range(draw(st.integers(1, 4)))]:
            program, single = scalar(program, value)
            found.append(single)
        program = program.with_roots(*(Root(value) for value in found))
        return Case(program, parameters={"order": tuple(draw(st.permutations(range(len(found)))))})

    return _then(losses(exact=True, apart=True)(offered), more)


def summed(program: Program, order: Sequence[int]) -> Program:
    """The program whose one root is the sum of its roots, added in this order."""
    values = [program.roots[n].value for n in order]
    total = values[0]
    for value in values[1:]:
        program, total = appended(program, "add", total, value), len(program.shapes())
    return program.with_roots(Root(total))


def paddings(offered: Capabilities) -> Cases:
    """Programs and `case["padding"]`: (position, operation, value or -1 for the last padding); see `padded`."""
    names = [name for name in ("mul", "add", "neg") if name in offered.operations]

    def parameter(draw: Draw, program: Program) -> Any:
        found = []
        for _ in range(draw(st.integers(1, 5))):
            position = draw(st.integers(0, len(program.steps)))
            done = replace(program, steps=program.steps[:position])
            value = draw(st.sampled_from([*_tracked(done), -1]))
            found.append((position, draw(st.sampled_from(names)), value))
        return tuple(sorted(found))

    return losses(exact=True, apart=True, padding=parameter)(offered)


def padded(program: Program, padding: Sequence[tuple[int, str, int]]) -> tuple[Program, list[int]]:
    """The program with unused steps between its own, and the numbers of their results."""
    steps: list[Step] = []
    number = {n: n for n in range(len(program.inputs))}
    at, unused = len(program.inputs), []
    results = list(program.results())
    for position in range(len(results) + 1):
        for _, op, value in (p for p in padding if p[0] == position):
            operand = unused[-1] if value < 0 and unused else number[max(value, 0)]
            steps.append(Step(op, (operand,) * OPERATIONS[op].arity))
            unused.append(at)
            at += 1
        if position < len(results):
            step, old = results[position]
            steps.append(replace(step, operands=tuple(number[o] for o in step.operands)))
            number |= {n: at + k for k, n in enumerate(old)}
            at += len(old)
    roots = tuple(replace(r, value=number[r.value]) for r in program.roots)
    return Program(program.inputs, tuple(steps), roots), unused


def partly_used(offered: Capabilities) -> Cases:
    """An operation with several results of which the root uses some; `case["unused"]` are the numbers of the others."""
    names = [name for name in ("split", "unbind") if name in offered.operations]
    if not names:
        raise Unsupported("operation split or unbind")
    offered.require("mul", "add", "sum")

    def draws(draw: Draw) -> Case:
        name, length, dtype = draw(st.sampled_from(names)), draw(st.integers(2, 5)), offered.real_dtype
        rest = draw(st.sampled_from([s for s in ((), (2,), (1,), (0,)) if len(s) < offered.max_rank]))
        leaf, one = _leaf(draw, (length, *rest), dtype), Input((), (1.0,), dtype)
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

    return _drawn(draws)


def times_zero(program: Program, values: Sequence[int]) -> Program:
    """The program with the sums of some values, times zero, added to its root."""
    zero, first = len(program.inputs), len(program.shapes())
    program = with_steps(program, [], [Input((), (0.0,), _dtype(program))])
    for value in values:
        moved = value + 1 if first > value >= zero else value
        count = len(program.shapes())
        program = with_sum(appended(program, "mul", moved, zero), count)
    return program


# -- memory --------------------------------------------------------------------------------------------------------------------


def _view(draw: Draw, name: str, shape: Shape, most: int) -> dict[str, Any] | None:
    """Attributes with which a view operation takes a shape; None where it does not."""
    rank, size = len(shape), math.prod(shape)
    if name == "reshape":
        return {"shape": draw(st.sampled_from([s for s in ((size,), (1, size), (size, 1)) if len(s) <= most]))}
    if name == "unsqueeze" and rank < most:
        return {"dim": draw(st.integers(0, rank))}
    if name == "transpose" and rank:
        return {"dim0": draw(st.integers(0, rank - 1)), "dim1": rank - 1}
    if name == "permute":
        return {"dims": tuple(draw(st.permutations(range(rank))))}
    if name == "squeeze" and rank:
        return {"dim": draw(st.integers(0, rank - 1))}
    if name == "expand" and rank < most:
        return {"shape": (draw(st.integers(1, 2)), *shape)}
    return None


def through_views(offered: Capabilities) -> Cases:
    """Leaves that enter through the same views and meet in an addition, a cat, a stack, or as roots with one seed.

    Without seeds on offer the root is a sum. `case["passes"]` is a number of passes.
    """
    names = ("reshape", "unsqueeze", "transpose", "permute", "squeeze", "expand")
    views = [name for name in names if name in offered.operations]
    if not views or not offered.max_rank:
        raise Unsupported("a view operation")
    offered.require("add", "mul", "sum")
    seeded = "seed" in offered.features
    meetings = ["add", "add", *(name for name in ("cat", "stack") if name in offered.operations)]
    meetings += ["roots"] if seeded and "backward.many" in offered.features else []

    def draws(draw: Draw) -> Case:
        shape, count = draw(st.sampled_from([s for s in ((2,), (1,), (2, 3), (3, 1)) if len(s) <= offered.max_rank])), 0
        count = draw(st.integers(1, 3))
        program = Program(tuple(_leaf(draw, shape, offered.real_dtype) for _ in range(count)))
        ends = list(range(count))
        for name in [draw(st.sampled_from(views)) for _ in range(draw(st.integers(0, 2)))]:
            attributes = _view(draw, name, program.shapes()[ends[0]], offered.max_rank)
            for n in ends if attributes is not None else []:
                program = appended(program, name, n, **(attributes or {}))
            ends = list(range(len(program.shapes()) - count, len(program.shapes()))) if attributes is not None else ends
        program = _met(draw, program, ends, draw(st.sampled_from(meetings)), offered.max_rank)
        if seeded and (len(program.roots) > 1 or draw(st.booleans())):
            seed = dyadics(draw, _size(program, program.roots[0].value), nonzero=True)
            program = program.with_roots(*(Root(r.value, seed) for r in program.roots))
        else:
            program, single = scalar(program.with_roots(program.roots[0]), program.roots[0].value)
            program = program.with_roots(Root(single))
        return Case(program, parameters={"passes": draw(st.integers(2, 3))})

    return _drawn(draws)


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

    `case["turn"]` says how leaves lie in memory (`passes.laid`).
    """
    offered.require("permute", "narrow", "expand", "mul", "sum")
    shapes = [s for s in ((2, 3), (2, 2), (3, 2), (2, 1, 2), (2, 2, 3), (3, 1)) if len(s) <= offered.max_rank]
    if not shapes:
        raise Unsupported("tensors of two axes")

    def more(draw: Draw, case: Case) -> Case:
        shape, leaf, dtype = draw(st.sampled_from(shapes)), len(case.the_program.inputs), _dtype(case.the_program)
        new = [_leaf(draw, shape, dtype), _leaf(draw, shape, dtype, tracked=False)]
        program = with_steps(case.the_program, [], new)
        for way in [draw(st.sampled_from(("alone", "constant", "square", "turned"))) for _ in range(draw(st.integers(1, 2)))]:
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

    return _then(losses()(offered), more)


# -- recorded passes and intermediates -----------------------------------------------------------------------------------------


def polynomials(offered: Capabilities) -> Cases:
    """`case["shape"]`, `case["x"]`, and coefficients `case["first"]`, `case["second"]` of a x + b x^2 + c x^3."""
    offered.require("mul", "add", *(("sum",) if offered.max_rank else ()))

    def draws(draw: Draw) -> Case:
        shape = _shape(draw, offered)
        few = st.integers(-3, 3)
        names = {name: tuple(float(draw(few)) for _ in range(3)) for name in ("first", "second")}
        return Case(parameters=names | {"shape": shape, "x": dyadics(draw, math.prod(shape)), "old": draw(st.booleans())})

    return _drawn(draws)


def inner_values(offered: Capabilities) -> Cases:
    """Programs, an intermediate on the way to the root, and how many passes are to be run over the graph."""
    most = 3 if "backward.retain_graph" in offered.keywords else 1

    def more(draw: Draw, case: Case) -> Case:
        program = case.the_program
        found = [n for n in _tracked(program, results=True) if n in program.reached()]
        return replace(case, parameters={"number": draw(st.sampled_from(found)), "passes": draw(st.integers(1, most))})

    return _then(losses(exact=True, apart=True)(offered), more)
