"""Strategies of cases: each is a function from what an implementation offers to a Hypothesis strategy.

    @given(graphs(root="scalar", passes=numbers(1, 4)))

draws a program whose root has one element and the parameter `case["passes"]`. Strategies draw only what is declared;
what a strategy needs and does not find raises Unsupported with its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gradspec.adapter import Unsupported
from gradspec.capabilities import Capabilities
from gradspec.programs.building import SHAPES, Builder, Draw, dyadics, root_of
from gradspec.programs.forward import feeding
from gradspec.programs.operations import OPERATIONS, REAL, Shape
from gradspec.programs.program import Case, Input, Program, Root, Step

CaseStrategy = Callable[[Capabilities], st.SearchStrategy[Case]]
Parameter = Callable[[Draw, Program, Capabilities], Any]
"""Draws one parameter of a case, given its program and what the implementation offers."""

ENGINE = ("mul", "add", "sum")
"""Operations without which no program can be drawn; `sum` is not asked of scalar engines."""


def graphs(
    *,
    steps: tuple[int, int] = (1, 9),
    operations: Sequence[str] = REAL,
    exact: bool = False,
    root: str = "any",
    seed: str = "any",
    roots: tuple[int, int] = (1, 1),
    ensure: str | None = None,
    saves: bool | None = None,
    views: bool = True,
    apart: bool = False,
    frozen: bool = True,
    constants: int = 0,
    min_leaves: int = 1,
    dtype: str | None = None,
    keep: Callable[[Program], bool] | None = None,
    **parameters: Parameter,
) -> CaseStrategy:
    """Cases with a program.

    Args:
        steps: fewest and most steps, before those that a root needs.
        operations: names to draw from, as far as they are offered.
        exact: only operations that are exact on dyadic values.
        root: "any", "scalar" (one element) or "several" (two or more).
        seed: "any", "implicit" or "explicit"; "any" is implicit, and any root scalar, where seeds are not offered.
        roots: fewest and most roots.
        ensure: an operation that the program contains on a recorded way to each root.
        saves: True: a step that must save a value lies on the way to the root; False: no step saves, but for the
            multiplications of `apart` and `constants`.
        views: False leaves out operations that return views.
        apart: every leaf enters through a multiplication by one, so that no gradient is a view of another.
        frozen: some inputs may not require grad, where that is offered.
        constants: fewest inputs that do not require grad, each multiplied into the root.
        min_leaves: fewest leaves.
        dtype: the element type; drawn from the real floating types on offer by default.
        keep: a condition on the program; others are discarded.
        **parameters: further parameters of the case.
    """

    def strategy(offered: Capabilities) -> st.SearchStrategy[Case]:
        names = [
            n for n in operations if n in offered.operations and _allowed(n, exact=exact, saves=saves, views=views)
        ]
        for needed in ENGINE[: 2 if offered.max_rank == 0 else 3]:
            offered.require(needed)
        if not names:
            raise Unsupported(f"operation {' or '.join(operations)}")
        if ensure is not None:
            offered.require(ensure)
        if root == "several" and not offered.max_rank:
            raise Unsupported("tensors of two or more elements")
        dtypes = [dtype] if dtype else [d for d in ("float64", "float32") if d in offered.dtypes]
        if not dtypes or dtypes[0] not in offered.dtypes:
            raise Unsupported(f"dtype {dtype or 'float64 or float32'}")

        # without seeds only a root of one element can be walked back from
        seedless = seed == "any" and "seed" not in offered.features
        kind, given = ("scalar" if seedless and root == "any" else root), ("implicit" if seedless else seed)
        mixed = frozen and "frozen" in offered.features

        @st.composite
        def cases(draw: Draw) -> Case:
            builder = Builder(draw, names, offered.max_rank)
            program = _drawn(draw, builder, steps, kind, given, roots, ensure, saves, mixed, min_leaves, dtypes)
            program = entering_by_one(program) if apart else program
            for _ in range(constants):
                program = times_a_constant(program, dyadics(draw, 1))
            drawn = {name: parameter(draw, program, offered) for name, parameter in parameters.items()}
            return Case(program, parameters=drawn)

        strategy: st.SearchStrategy[Case] = cases()
        return strategy if keep is None else strategy.filter(lambda case: keep(case.the_program))

    return strategy


def saving_once(**options: Any) -> CaseStrategy:
    """Cases whose program saves a value in one operation only, any of the table, on the way to its root.

    `options` are those of `graphs`. With a second saving operation on the way, a pass over a freed graph would be
    refused by that one, whatever the first does.
    """

    def strategy(offered: Capabilities) -> st.SearchStrategy[Case]:
        saving = [n for n in REAL if n in offered.operations and OPERATIONS[n].saves]
        # a scalar engine takes elementwise operations only
        taken = [n for n in saving if offered.max_rank >= 2 or OPERATIONS[n].min_rank <= offered.max_rank]
        if not taken:
            raise Unsupported("an operation that saves a value")
        each = {name: graphs(saves=False, ensure=name, **options)(offered) for name in taken}
        return st.sampled_from(taken).flatmap(each.__getitem__)

    return strategy


_WAYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "backward": (frozenset(), frozenset()),
    "inputs": (frozenset({"backward.inputs"}), frozenset({"backward.inputs"})),
    "many": (frozenset({"backward.many"}), frozenset({"backward_many.retain_graph", "backward_many.create_graph"})),
    "twice": (frozenset({"backward.many"}), frozenset({"backward_many.retain_graph"})),
    "no_grad": (frozenset({"no_grad"}), frozenset()),
    "create_graph": (frozenset({"higher"}), frozenset({"backward.create_graph"})),
    "gradients": (frozenset({"grad"}), frozenset()),
}
"""Ways to ask for a pass, each with the features and the keywords that it needs."""


def _offers(offered: Capabilities, features: frozenset[str], keywords: frozenset[str]) -> bool:
    return features <= offered.features and keywords <= offered.keywords


def ways_of_passing(*asked: str) -> Parameter:
    """How a pass is asked for (`Run.pass_by`): one of `asked`, the first of which every implementation offers.

    "backward": plainly. "inputs": restricted to all leaves that are reached. "many": as one of a list of roots.
    "twice": with the root listed twice. "no_grad": while nothing is recorded. "create_graph": recorded. "gradients".
    """

    def parameter(draw: Draw, _program: Program, offered: Capabilities) -> Any:
        return draw(st.sampled_from([way for way in asked if _offers(offered, *_WAYS[way])]))

    return parameter


def unary(*names: str, **parameters: Parameter) -> CaseStrategy:
    """Cases whose program is one operation of `names` on one leaf; their first derivative depends on the leaf alone.

    `parameters` are further parameters of the case.
    """

    def strategy(offered: Capabilities) -> st.SearchStrategy[Case]:
        found = [n for n in names if n in offered.operations]
        if not found:
            raise Unsupported(f"operation {' or '.join(names)}")

        @st.composite
        def cases(draw: Draw) -> Case:
            name = draw(st.sampled_from(found))
            shape = draw(st.sampled_from([s for s in SHAPES if len(s) <= offered.max_rank]))
            attributes = (("exponent", draw(st.sampled_from((2, 3)))),) if name == "pow" else ()
            values = dyadics(draw, math.prod(shape), positive=OPERATIONS[name].domain != "any")
            leaf = Input(shape, values, offered.real_dtype, requires_grad=True)
            program = Program((leaf,), (Step(name, (0,), attributes),))
            program = program.with_roots(root_of(draw, program, 1, "any"))
            return Case(program, parameters={name: p(draw, program, offered) for name, p in parameters.items()})

        found_strategy: st.SearchStrategy[Case] = cases()
        return found_strategy

    return strategy


def _allowed(name: str, *, exact: bool, saves: bool | None, views: bool) -> bool:
    operation = OPERATIONS[name]
    return (
        (not exact or operation.exact) and (saves is not False or not operation.saves) and (views or not operation.view)
    )


def _drawn(
    draw: Draw,
    builder: Builder,
    steps: tuple[int, int],
    root: str,
    seed: str,
    roots: tuple[int, int],
    ensure: str | None,
    saves: bool | None,
    frozen: bool,
    min_leaves: int,
    dtypes: Sequence[str],
) -> Program:
    low, high = steps
    count = draw(st.integers(low, high))
    # the list of operations first: see building.py
    for name in [draw(st.sampled_from(builder.operations)) for _ in range(count)]:
        builder.grow(name)
    if ensure is not None and not builder.after(ensure):
        builder.grow(ensure)
    if not builder.steps:
        builder.add("add", (builder.new_input(()), builder.new_input(())), {})
    join = "add" if saves is False else "mul"
    chosen = [_root_value(draw, builder, root, saves, ensure, join) for _ in range(draw(st.integers(*roots)))]
    while len(builder.used()) < min_leaves:
        chosen[0] = builder.add(join, (chosen[0], builder.new_input(())), {})[0]
    # mostly leaves: a constant now and then
    flags = (lambda _n: draw(st.integers(0, 4)) != 4) if frozen else (lambda _n: True)
    program, numbers = builder.finish(chosen, draw(st.sampled_from(list(dtypes))), flags)
    ensured = [] if ensure is None else [_on_the_way(program, ensure, n) for n in numbers]
    program = tracking(program, [*numbers, *ensured], min_leaves)
    return replace(program, roots=tuple(root_of(draw, program, n, seed) for n in numbers))


def _on_the_way(program: Program, op: str, root: int) -> int:
    """The number of a result of `op` that `root` depends on."""
    wanted = feeding(program, [root])
    return next(n for step, results in program.results() if step.op == op for n in results if n in wanted)


def _root_value(draw: Draw, builder: Builder, root: str, saves: bool | None, ensure: str | None, join: str) -> int:
    results = sorted(builder.after(ensure) if ensure else (n for n in builder.facts if n >= 0), reverse=True)
    # mostly the last value; sometimes an earlier one, which leaves consumers dangling
    value = results[0] if draw(st.integers(0, 2)) else draw(st.sampled_from(results[:20]))
    if root == "several":
        value = builder.several(value, join)
    if saves:
        value = builder.add("mul", (value, value), {})[0]
    return builder.scalar(value) if root == "scalar" else value


def tracking(program: Program, numbers: Sequence[int], min_leaves: int = 1) -> Program:
    """The program with enough flags set that every root requires grad and `min_leaves` leaves exist."""
    real = [n for n, i in enumerate(program.inputs) if i.dtype.startswith(("float", "complex"))]
    flags = {n for n in real if program.inputs[n].requires_grad}
    wide = replace(program, inputs=tuple(replace(i, requires_grad=n in real) for n, i in enumerate(program.inputs)))
    for root in numbers:
        ancestors = [n for n in real if n in wide.reached(root)]
        if ancestors and not flags.intersection(ancestors):
            flags.add(ancestors[0])
    for n in real:
        if len(flags) < min_leaves:
            flags.add(n)
    inputs = tuple(replace(i, requires_grad=n in flags) for n, i in enumerate(program.inputs))
    return replace(program, inputs=inputs)


def entering_by_one(program: Program) -> Program:
    """The same program, every leaf entering through a multiplication by a constant one."""
    leaves, count = program.leaves, len(program.inputs)
    dtype = program.inputs[leaves[0]].dtype if leaves else "float64"
    one = Input((), (1.0,), dtype)
    entered = {leaf: count + 1 + at for at, leaf in enumerate(leaves)}
    shift = 1 + len(leaves)

    def renumber(value: int) -> int:
        return entered.get(value, value) if value < count else value + shift

    entries = tuple(Step("mul", (leaf, count)) for leaf in leaves)
    steps = tuple(replace(s, operands=tuple(renumber(o) for o in s.operands)) for s in program.steps)
    roots = tuple(replace(r, value=renumber(r.value)) for r in program.roots)
    return Program((*program.inputs, one), entries + steps, roots)


def times_a_constant(program: Program, values: Sequence[Any]) -> Program:
    """The same program, its first root multiplied by a constant of one element."""
    root, dtype = program.roots[0], program.inputs[program.leaves[0]].dtype
    constant, at = len(program.inputs), len(program.shapes()) + 1
    moved = root.value if root.value < constant else root.value + 1
    longer = with_steps(program, [Step("mul", (moved, constant))], [Input((), tuple(values), dtype)])
    return longer.with_roots(Root(at, root.seed), *longer.roots[1:])


# -- parameters ------------------------------------------------------------------------------------


def numbers(low: int, high: int) -> Parameter:
    """A whole number in a range of at most 100 values."""
    assert high - low < 100
    return lambda draw, _program, _offered: draw(st.integers(low, high))


def one_of(*choices: Any) -> Parameter:
    """One of at most 100 choices."""
    assert len(choices) <= 100
    return lambda draw, _program, _offered: draw(st.sampled_from(choices))


def in_slots() -> Parameter:
    """Whether to ask for gradients by backward, in slots, and not by `gradients`; never with a seed where none goes."""

    def parameter(draw: Draw, program: Program, offered: Capabilities) -> Any:
        seeded = any(root.seed is not None for root in program.roots)
        return draw(st.booleans()) and ("seed" in offered.features or not seeded)

    return parameter


def seeds(count: int = 1) -> Parameter:
    """`count` further seeds of the first root's shape, flat."""

    def parameter(draw: Draw, program: Program, _offered: Capabilities) -> Any:
        size = math.prod(program.shapes()[program.roots[0].value])
        return tuple(dyadics(draw, size) for _ in range(count))

    return parameter


def other_shape(shape: Shape, offered: Capabilities) -> st.SearchStrategy[Shape]:
    """Shapes that differ from `shape`: of another rank, of other sizes, or broadcastable to it."""
    same_rank = [tuple(n + 1 for n in shape), tuple(1 for _ in shape)]
    near = [(*shape, 1), (1, *shape), shape[1:], (), (1,), (2,), (3,), *same_rank]
    return st.sampled_from([s for s in dict.fromkeys(near) if s != shape and len(s) <= offered.max_rank])


def misfit() -> Parameter:
    """The number of a value that requires grad, often of an intermediate, and a shape that is not its own."""

    def parameter(draw: Draw, program: Program, offered: Capabilities) -> Any:
        owner = tracked_value()(draw, program, offered)
        return owner, draw(other_shape(program.shapes()[owner], offered))

    return parameter


def subset_of_leaves(*, proper: bool = False, nonempty: bool = True) -> Parameter:
    """Numbers of some of the leaves."""

    def parameter(draw: Draw, program: Program, _offered: Capabilities) -> Any:
        leaves = program.leaves
        chosen = tuple(n for n in leaves if draw(st.booleans()))
        if proper and len(chosen) == len(leaves):
            chosen = chosen[:-1]
        return chosen or (tuple(leaves[:1]) if nonempty else ())

    return parameter


def tracked_value(*, leaves: bool = True, reached: bool | None = None, roots: bool = True) -> Parameter:
    """The number of a value that requires grad, None where there is none.

    `reached` asks for (or against) a path to the roots; `leaves` and `roots` allow those.
    """

    def parameter(draw: Draw, program: Program, _offered: Capabilities) -> Any:
        on_path, starts = program.reached(), {root.value for root in program.roots}
        found = [
            n
            for n, flag in enumerate(program.tracked())
            if flag
            and (leaves or n >= len(program.inputs))
            and (roots or n not in starts)
            and (reached is None or (n in on_path) == reached)
        ]
        return draw(st.sampled_from(found[-50:])) if found else None

    return parameter


# -- transformations of programs -------------------------------------------------------------------


def with_steps(program: Program, steps: Sequence[Step], inputs: Sequence[Input] = ()) -> Program:
    """The program with inputs and steps appended; operands of `steps` are numbered in the result."""
    count, more = len(program.inputs), len(inputs)

    def renumber(value: int) -> int:
        return value if value < count else value + more

    old = tuple(replace(s, operands=tuple(renumber(o) for o in s.operands)) for s in program.steps)
    roots = tuple(Root(renumber(r.value), r.seed) for r in program.roots)
    return Program((*program.inputs, *inputs), (*old, *steps), roots)


def two_losses(program: Program) -> Program:
    """Two losses over the first root: its double, twice, by additions, which save nothing of their own."""
    shared, count = program.roots[0], len(program.shapes())
    size = math.prod(program.shapes()[shared.value])
    seed = shared.seed if shared.seed or size == 1 else (1.0,) * size
    steps = (*program.steps, *2 * [Step("add", (shared.value, shared.value))])
    return Program(program.inputs, steps, (Root(count, seed), Root(count + 1, seed)))
