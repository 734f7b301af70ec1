"""Central differences of the NumPy forward: the opinion that knows no derivative rule at all.

Two steps, h and h/2, are combined so that the error of order h^2 cancels (Richardson). With h = 2^-10 both the
truncation and the rounding of smooth functions of moderate size stay below 1e-9 relative.

Imports `forward.py` only, so that a mistake in the tangent rules cannot reach here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gradspec.programs.forward import Array, Kink, feeding, inputs, run, seeds
from gradspec.programs.operations import OPERATIONS
from gradspec.programs.program import Program

__all__ = ["STEP", "Kink", "difference_estimates", "difference_gradients", "difference_pushforward"]

STEP = 2.0**-10


@np.errstate(all="ignore")
def difference_pushforward(program: Program, tangents: Mapping[int, Array]) -> list[Array]:
    """The directional derivative of every value when values move along `tangents`.

    Args:
        program: the program.
        tangents: number of a value to its direction, of its shape; a result moves as if it were an input.

    Returns:
        For each value an array of its shape, float64 or complex128.

    Raises:
        Kink: within the step an operand crosses or touches a point at which its operation is not differentiable.
    """
    centre = run(program, inputs(program))
    coarse, fine = _along(program, centre, tangents, range(len(centre)))
    return [_extrapolated(c, f) for c, f in zip(coarse, fine, strict=True)]


def _extrapolated(coarse: Array, fine: Array) -> Array:
    return np.asarray((4 * fine - coarse) / 3)


def _along(
    program: Program, centre: Sequence[Array], way: Mapping[int, Array], at: Sequence[int]
) -> tuple[list[Array], list[Array]]:
    """The slopes of the values `at` with the coarse and with the fine step."""
    given = inputs(program)
    used = feeding(program, list(at))
    slopes = []
    for h in (STEP, STEP / 2):
        ends = [run(program, given, shift={n: sign * h * t for n, t in way.items()}) for sign in (1, -1)]
        for end in ends:
            _smooth_between(program, centre, end, used)
        slopes.append([np.asarray((ends[0][n].astype(_wide(centre[n])) - ends[1][n]) / (2 * h)) for n in at])
    return slopes[0], slopes[1]


def _wide(like: Array) -> np.dtype[np.generic]:
    return np.result_type(like, np.float64)


def _smooth_between(program: Program, centre: Sequence[Array], end: Sequence[Array], used: set[int]) -> None:
    for step, numbers in program.results():
        if OPERATIONS[step.op].kinks and used.intersection(numbers):
            for operand in step.operands:
                before, after = centre[operand], end[operand]
                if np.any((before != after) & (np.sign(before) != np.sign(after))):
                    raise Kink(f"{step.op} is not differentiable within the step of a central difference")


@np.errstate(all="ignore")
def difference_gradients(program: Program, wrt: Sequence[int] | None = None) -> dict[int, Array]:
    """The gradients of the program's roots by central differences, element by element.

    Args:
        program: the program with its roots; a root without a seed is seeded with ones.
        wrt: numbers of values; None means the leaves. A tracked result is taken for an input.

    Returns:
        For each number an array of that value's shape, float64 or complex128; zeros where no recorded path leads from
        it to a root.

    Raises:
        Kink: within the step an operand crosses or touches a point at which its operation is not differentiable.
    """
    return {number: gradient for number, (gradient, _) in difference_estimates(program, wrt).items()}


@np.errstate(all="ignore")
def difference_estimates(program: Program, wrt: Sequence[int] | None = None) -> dict[int, tuple[Array, Array]]:
    """What `difference_gradients` returns, each with its spread: how far apart the two steps are, element by element.

    The spread is far above the error of the estimate where the program is smooth on the scale of the step, and as
    large as the estimate where it is not.
    """
    centre = run(program, inputs(program))
    cotangents = seeds(program, centre)
    reached = program.reached()
    found = {}
    for number in program.leaves if wrt is None else wrt:
        gradient = np.zeros(centre[number].shape, _wide(centre[number]))
        spread = np.zeros(centre[number].shape)
        for place in np.ndindex(gradient.shape if number in reached else (0,)):
            for unit in (1, 1j) if gradient.dtype.kind == "c" else (1,):
                direction = np.zeros_like(gradient)
                direction[place] = unit
                slopes = _along(program, centre, {number: direction}, list(cotangents))
                coarse, fine = (_paired(cotangents, slope) for slope in slopes)
                gradient[place] += unit * _extrapolated(coarse, fine)
                spread[place] += abs(fine - coarse)
        found[number] = gradient, spread
    return found


def _paired(cotangents: Mapping[int, Array], slopes: Sequence[Array]) -> Array:
    pairs = zip(cotangents.values(), slopes, strict=True)
    return np.asarray(sum(np.sum(np.conj(v) * s).real for v, s in pairs))
