"""Exact forward-mode tangents (dual numbers) of programs, and the Jacobians and gradients that follow from them.

A tangent rule says how a result moves when its operands move: the directional derivative, written from the
definition of each function. Every tangent carries a leading axis of directions, so that one pass pushes a whole
basis: the tangent of a value of shape s in k directions has shape (k, *s).

Complex values are pairs of reals: a complex leaf has two directions for each element, 1 and i. With L the real part of
sum(conj(seed) * root), the gradient of a complex value is dL/dRe + i dL/dIm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradspec.programs.forward import FORWARD, Array, Kink, evaluate, feeding, inputs, run, seeds
from gradspec.programs.operations import OPERATIONS, Attributes
from gradspec.programs.program import Program

__all__ = ["DUAL", "Dual", "Kink", "Tangents", "expected_gradients", "jacobian", "pushforward", "tangents", "vjp"]

Values = Sequence[Array]
Rule = Callable[[Values, Values, Attributes], Any]


def _each(op: str) -> Rule:
    """The rule of a linear operation of one operand that treats elements alone: it does to tangents what it does."""

    def rule(_x: Values, t: Values, _a: Attributes) -> Array:
        result: Array = FORWARD[op](t[0])
        return result

    return rule


def _axis(dim: int, rank: int) -> int:
    """The axis of a tangent that belongs to axis `dim` of a value of `rank`: directions come first."""
    return dim % rank + 1


def _lift(tangent: Array, rank: int) -> Array:
    """The tangent of an operand that broadcasts to `rank`: new axes go behind the directions."""
    missing = rank - (tangent.ndim - 1)
    return tangent.reshape(tangent.shape[:1] + (1,) * missing + tangent.shape[1:]) if missing else tangent


def _pair(x: Values, t: Values) -> tuple[Array, Array]:
    rank = max(x[0].ndim, x[1].ndim)
    return _lift(t[0], rank), _lift(t[1], rank)


def _smooth_at(op: str, x: Array) -> None:
    if np.any(x == 0):
        raise Kink(f"{op} is not differentiable at zero, and an operand has an element that is zero")


def _abs(x: Values, t: Values, _a: Attributes) -> Array:
    _smooth_at("abs", x[0])
    return np.where(x[0] > 0, t[0], np.negative(t[0]))


def _relu(x: Values, t: Values, _a: Attributes) -> Array:
    _smooth_at("relu", x[0])
    return np.where(x[0] > 0, t[0], 0)


def _square(x: Values, t: Values, _a: Attributes) -> Array:
    return np.asarray(x[0] * t[0] + t[0] * x[0])


def _reciprocal(x: Values, t: Values, _a: Attributes) -> Array:
    return np.asarray(-t[0] / (x[0] * x[0]))


def _sqrt(x: Values, t: Values, _a: Attributes) -> Array:
    return np.asarray(t[0] / (2 * np.sqrt(x[0])))


def _exp(x: Values, t: Values, _a: Attributes) -> Array:
    return np.exp(x[0]) * t[0]


def _log(x: Values, t: Values, _a: Attributes) -> Array:
    return t[0] / x[0]


def _sin(x: Values, t: Values, _a: Attributes) -> Array:
    return np.cos(x[0]) * t[0]


def _cos(x: Values, t: Values, _a: Attributes) -> Array:
    return -np.sin(x[0]) * t[0]


def _tanh(x: Values, t: Values, _a: Attributes) -> Array:
    small = np.exp(-2 * np.abs(x[0]))  # 1 / cosh(x)^2 without cancellation in the tails
    return np.asarray(4 * small / (1 + small) ** 2 * t[0])


def _sigmoid(x: Values, t: Values, _a: Attributes) -> Array:
    small = np.exp(-np.abs(x[0]))  # the logistic density is even
    return np.asarray(small / (1 + small) ** 2 * t[0])


def _pow(x: Values, t: Values, a: Attributes) -> Array:
    n = a["exponent"]
    return np.zeros_like(t[0]) if n == 0 else n * FORWARD["pow"](x[0], exponent=n - 1) * t[0]


def _add(x: Values, t: Values, _a: Attributes) -> Array:
    left, right = _pair(x, t)
    return left + right


def _sub(x: Values, t: Values, _a: Attributes) -> Array:
    left, right = _pair(x, t)
    return left - right


def _mul(x: Values, t: Values, _a: Attributes) -> Array:
    left, right = _pair(x, t)
    return np.asarray(left * x[1] + x[0] * right)


def _div(x: Values, t: Values, _a: Attributes) -> Array:
    left, right = _pair(x, t)
    return (left - x[0] / x[1] * right) / x[1]


def _where(x: Values, t: Values, _a: Attributes) -> Array:
    rank = max(v.ndim for v in x)
    return np.where(x[0], _lift(t[1], rank), _lift(t[2], rank))


def _sum(x: Values, t: Values, a: Attributes) -> Array:
    rank = x[0].ndim
    axes = tuple(range(1, rank + 1)) if a["dim"] is None else (_axis(a["dim"], rank),)
    return np.asarray(np.sum(t[0], axis=axes, keepdims=a["keepdim"]))


def _mean(x: Values, t: Values, a: Attributes) -> Array:
    count = x[0].size if a["dim"] is None else x[0].shape[a["dim"]]
    return _sum(x, t, a) / np.float64(count)


def _cumsum(x: Values, t: Values, a: Attributes) -> Array:
    return np.cumsum(t[0], axis=_axis(a["dim"], x[0].ndim))


def _matmul(x: Values, t: Values, _a: Attributes) -> Array:
    a, b = x
    moved = np.matmul(t[1], a.T) if b.ndim == 1 else np.matmul(a, t[1])
    return np.asarray(np.matmul(t[0], b) + moved)


def _reshape(_x: Values, t: Values, a: Attributes) -> Array:
    return t[0].reshape(t[0].shape[:1] + tuple(a["shape"]))


def _transpose(x: Values, t: Values, a: Attributes) -> Array:
    return np.swapaxes(t[0], _axis(a["dim0"], x[0].ndim), _axis(a["dim1"], x[0].ndim))


def _permute(_x: Values, t: Values, a: Attributes) -> Array:
    return np.transpose(t[0], (0, *(d + 1 for d in a["dims"])))


def _expand(_x: Values, t: Values, a: Attributes) -> Array:
    return np.broadcast_to(_lift(t[0], len(a["shape"])), t[0].shape[:1] + tuple(a["shape"]))


def _squeeze(x: Values, t: Values, a: Attributes) -> Array:
    return np.squeeze(t[0], axis=_axis(a["dim"], x[0].ndim)) if x[0].shape[a["dim"]] == 1 else t[0]


def _unsqueeze(x: Values, t: Values, a: Attributes) -> Array:
    return np.expand_dims(t[0], _axis(a["dim"], x[0].ndim + 1))


def _flip(x: Values, t: Values, a: Attributes) -> Array:
    return np.flip(t[0], axis=tuple(_axis(d, x[0].ndim) for d in a["dims"]))


def _narrow(x: Values, t: Values, a: Attributes) -> Array:
    kept = range(a["start"], a["start"] + a["length"])
    return np.take(t[0], np.array(kept, dtype=np.int64), axis=_axis(a["dim"], x[0].ndim))


def _select(x: Values, t: Values, a: Attributes) -> Array:
    return np.asarray(np.take(t[0], a["index"], axis=_axis(a["dim"], x[0].ndim)))


def _cat(x: Values, t: Values, a: Attributes) -> Array:
    return np.concatenate(t, axis=_axis(a["dim"], x[0].ndim))


def _stack(x: Values, t: Values, a: Attributes) -> Array:
    return np.stack(t, axis=_axis(a["dim"], x[0].ndim + 1))


def _split(x: Values, t: Values, a: Attributes) -> tuple[Array, ...]:
    axis, size = _axis(a["dim"], x[0].ndim), a["split_size"]
    return tuple(np.split(t[0], list(range(size, t[0].shape[axis], size)), axis=axis))


def _unbind(x: Values, t: Values, a: Attributes) -> tuple[Array, ...]:
    return tuple(np.moveaxis(t[0], _axis(a["dim"], x[0].ndim), 0))


def _index_select(x: Values, t: Values, a: Attributes) -> Array:
    return np.take(t[0], x[1], axis=_axis(a["dim"], x[0].ndim))


def _complex(_x: Values, t: Values, _a: Attributes) -> Array:
    return t[0] + 1j * t[1]


DUAL: dict[str, Rule] = {
    "neg": _each("neg"),
    "abs": _abs,
    "relu": _relu,
    "square": _square,
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "clone": _each("clone"),
    "pow": _pow,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    "cumsum": _cumsum,
    "matmul": _matmul,
    "reshape": _reshape,
    "transpose": _transpose,
    "permute": _permute,
    "expand": _expand,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "flip": _flip,
    "narrow": _narrow,
    "select": _select,
    "cat": _cat,
    "stack": _stack,
    "split": _split,
    "unbind": _unbind,
    "index_select": _index_select,
    "complex": _complex,
    "real": _each("real"),
    "imag": _each("imag"),
    "conj": _each("conj"),
}
"""Every operation by name: from operand values, operand tangents (k, *shape) and attributes to the result's tangent."""

SATURATING = ("tanh", "sigmoid")
"""Their derivative is usually computed from a result close to 1, and then rounds like 1, however small it is."""


@dataclass(frozen=True)
class Dual:
    """A value and its tangent, of the same shape."""

    value: Array
    tangent: Array


@dataclass
class Tangents:
    """The tangents of every value when some values move, each element (and each part of a complex one) alone.

    Attributes:
        values: every value of the program.
        rows: number of a moved value to its directions: its elements in row-major order, then, where it is complex,
            the same for its imaginary parts.
        count: how many directions there are.
        moved: the tangent of every value, (count, *shape); None where it is zero in every direction.
        arriving: for every value that was cut, the tangent that arrived there and went no further.
        own: the movement of each moved value itself, (count, *shape).
    """

    values: list[Array]
    rows: dict[int, slice]
    count: int
    moved: list[Array | None] = field(default_factory=list)
    arriving: dict[int, Array] = field(default_factory=dict)
    own: dict[int, Array] = field(default_factory=dict)

    def paired(self, tangent: Array | None, cotangent: Array) -> Array:
        """The real pairing of a cotangent with a tangent, direction by direction: shape (count,)."""
        if tangent is None:
            return np.zeros(self.count)
        flat = tangent.reshape(self.count, cotangent.size)
        return np.real(flat @ np.conj(cotangent).reshape(cotangent.size))

    def gathered(self, number: int, pairings: Array) -> Array:
        """The gradient of a moved value, of its shape, from the pairings in all directions."""
        like, part = self.values[number], pairings[self.rows[number]]
        if like.dtype.kind == "c":
            return np.asarray(FORWARD["complex"](part[: like.size], part[like.size :]).reshape(like.shape))
        return part.reshape(like.shape).copy()


@np.errstate(all="ignore")
def tangents(
    program: Program,
    values: Sequence[Array],
    moving: Sequence[int],
    *,
    cut: Collection[int] = (),
    within: set[int] | None = None,
    disturb: Callable[[Array], Array] | None = None,
) -> Tangents:
    """Move each value in `moving` element by element and push all these directions through the program at once.

    Args:
        program: the program.
        values: all its values, float64 or complex128.
        moving: numbers of inputs or results; a result moves as if it were an input.
        cut: numbers at which arriving tangents stop (they are reported in `arriving`).
        within: a step is passed only where one of its results is among these numbers; None passes every step.
        disturb: applied to the tangents of operands, anew at every use; for the study of rounding.

    Raises:
        Kink: a moving element meets a point at which the operation is not differentiable.
    """
    rows, at = {}, 0
    for number in moving:
        length = values[number].size * (2 if values[number].dtype.kind == "c" else 1)
        rows[number], at = slice(at, at + length), at + length
    result = Tangents(list(values), rows, at)
    result.own = {number: _basis(result, number) for number in moving}
    _fill(program, result, frozenset(cut), within, disturb)
    return result


def _fill(
    program: Program,
    t: Tangents,
    cut: frozenset[int],
    wanted: set[int] | None,
    disturb: Callable[[Array], Array] | None,
) -> None:
    for number in range(len(program.inputs)):
        _arrive(t, number, None, cut)
    for step, numbers in program.results():
        new: Sequence[Array | None] = (None,) * len(numbers)
        operation, keywords = OPERATIONS[step.op], step.keywords
        moves = any(t.moved[o] is not None for at, o in enumerate(step.operands) if operation.role(at) == "value")
        if moves and (wanted is None or wanted.intersection(numbers)):
            operands = [t.values[o] for o in step.operands]
            moved = [_dense(t, o) for o in step.operands]
            pushed = DUAL[step.op](operands, moved if disturb is None else [disturb(m) for m in moved], keywords)
            if disturb is not None and step.op in SATURATING:
                pushed = pushed + (disturb(moved[0]) - moved[0])
            new = pushed if operation.multi else (pushed,)
        for number, tangent in zip(numbers, new, strict=True):
            _arrive(t, number, tangent, cut)


def _dense(t: Tangents, number: int) -> Array:
    tangent, like = t.moved[number], t.values[number]
    return np.zeros((t.count, *like.shape), np.result_type(like, np.float64)) if tangent is None else tangent


def _arrive(t: Tangents, number: int, tangent: Array | None, cut: frozenset[int]) -> None:
    """Record the tangent of a value: what arrives, unless it is cut, and the value's own movement."""
    if number in cut and tangent is not None:
        t.arriving[number], tangent = tangent, None
    if number in t.own:
        own = t.own[number]
        tangent = own if tangent is None else tangent + own
    t.moved.append(tangent)


def _basis(t: Tangents, number: int) -> Array:
    like, rows = t.values[number], t.rows[number]
    flat = np.zeros((t.count, like.size), np.result_type(like, np.float64))
    elements = np.arange(like.size)
    flat[rows.start + elements, elements] = 1
    if like.dtype.kind == "c":
        flat[rows.start + like.size + elements, elements] = 1j
    return flat.reshape(t.count, *like.shape)


@np.errstate(all="ignore")
def pushforward(program: Program, tangents: Mapping[int, Array], *, targets: Sequence[int] | None = None) -> list[Dual]:
    """Every value with its tangent when inputs move along `tangents`.

    Args:
        program: the program.
        tangents: number of an input to its direction, of the input's shape; inputs not named stand still.
        targets: only what these values depend on is pushed, the other tangents are zero; None pushes through all.

    Raises:
        Kink: a moving value meets a point at which the operation is not differentiable.
    """
    t = Tangents(evaluate(program), {}, 1)
    t.own = {number: np.asarray(direction)[np.newaxis] for number, direction in tangents.items()}
    wanted = None if targets is None else feeding(program, targets)
    _fill(program, t, frozenset(), wanted, None)
    return [Dual(value, _dense(t, number)[0]) for number, value in enumerate(t.values)]


@np.errstate(all="ignore")
def jacobian(program: Program, output: int, input: int) -> Array:
    """The dense Jacobian of one value with respect to another, in float64.

    Args:
        program: the program.
        output: number of any value.
        input: number of an input, or of a result that is then taken for an input.

    Returns:
        Shape (output size, input size). A complex value counts as pairs of reals: its real parts, then its imaginary
        parts, so that a complex output has twice the rows and a complex input twice the columns.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    t = tangents(program, evaluate(program), [input], within=feeding(program, [output]))
    columns = _dense(t, output).reshape(t.count, t.values[output].size)
    parts = [columns.real, columns.imag] if t.values[output].dtype.kind == "c" else [columns]
    return np.concatenate(parts, axis=1).T.copy()


@np.errstate(all="ignore")
def vjp(program: Program, seeds: Mapping[int, Array], wrt: Sequence[int]) -> dict[int, Array]:
    """Gradients of the real part of sum(conj(seed) * value), summed over the seeded values.

    Args:
        program: the program; its roots are not read.
        seeds: number of a value to its cotangent, of the value's shape.
        wrt: numbers of the values that are asked for; a result is then taken for an input.

    Returns:
        For each number in `wrt` an array of that value's shape: float64, or complex128 for a complex value.

    Raises:
        Kink: the program is not differentiable at this point.
    """
    t = tangents(program, evaluate(program), wrt, within=feeding(program, list(seeds)))
    pairings = np.zeros(t.count)
    for number, seed in seeds.items():
        pairings = pairings + t.paired(t.moved[number], seed)
    return {number: t.gathered(number, pairings) for number in wrt}


@np.errstate(all="ignore")
def expected_gradients(
    program: Program,
    wrt: Sequence[int] | None = None,
    disturb: Callable[[Array], Array] | None = None,
) -> dict[int, Array]:
    """The gradients that a backward from the roots leaves: the sum of transposed Jacobians applied to the seeds.

    Args:
        program: the program with its roots; a root without a seed is seeded with ones.
        wrt: numbers of values; None means the leaves. A tracked result is taken for an input.
        disturb: applied to every value, and to the tangents of operands at every use; for the study of rounding.

    Returns:
        For each number an array of that value's shape, float64 or complex128; zeros where no recorded path leads from
        it to a root (`Program.reached` tells these).

    Raises:
        Kink: the program is not differentiable at this point, or its gradient is not finite.
    """
    values = run(program, inputs(program), disturb=disturb)
    numbers = program.leaves if wrt is None else list(wrt)
    reached = program.reached()
    t = tangents(
        program,
        values,
        [n for n in numbers if n in reached],
        within=reached,
        disturb=disturb,
    )
    pairings = np.zeros(t.count)
    for number, seed in seeds(program, values).items():
        pairings = pairings + t.paired(t.moved[number], seed)
    if not np.all(np.isfinite(pairings)):
        raise Kink("the gradient is not finite: an operation is at the edge of its domain, or overflows")
    return {n: t.gathered(n, pairings) if n in reached else np.zeros_like(values[n]) for n in numbers}
