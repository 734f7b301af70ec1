"""What is made of numbers of repeats: ratios and growth, each with an interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
"""How sure an interval is."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: the number.
        low: the lower end of the interval, None where there are too few repeats for one.
        high: its upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def contains(self, number: float) -> bool:
        """Whether the interval holds the number."""
        return self.low is not None and self.high is not None and self.low <= number <= self.high


def _middle(numbers: Sequence[float]) -> Estimate:
    """The median of independent repeats with its exact interval, which no single disturbed repeat can move far."""
    middle = statistics.median(numbers)
    interval = stats.quantile_test(numbers, q=middle, p=0.5).confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    return Estimate(middle) if math.isnan(low) or math.isnan(high) else Estimate(middle, low, high)


def ratio(numbers: Sequence[float], base: Sequence[float]) -> Estimate | None:
    """How many times as large `numbers` are as `base`, pair by pair: the median of the ratios.

    Args:
        numbers: one number for each repeat.
        base: those of the base in the same repeats.

    Returns:
        The ratio with its interval; None where there is no pair, or a number is not above zero: a difference that is
        lost in the noise has no ratio.
    """
    if not numbers or min(*numbers, *base) <= 0:
        return None
    return _middle([a / b for a, b in zip(numbers, base, strict=True)])


def growth(sizes: Sequence[int], numbers: Sequence[Sequence[float]]) -> Estimate | None:
    """The exponent e for which numbers grow as size**e: the slope of a line through their logarithms.

    Args:
        sizes: at least two different ones.
        numbers: for each size, one number for each repeat, as many for all.

    Returns:
        The median of the repeats' slopes with its interval; None where there are too few sizes or a number is not above
        zero.
    """
    if len(set(sizes)) < 2 or not numbers[0] or min(map(min, numbers)) <= 0:
        return None
    x = np.log(np.asarray(sizes, dtype=float))
    slopes = [float(stats.linregress(x, np.log(column)).slope) for column in zip(*numbers, strict=True)]
    return _middle(slopes)
