"""How a program is drawn: the operations first, then operands that fit or are made to fit, the values last.

Drawn the other way round (values, then whatever operation fits them) most programs have one step and `matmul` never
comes. The draws use only small integer ranges and short `sampled_from`, since Hypothesis mixes literals of loaded
modules into wider ones, which would make a run depend on what else is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gradspec.programs.operations import OPERATIONS, Operation, Shape, broadcast
from gradspec.programs.program import Input, Program, Root, Scalar, Step

Draw = Callable[[st.SearchStrategy[Any]], Any]

MAX_ELEMENTS = 12
"""Largest tensor of a program."""

MAX_MAGNITUDE = 2.0**14
"""Bound of the magnitude of values, so that nothing overflows and small programs stay exact."""

SHAPES: tuple[Shape, ...] = (
    (2,), (), (3,), (1,), (2, 3), (0,), (2, 2), (1, 2), (3, 1), (2, 0), (1, 1), (0, 2), (2, 1, 2), (1, 2, 1),
)  # fmt: skip
"""Shapes of new inputs, simplest first: every rank, axes of size 0 and 1 among them."""


@dataclass(frozen=True)
class Fact:
    """What is known of a value before numbers are drawn: its shape and bounds of its elements."""

    shape: Shape
    low: float
    high: float

    @property
    def positive(self) -> bool:
        """Whether every element is so far above zero that its reciprocal and logarithm stay small, in float32 too."""
        return self.low * MAX_MAGNITUDE >= 1

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def magnitude(self) -> float:
        """The largest possible absolute value."""
        return max(abs(self.low), abs(self.high))


@dataclass
class _Slot:
    """A new input whose values are drawn last. `kind`: "any", "positive", "index" (below `limit`) or "mask"."""

    shape: Shape
    kind: str = "any"
    limit: int = 0


class Builder:
    """A program under construction. Value numbers: inputs are negative until `finish` numbers everything."""

    def __init__(self, draw: Draw, operations: Sequence[str], max_rank: int) -> None:
        self.draw, self.max_rank = draw, min(max_rank, 3)
        takes = [
            name
            for name in operations
            if OPERATIONS[name].min_rank <= self.max_rank and (self.max_rank or _works_on_scalars(OPERATIONS[name]))
        ]
        # arithmetic comes three times as often: it is what joins branches and broadcasts
        self.operations = (*takes, *(2 * [name for name in takes if OPERATIONS[name].arity == 2 and name != "complex"]))
        self.shapes = tuple(s for s in SHAPES if len(s) <= self.max_rank)
        self.inputs: list[_Slot] = []
        self.steps: list[tuple[str, tuple[int, ...], dict[str, Any], int]] = []
        self.facts: dict[int, Fact] = {}
        self._results = 0

    # -- values ------------------------------------------------------------------------------------------------------

    def new_input(self, shape: Shape, kind: str = "any", limit: int = 0) -> int:
        """Add an input; its number is negative for now."""
        self.inputs.append(_Slot(shape, kind, limit))
        number = -len(self.inputs)
        self.facts[number] = Fact(shape, 0.125, 2.0) if kind == "positive" else Fact(shape, -2.0, 2.0)
        return number

    def fresh(self, operation: Operation) -> int:
        """A new input that `operation` takes."""
        shapes = [s for s in self.shapes if len(s) >= operation.min_rank]
        kind = "positive" if operation.domain != "any" else "any"
        return self.new_input(self.draw(st.sampled_from(shapes)), kind)

    def existing(self, fits: Callable[[Fact], bool]) -> list[int]:
        """The numbers of the values that fit, newest results first, then inputs."""
        order = [*sorted((n for n in self.facts if n >= 0), reverse=True), *sorted(n for n in self.facts if n < 0)]
        return [n for n in order if self._is_value(n) and fits(self.facts[n])]

    def _is_value(self, number: int) -> bool:
        return number >= 0 or self.inputs[-number - 1].kind in ("any", "positive")

    def choose(self, fits: Callable[[Fact], bool], make: Callable[[], int], *, new_in: int = 4) -> int:
        """An existing value that fits or, about once in `new_in` draws or where there is none, a new one."""
        candidates = self.existing(fits)[:20]
        way = self.draw(st.integers(0, 2 * new_in - 1))
        if not candidates or way >= 2 * new_in - 2:
            return make()
        # the newest value half of the time: programs grow deep, and still fan out
        return candidates[0] if way % 2 == 0 else int(self.draw(st.sampled_from(candidates)))

    # -- steps -------------------------------------------------------------------------------------------------------

    def add(self, name: str, operands: Sequence[int], attributes: Mapping[str, Any]) -> list[int]:
        """Add a step and return the numbers of its results."""
        operation = OPERATIONS[name]
        shapes = operation.shapes([self.facts[o].shape for o in operands], attributes)
        low, high = bounds(operation, [self.facts[o] for o in operands], attributes)
        numbers = [self._results + n for n in range(len(shapes))]
        self.steps.append((name, tuple(operands), dict(attributes), len(shapes)))
        for number, shape in zip(numbers, shapes, strict=True):
            self.facts[number] = Fact(shape, low, high)
        self._results += len(shapes)
        return numbers

    def grow(self, name: str) -> None:
        """Add a step of the named operation, with operands that fit or are made to fit."""
        operation = OPERATIONS[name]
        wanted = self._wanted(operation)
        first = self.choose(wanted, lambda: self.fresh(operation))
        if not wanted(self.facts[first]):  # a fresh input of any shape: only its rank and domain are asked
            first = self.new_input(_nonempty(self.facts[first].shape, operation), self._kind(operation))
        operands, attributes = _COMPLETE.get(name, _complete_unary)(self, operation, first)
        result = operation.shapes([self.facts[o].shape for o in operands], attributes)
        low, high = bounds(operation, [self.facts[o] for o in operands], attributes)
        too_large = any(math.prod(s) > MAX_ELEMENTS or len(s) > self.max_rank for s in result)
        if too_large or max(abs(low), abs(high)) > MAX_MAGNITUDE:
            return self._grow_small(operation)
        self.add(name, operands, attributes)
        return None

    def _grow_small(self, operation: Operation) -> None:
        """The same operation on a new input of one element, which always fits."""
        first = self.new_input((1,) * operation.min_rank, self._kind(operation))
        if operation.name == "where":
            self.add("where", (self.new_input((), "mask"), first, first), {})
        elif operation.arity == -1:
            self.add(operation.name, (first,), {"dim": 0})
        elif operation.arity == 2 and not operation.roles:
            self.add(operation.name, (first, first), {})
        else:
            self.add(operation.name, *_COMPLETE.get(operation.name, _complete_unary)(self, operation, first))

    def _kind(self, operation: Operation) -> str:
        return "positive" if operation.domain != "any" else "any"

    def _wanted(self, operation: Operation) -> Callable[[Fact], bool]:
        def fits(fact: Fact) -> bool:
            if not operation.min_rank <= len(fact.shape) <= self.max_rank:
                return False
            if operation.domain != "any" and operation.name != "div" and not fact.positive:
                return False
            if operation.name in ("unsqueeze", "stack", "expand") and len(fact.shape) >= self.max_rank:
                return False
            if operation.name in ("select", "unbind") and fact.shape[0] == 0:
                return False
            return operation.name != "matmul" or len(fact.shape) <= 2

        return fits

    def scalar(self, number: int) -> int:
        """A one-element value made from `number`."""
        if self.facts[number].size == 1 or not self.max_rank:
            return number
        return self.add("sum", (number,), {"dim": None, "keepdim": False})[0]

    def several(self, number: int, by: str = "mul") -> int:
        """A value of two or more elements made from `number`, joined with a new input `by` an operation."""
        if self.facts[number].size > 1:
            return number
        # an empty value cannot be enlarged, but its sum can
        return self.add(by, (self.scalar(number), self.new_input((2,))), {})[0]

    def used(self) -> set[int]:
        """The numbers of the new inputs that take part as values: what nothing uses is dropped at the end."""
        return {o for _, operands, _, _ in self.steps for o in operands if o < 0 and self._is_value(o)}

    def after(self, name: str) -> set[int]:
        """The numbers of the values that depend on a step of the named operation."""
        found: set[int] = set()
        at = 0
        for op, operands, _, count in self.steps:
            if op == name or found.intersection(operands):
                found.update(range(at, at + count))
            at += count
        return found

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, roots: Sequence[int], dtype: str, tracked: Callable[[int], bool]) -> tuple[Program, list[int]]:
        """Number the values, drop inputs that nothing uses, draw flags and values.

        Returns:
            The program without roots, and the numbers of `roots` in it.
        """
        used = {o for _, operands, _, _ in self.steps for o in operands if o < 0} | {r for r in roots if r < 0}
        kept = [n for n in range(-1, -len(self.inputs) - 1, -1) if n in used]
        number = {old: new for new, old in enumerate(kept)}
        at = len(kept)

        def renumber(n: int) -> int:
            return number[n] if n < 0 else at + n

        steps = tuple(
            Step(name, tuple(renumber(o) for o in operands), tuple(sorted(attributes.items())))
            for name, operands, attributes, _ in self.steps
        )
        inputs = tuple(self._filled(self.inputs[-old - 1], dtype, tracked(new)) for new, old in enumerate(kept))
        return Program(inputs, steps), [renumber(r) for r in roots]

    def _filled(self, slot: _Slot, dtype: str, tracked: bool) -> Input:
        size = math.prod(slot.shape)
        if slot.kind == "index":
            values = [self.draw(st.integers(0, slot.limit - 1)) for _ in range(size)]
            return Input(slot.shape, tuple(values), "int64")
        if slot.kind == "mask":
            return Input(slot.shape, tuple(self.draw(st.booleans()) for _ in range(size)), "bool")
        return Input(slot.shape, dyadics(self.draw, size, positive=slot.kind == "positive"), dtype, tracked)


def dyadics(draw: Draw, size: int, *, positive: bool = False, nonzero: bool = False) -> tuple[Scalar, ...]:
    """Multiples of 1/8 in [-2, 2]; often small whole numbers, so that zeros and ties come."""
    low = 1 if positive or nonzero else -16
    eighths = st.integers(low, 16)
    coarse = st.sampled_from((8, 16, 1) if positive or nonzero else (0, 8, -8, 16))
    source = coarse if draw(st.integers(0, 2)) == 0 else eighths
    return tuple(draw(source) / 8 for _ in range(size))


def _works_on_scalars(operation: Operation) -> bool:
    shape_only = operation.view or operation.roles or operation.name in ("flip", "stack", "sum", "mean")
    return operation.min_rank == 0 and not shape_only


def _nonempty(shape: Shape, operation: Operation) -> Shape:
    rank = max(len(shape), operation.min_rank)
    if operation.name in ("unsqueeze", "stack", "expand"):
        rank = min(rank, 1)
    if operation.name == "matmul":
        rank = min(rank, 2)
    return tuple(n or 1 for n in shape[:rank]) + (1,) * (rank - len(shape[:rank]))


# -- bounds ----------------------------------------------------------------------------------------


def bounds(operation: Operation, facts: Sequence[Fact], attributes: Mapping[str, Any]) -> tuple[float, float]:
    """Lower and upper bound of the elements of the results."""
    low, high = facts[0].low, facts[0].high
    top = max(fact.magnitude for fact in facts)
    rule = _BOUNDS.get(operation.name)
    if rule is not None:
        return rule(facts, attributes)
    if operation.view or operation.name in ("flip", "clone", "index_select", "real"):
        return low, high
    if operation.name in ("cat", "stack", "where"):
        parts = facts[1:] if operation.name == "where" else facts
        return min(f.low for f in parts), max(f.high for f in parts)
    if operation.name == "cos":
        return -1.0, 1.0
    return -top, top  # neg, abs, relu, sin, tanh: never larger


def _add_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return facts[0].low + facts[1].low, facts[0].high + facts[1].high


def _sub_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return facts[0].low - facts[1].high, facts[0].high - facts[1].low


def _mul_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    corners = [a * b for a in (facts[0].low, facts[0].high) for b in (facts[1].low, facts[1].high)]
    return min(corners), max(corners)


def _div_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    top = facts[0].magnitude / facts[1].low
    return (facts[0].low / facts[1].high if facts[0].positive else -top), top


def _reciprocal_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return 1 / facts[0].high, 1 / facts[0].low


def _exp_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return math.exp(min(facts[0].low, 20.0)), math.exp(min(facts[0].high, 20.0))


def _log_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return math.log(facts[0].low), math.log(facts[0].high)


def _sqrt_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return math.sqrt(facts[0].low), math.sqrt(facts[0].high)


def _sigmoid_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return (1 / (1 + math.exp(-facts[0].low)) if facts[0].low > -30 else 0.0), 1.0


def _pow_bounds(facts: Sequence[Fact], attributes: Mapping[str, Any]) -> tuple[float, float]:
    top = max(1.0, facts[0].magnitude) ** attributes["exponent"]
    return (facts[0].low ** attributes["exponent"] if facts[0].positive else -top), top


def _square_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    return (facts[0].low ** 2 if facts[0].positive else 0.0), facts[0].magnitude ** 2


def _sum_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    # a sum may be empty: its lower bound is never above zero
    return min(0.0, facts[0].low * facts[0].size), facts[0].magnitude * max(1, facts[0].size)


def _matmul_bounds(facts: Sequence[Fact], _attributes: Mapping[str, Any]) -> tuple[float, float]:
    top = facts[0].magnitude * facts[1].magnitude * max(1, facts[0].shape[-1])
    return -top, top


_BOUNDS: Mapping[str, Callable[[Sequence[Fact], Mapping[str, Any]], tuple[float, float]]] = {
    "add": _add_bounds,
    "sub": _sub_bounds,
    "mul": _mul_bounds,
    "div": _div_bounds,
    "reciprocal": _reciprocal_bounds,
    "exp": _exp_bounds,
    "log": _log_bounds,
    "sqrt": _sqrt_bounds,
    "sigmoid": _sigmoid_bounds,
    "pow": _pow_bounds,
    "square": _square_bounds,
    "sum": _sum_bounds,
    "mean": _sum_bounds,
    "cumsum": _sum_bounds,
    "matmul": _matmul_bounds,
}


# -- the rest of a step: further operands and attributes -------------------------------------------

Completed = tuple[tuple[int, ...], dict[str, Any]]


def _complete_unary(builder: Builder, operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    axis = st.integers(0, max(0, len(shape) - 1))
    if operation.name == "pow":
        return (first,), {"exponent": draw(st.sampled_from((2, 3)))}
    if operation.name in ("sum", "mean"):
        # the mean of nothing is no number: an empty axis is only summed
        whole = operation.name == "mean" and 0 in shape
        dim = None if not shape or whole else draw(st.sampled_from((None, *range(len(shape)))))
        return (first if not whole else builder.new_input((2,)),), {"dim": dim, "keepdim": draw(st.booleans())}
    if operation.name in ("cumsum", "squeeze"):
        return (first,), {"dim": draw(axis)}
    if operation.name == "unbind":
        return (first,), {"dim": 0}
    if operation.name == "transpose":
        return (first,), {"dim0": draw(axis), "dim1": draw(axis)}
    if operation.name == "unsqueeze":
        return (first,), {"dim": draw(st.integers(0, len(shape)))}
    if operation.name == "permute":
        return (first,), {"dims": tuple(draw(st.permutations(range(len(shape)))))}
    if operation.name == "flip":
        return (first,), {"dims": tuple(d for d in range(len(shape)) if draw(st.booleans()))}
    return (first,), {}


def _complete_shape(builder: Builder, operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    if operation.name == "expand":
        target = tuple(draw(st.integers(1, 3)) if n == 1 else n for n in shape)
        lead = (draw(st.integers(1, 2)),) if len(shape) < builder.max_rank and draw(st.booleans()) else ()
        return (first,), {"shape": (*lead, *target)}
    size = math.prod(shape)
    targets = [s for s in SHAPES if math.prod(s) == size and len(s) <= builder.max_rank]
    targets += [t for t in ((size,), (1, size), (size, 1)) if len(t) <= builder.max_rank and t not in targets]
    return (first,), {"shape": draw(st.sampled_from(targets))}


def _complete_part(builder: Builder, operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    axes = [d for d, n in enumerate(shape) if n or operation.name != "select"]
    dim = draw(st.sampled_from(axes))
    if operation.name == "select":
        return (first,), {"dim": dim, "index": draw(st.integers(0, shape[dim] - 1))}
    if operation.name == "split":
        return (first,), {"dim": dim, "split_size": draw(st.integers(1, max(1, shape[dim])))}
    start = draw(st.integers(0, shape[dim]))
    return (first,), {"dim": dim, "start": start, "length": draw(st.integers(0, shape[dim] - start))}


def _complete_binary(builder: Builder, operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    domain = operation.domain != "any"

    def fits(fact: Fact) -> bool:
        try:
            whole = broadcast(fact.shape, shape)
        except ValueError:
            return False
        return math.prod(whole) <= MAX_ELEMENTS and (not domain or fact.positive)

    def make() -> int:
        # the same shape, a scalar, or the last axes: every way of broadcasting
        shapes = [shape, (), shape[1:], tuple(min(n, 1) for n in shape)]
        if math.prod(shape) == 1 and builder.max_rank:
            shapes += [(3,), (2,)]
        return builder.new_input(draw(st.sampled_from(shapes)), "positive" if domain else "any")

    second = builder.choose(fits, make, new_in=3)
    return ((second, first) if not domain and draw(st.booleans()) else (first, second)), {}


def _complete_where(builder: Builder, _operation: Operation, first: int) -> Completed:
    (a, b), _ = _complete_binary(builder, OPERATIONS["add"], first)
    whole = broadcast(builder.facts[a].shape, builder.facts[b].shape)
    return (builder.new_input(whole, "mask"), a, b), {}


def _complete_matmul(builder: Builder, _operation: Operation, first: int) -> Completed:
    inner = builder.facts[first].shape[-1]

    def fits(fact: Fact) -> bool:
        return len(fact.shape) in (1, 2) and fact.shape[0] == inner

    def make() -> int:
        ranks = [(inner,), (inner, 2), (inner, 1)] if builder.max_rank > 1 else [(inner,)]
        return builder.new_input(builder.draw(st.sampled_from(ranks)))

    return (first, builder.choose(fits, make, new_in=2)), {}


def _complete_join(builder: Builder, operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    joined = operation.name == "cat"
    dim = draw(st.integers(0, len(shape) - joined))
    rest = [n for i, n in enumerate(shape) if i != dim]

    def fits(fact: Fact) -> bool:
        if not joined:
            return fact.shape == shape
        return len(fact.shape) == len(shape) and [n for i, n in enumerate(fact.shape) if i != dim] == rest

    others = draw(st.integers(0, 2))
    more = [builder.choose(fits, lambda: builder.new_input(shape), new_in=3) for _ in range(others)]
    return (first, *more), {"dim": dim}


def _complete_index(builder: Builder, _operation: Operation, first: int) -> Completed:
    shape, draw = builder.facts[first].shape, builder.draw
    dim = draw(st.integers(0, len(shape) - 1))
    length = draw(st.integers(0, 3)) if shape[dim] else 0
    return (first, builder.new_input((length,), "index", shape[dim])), {"dim": dim}


_COMPLETE: Mapping[str, Callable[[Builder, Operation, int], Completed]] = {
    "expand": _complete_shape,
    "reshape": _complete_shape,
    "narrow": _complete_part,
    "select": _complete_part,
    "split": _complete_part,
    "add": _complete_binary,
    "sub": _complete_binary,
    "mul": _complete_binary,
    "div": _complete_binary,
    "where": _complete_where,
    "matmul": _complete_matmul,
    "cat": _complete_join,
    "stack": _complete_join,
    "index_select": _complete_index,
}


def root_of(draw: Draw, program: Program, value: int, seed: str) -> Root:
    """A root with a seed: "implicit" (None), "explicit", or "any" (implicit where the root has one element)."""
    size = math.prod(program.shapes()[value])
    if seed == "implicit" or (seed == "any" and size == 1 and draw(st.booleans())):
        return Root(value)
    return Root(value, dyadics(draw, size))
