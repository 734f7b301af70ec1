"""The judgement of gradients: expected values, exactness, tolerance, and what two oracles say.

Two oracles, independent of each other: dual numbers (`dual.py`) judge, central differences (`differences.py`) give the
second opinion. Neither contains a tape: gradients come from dense Jacobians of the program or of its pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gradspec.programs import differences, dual
from gradspec.programs.forward import Array, Kink, evaluate, feeding, seeds
from gradspec.programs.operations import OPERATIONS
from gradspec.programs.program import Program, Step

DUAL_NUMBERS = "dual numbers"
CENTRAL_DIFFERENCES = "central differences"
SHAPE = "the shape of the value"

DIGITS = {"float64": 53, "complex128": 53, "float32": 24, "complex64": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of each floating dtype."""

CACHED = 256
RUNS = 3


@dataclass(frozen=True)
class Judgement:
    """What the oracles say of a finding.

    Attributes:
        agrees: every finding is what was asked for.
        oracle: which oracle judged: "dual numbers", "central differences", or "the shape of the value".
        expected: what it expects (of the first value that disagrees, else of the last one that was judged).
        found: what was found there; None where nothing was found.
        other: one phrase that says what the second oracle holds of the finding, or that it was not asked.
        value: the number of that value; None where no value was judged.
    """

    agrees: bool
    oracle: str
    expected: Array | None
    found: Array | None
    other: str = "not asked"
    value: int | None = None


class Tolerance(NamedTuple):
    """|found - expected| <= atol + rtol * |expected|, element by element."""

    rtol: float
    atol: float


def forget() -> None:
    """Drop everything that was cached: for tests that change the rules."""
    for cached in (_gradients, _cotangents, _noise, _bounds):
        cached.cache_clear()


def gradients(program: Program) -> dict[int, Array]:
    """The expected gradient of every leaf (cached; the arrays are read-only).

    Returns:
        Number of a leaf to an array of its shape, float64 or complex128; zeros where no root is reached.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    return dict(_gradients(program))


def cotangents(program: Program) -> dict[int, Array]:
    """The expected gradient of every tracked value, leaf or result, from which a path leads to a root (cached).

    Each is the derivative of the rest of the program with respect to that value, which is made an input.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    return dict(_cotangents(program))


@lru_cache(maxsize=CACHED)
def _gradients(program: Program) -> Mapping[int, Array]:
    return _frozen(dual.expected_gradients(program))


@lru_cache(maxsize=CACHED)
def _cotangents(program: Program) -> Mapping[int, Array]:
    return _frozen(dual.expected_gradients(program, sorted(program.reached())))


def _frozen(arrays: dict[int, Array]) -> dict[int, Array]:
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def refuses(program: Program) -> bool:
    """Whether the dual oracle does not judge the program: a kink, or a gradient (of any value) that is not finite."""
    try:
        _cotangents(program)
    except Kink:
        return True
    return False


@np.errstate(all="ignore")
def cut_gradients(
    program: Program, hooks: Mapping[int, Callable[[Array], Array]], at: Collection[int] = ()
) -> dict[int, Array]:
    """Gradients when the whole cotangent of some values is mapped before it goes further.

    The program is cut at the hooked values. Dense Jacobians of the pieces, by dual numbers, carry a cotangent from a
    cut to the cuts, leaves and asked values before it; the maps stand in between.

    Args:
        program: the program with its roots.
        hooks: number of a tracked value to its map; it is called once, and not at all where no root is reached.
        at: numbers of further tracked values whose gradient is asked for; of a hooked one that after the map.

    Returns:
        For every leaf, and every number in `at`, an array of the value's shape; zeros where no root is reached.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    values, reached = evaluate(program), program.reached()
    cuts = {n for n in hooks if n in reached}
    moving = sorted(reached.intersection({*program.leaves, *cuts, *at}))
    pieces = dual.tangents(program, values, moving, cut=cuts, within=reached)
    pairings = np.zeros(pieces.count)
    for number, seed in seeds(program, values).items():
        pairings = pairings + pieces.paired(pieces.moved[number], seed)
    mapped = {}
    for number in sorted(cuts, reverse=True):  # a value depends on earlier numbers only
        mapped[number] = np.asarray(hooks[number](pieces.gathered(number, pairings)))
        if number in pieces.arriving:
            pairings = pairings + pieces.paired(pieces.arriving[number], mapped[number])
    result = {n: np.zeros_like(values[n]) for n in {*program.leaves, *at}}
    result |= {n: pieces.gathered(n, pairings) for n in moving if n in result}
    return result | {n: mapped[n] for n in cuts if n in result}


# Exactness: a bound for every value and every cotangent


class Bound(NamedTuple):
    """Every element is at most `size` in magnitude and a multiple of 2^-bits."""

    size: float
    bits: int

    def times(self, other: Bound, count: float = 1) -> Bound:
        """A bound for a sum of `count` products."""
        return Bound(count * self.size * other.size, self.bits + other.bits)

    def plus(self, other: Bound) -> Bound:
        """A bound for a sum of two."""
        return Bound(self.size + other.size, max(self.bits, other.bits))

    def fits(self, digits: int) -> bool:
        """Whether a floating-point number with this many significant bits holds every such element."""
        return self.bits <= 2 * digits and self.size * 2.0**self.bits <= 2.0**digits


ZERO = Bound(0, 0)
ONE = Bound(1, 0)


def is_exact(program: Program) -> bool:
    """Whether all values, gradients and partial sums are representable, so that results are compared with `==`.

    True only where inputs and seeds are multiples of 1/8 of magnitude at most 64, every operation on the way to a root
    is exact, and the bounds of sizes and of binary places, followed forward through the values and backward through the
    cotangents, stay within the significant bits of the narrowest dtype. False says nothing.
    """
    return _bounds(program)


@lru_cache(maxsize=CACHED)
def _bounds(program: Program) -> bool:
    used, results = feeding(program, [root.value for root in program.roots]), list(program.results())
    digits, values = DIGITS[narrowest(program)], evaluate(program)
    shapes = [value.shape for value in values]
    bounds = [_dyadic(values[n]) if n in used else ZERO for n in range(len(program.inputs))]
    for step, numbers in results:
        needed = not used.isdisjoint(numbers)
        bound = _value_bound(step, [bounds[o] or ZERO for o in step.operands], values) if needed else ZERO
        if bound is None or not bound.fits(digits):
            return False
        bounds.extend(bound for _ in numbers)
    if None in bounds:
        return False
    back = {n: _dyadic(seed) for n, seed in seeds(program, values).items()}
    if None in back.values():
        return False
    cotangent = {n: b for n, b in back.items() if b is not None}
    for step, numbers in reversed(results):
        arriving = [cotangent[n] for n in numbers if n in cotangent]
        if arriving:
            given = Bound(max(b.size for b in arriving), max(b.bits for b in arriving))
            for position, operand in enumerate(step.operands):
                if operand not in used or OPERATIONS[step.op].role(position) != "value":
                    continue
                local = _local_bound(step, position, [bounds[o] or ZERO for o in step.operands], values)
                fan = _fan(step, position, shapes, shapes[numbers[0]])
                total = cotangent.get(operand, ZERO).plus(given.times(local, fan))
                if not total.fits(digits):
                    return False
                cotangent[operand] = total
    return True


def _dyadic(array: Array) -> Bound | None:
    """A bound for given numbers; None where one is no multiple of 1/8 or is larger than 64."""
    parts = np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array
    flat = np.abs(parts.astype(np.float64)).reshape(parts.size) * 8
    if not flat.size:
        return ZERO
    size = float(flat.max())
    if not size <= 512 or np.any(flat != np.floor(flat)):
        return None
    whole = int(np.bitwise_or.reduce(flat.astype(np.int64)))
    return Bound(size / 8, next(b for b in (0, 1, 2, 3) if whole % (8 >> b) == 0))


def _twice(step: Step, values: Sequence[Array]) -> int:
    """Each part of a product of complex numbers is a sum of two products."""
    return 2 if any(values[o].dtype.kind == "c" for o in step.operands) else 1


def _value_bound(step: Step, x: Sequence[Bound], values: Sequence[Array]) -> Bound | None:
    """A bound for the results and all partial sums on the way to them; None where the operation rounds."""
    operation, first = OPERATIONS[step.op], values[step.operands[0]]
    if not operation.exact:
        return None
    if step.op in ("add", "sub"):
        return x[0].plus(x[1])
    if step.op in ("mul", "matmul", "square"):
        terms = first.shape[-1] if step.op == "matmul" else 1
        return x[0].times(x[-1], _twice(step, values) * terms)
    if step.op == "pow":  # a library may compute higher powers by exp and log
        return {0: ONE, 1: x[0], 2: x[0].times(x[0])}.get(step.keywords["exponent"])
    if step.op in ("sum", "cumsum"):
        dim = step.keywords["dim"]
        return Bound(x[0].size * (first.size if dim is None else first.shape[dim]), x[0].bits)
    kept = [b for at, b in enumerate(x) if operation.role(at) == "value"]
    return Bound(max(b.size for b in kept), max(b.bits for b in kept))


def _local_bound(step: Step, position: int, x: Sequence[Bound], values: Sequence[Array]) -> Bound:
    """A bound for the derivatives of one result element with respect to one element of an operand."""
    if step.op in ("mul", "matmul"):
        return x[1 - position]._replace(size=_twice(step, values) * x[1 - position].size)
    if step.op == "square" or (step.op == "pow" and step.keywords["exponent"] == 2):
        return Bound(2 * _twice(step, values) * x[0].size, x[0].bits)
    return ONE


def _fan(step: Step, position: int, shapes: Sequence[tuple[int, ...]], result: tuple[int, ...]) -> float:
    """To how many result elements one element of an operand contributes, at most."""
    operand = shapes[step.operands[position]]
    if step.op == "cumsum":
        return float(operand[step.keywords["dim"]])
    if step.op == "index_select":
        return shapes[step.operands[1]][0]
    if step.op == "matmul":
        other = shapes[step.operands[1 - position]]
        return 1 if len(other) == 1 else other[1 - position]
    if step.op in ("add", "sub", "mul", "where", "expand"):
        return math.prod(result) / max(1, math.prod(operand))
    return 1


# Tolerance: the one place


def narrowest(program: Program) -> str:
    """The dtype with the fewest significant bits among the inputs; float64 where none is floating."""
    return min((i.dtype for i in program.inputs if i.dtype in DIGITS), key=DIGITS.__getitem__, default="float64")


@np.errstate(all="ignore")
def tolerance(program: Program, dtype: str | None = None, value: int | None = None) -> Tolerance:
    """How far a right implementation may be from the exact gradient of a program that is not exact.

    The relative part is a few units of rounding for each step. The absolute part comes from the condition of the
    program: every value, and every tangent at every use, is disturbed by one unit of rounding, at random but always
    the same, and the largest movement of the gradient that this causes in a few runs is taken sixteen times.

    Args:
        program: the program with its roots.
        dtype: the dtype it is computed in; None means the narrowest of its inputs.
        value: number of a reached value; None takes the worst of all reached values.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    name = dtype or narrowest(program)
    noise = _noise(program, name)
    moved = noise.get(value, 0.0) if value is not None else max(noise.values(), default=0.0)
    rtol, tiny = _narrow_tolerance(program, name)
    return Tolerance(rtol, tiny + 16 * moved)


def _narrow_tolerance(program: Program, dtype: str) -> Tolerance:
    """The part that does not depend on the condition: whatever is within is within the tolerance."""
    smallest = 2.0**-24 if dtype == "float16" else 2.0**-126
    return Tolerance(8 * 2.0 ** (1 - DIGITS[dtype]) * (1 + len(program.steps)), smallest)


@lru_cache(maxsize=CACHED)
def _noise(program: Program, dtype: str) -> Mapping[int, float]:
    """For every reached value the largest movement of its gradient under disturbances of one rounding each."""
    unit = 2.0 ** (1 - DIGITS[dtype])
    amplitude = max(unit, 2.0**-36)  # well above the rounding of this computation itself
    moved = dict.fromkeys(_cotangents(program), 0.0)
    for run in range(RUNS):
        random = np.random.default_rng(run)

        def disturb(array: Array, random: np.random.Generator = random) -> Array:
            if array.dtype.kind not in "fc":
                return array
            # between half a rounding and a whole one: equal sizes could cancel, as in the two parts of x / x
            signs: Array = random.choice((-1.0, 1.0), array.shape) * random.uniform(0.5, 1.0, array.shape)
            if array.dtype.kind == "c":  # each part of a product rounds like the larger one
                signs = signs + 1j * random.choice((-1.0, 1.0), array.shape) * random.uniform(0.5, 1.0, array.shape)
            return np.asarray(array * (1 + amplitude * signs))

        for number, noisy in dual.expected_gradients(program, list(moved), disturb).items():
            distance = np.abs(noisy - _cotangents(program)[number])
            moved[number] = max(moved[number], float(distance.max(initial=0.0)) * unit / amplitude)
    return moved


# Judgement


def _equal(found: Array, expected: Array, within: Tolerance) -> bool:
    close = np.abs(found - expected) <= within.atol + within.rtol * np.abs(expected)
    return bool(np.all(close | (found == expected) | (np.isnan(found) & np.isnan(expected))))


def _within(program: Program, number: int, found: Array, expected: Array) -> bool:
    """Equality where the program is exact; else the tolerance, whose condition is found only where it matters."""
    if is_exact(program):
        return _equal(found, expected, Tolerance(0, 0))
    narrow = _narrow_tolerance(program, narrowest(program))
    return _equal(found, expected, narrow) or _equal(found, expected, tolerance(program, None, number))


def _opinion(program: Program, number: int, found: Array) -> tuple[bool | None, Array | None]:
    """What central differences say of a finding: agree or not, None where they cannot tell."""
    try:
        expected, spread = differences.difference_estimates(program, [number])[number]
    except Kink:
        return None, None
    if not np.all(np.isfinite(expected)):  # the step leaves the domain of an operation
        return None, None
    values = evaluate(program)
    size = sum(float(np.sum(np.abs(v * values[n]))) for n, v in seeds(program, values).items())
    rtol = max(1e-5, 64 * 2.0 ** (1 - DIGITS[narrowest(program)]))
    floor = 1e-12 if is_exact(program) else tolerance(program, None, number).atol
    atol = floor + 1e-9 * size + rtol * float(np.abs(expected).max(initial=0.0))
    return bool(np.all(np.abs(found - expected) <= atol + rtol * np.abs(expected) + spread)), expected


_PHRASES = {True: "agree with the finding", False: "disagree with the finding", None: "cannot judge here"}


@np.errstate(all="ignore")
def judge(
    program: Program,
    found: Mapping[int, Array | None],
    *,
    both: bool = False,
    wrt: Sequence[int] | None = None,
) -> Judgement:
    """Judge gradients against the oracles.

    Args:
        program: the program with its roots.
        found: number of a value (leaf or tracked result) to the gradient that was found there, None for none.
        both: ask central differences even where dual numbers agree, and agree only if both do.
        wrt: numbers that must have been found; None means every leaf that reaches a root. What was found beyond them
            is judged too; None is right where no root is reached.

    Returns:
        The judgement of the first value that disagrees, else of the last.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    needed = list(wrt or ())
    if wrt is None and not found.keys() >= set(program.leaves):
        needed = sorted(program.reached().intersection(program.leaves))
    expected = gradients(program)
    numbers = sorted({*needed, *found})
    if any(n not in expected for n in numbers):
        expected |= cotangents(program)
    verdict = Judgement(True, DUAL_NUMBERS, None, None)
    for number in numbers:
        verdict = _judge_one(program, number, found.get(number), expected.get(number), both=both)
        if not verdict.agrees:
            break
    return verdict


def _judge_one(program: Program, number: int, raw: Array | None, expected: Array | None, *, both: bool) -> Judgement:
    if raw is None or expected is None:
        agrees = raw is None and number not in program.reached()
        return Judgement(agrees, DUAL_NUMBERS, expected, raw, value=number)
    found = np.asarray(raw)
    if found.shape != expected.shape or (found.dtype.kind == "c" and expected.dtype.kind != "c"):
        return Judgement(False, SHAPE, expected, found, value=number)
    agrees = _within(program, number, found, expected)
    if agrees and not both:
        return Judgement(True, DUAL_NUMBERS, expected, found, value=number)
    opinion, other = _opinion(program, number, found)
    if agrees and opinion is False:
        phrase = f"{DUAL_NUMBERS} agree with the finding"
        return Judgement(False, CENTRAL_DIFFERENCES, other, found, phrase, number)
    return Judgement(agrees, DUAL_NUMBERS, expected, found, f"{CENTRAL_DIFFERENCES} {_PHRASES[opinion]}", number)


@np.errstate(all="ignore")
def judge_pairing(program: Program, found: Mapping[int, Array], direction: int) -> Judgement:
    """Judge gradients by one number: <v, J u> = <J^T v, u> along a direction u of all the leaves.

    Args:
        program: the program with its roots.
        found: number of a leaf to the gradient that was found; a leaf left out stands still.
        direction: chooses the direction; the same number gives the same direction always.

    Returns:
        A judgement whose `expected` and `found` are the two sides of the equation, 0-d.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    random, values = np.random.default_rng(direction), evaluate(program)
    ways: dict[int, Array] = {}
    for number in sorted(found):
        way = random.integers(-8, 9, values[number].shape) / 8
        if values[number].dtype.kind == "c":
            way = way + 1j * random.integers(-8, 9, values[number].shape) / 8
        ways[number] = np.asarray(way)
    pushed = dual.pushforward(program, ways, targets=[root.value for root in program.roots])
    tracked = program.tracked()
    roots = {n: v for n, v in seeds(program, values).items() if tracked[n]}
    left = sum(float(np.sum(np.conj(v) * pushed[n].tangent).real) for n, v in roots.items())
    right, slack = 0.0, 0.0
    for number, way in ways.items():
        gradient = np.asarray(found[number], dtype=way.dtype)
        right += float(np.sum(np.conj(gradient) * way).real)
        if left != right:
            within = tolerance(program, None, number)
            slack += float(np.sum((within.atol + within.rtol * np.abs(gradient)) * np.abs(way)))
    return Judgement(abs(left - right) <= slack, DUAL_NUMBERS, np.asarray(left), np.asarray(right))
