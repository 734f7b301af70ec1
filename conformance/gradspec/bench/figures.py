"""The plots of the page, as SVG that takes its text colour from the page around it.

Implementations differ by colour and by marker; the colours are those of Okabe and Ito, told apart by every kind of
colour vision, and readable on light and on dark.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gradspec.bench.plan import Slot
from gradspec.bench.results import Point, Result
from gradspec.bench.tables import compared
from gradspec.report.board import plain

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")

_INK = "#010203"
"""Stands for the colour of text until the SVG is written."""

_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be read out, searched and copied
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # names are shown as they are
}

_ROW = 0.24
"""Inches of one row of the plot of ratios."""


def _svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element without a size of its own; its ids begin with `name`."""
    out = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font that lacks a letter of somebody's name: the page's font has it
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")


def _text(text: str) -> str:
    """A name for a legend: in one line, and seen though it may begin with an underscore."""
    return f" {plain(text)}" if text.startswith("_") else plain(text)


def ratios(result: Result) -> str:
    """The ratio of each implementation to the base at every point, with its interval, over the noise of the run."""
    slots = [slot for slot in compared(result) if not slot.again]
    points = [p for p in result.points if any((c := p.cells.get(s.label)) and c.ratio for s in slots)]
    noise = {id(point): found for point, found in result.noise()}
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, _ROW * len(points) + 1.1), layout="constrained")
        axes = figure.add_subplot()
        _groups(axes, points)
        noisy: Any = {"color": _INK, "alpha": 0.22, "linewidth": 9, "solid_capstyle": "butt", "zorder": 2}
        for row, point in enumerate(points):
            found = noise.get(id(point))
            if found is not None and found.low is not None and found.high is not None:
                name = _text(f"{result.plan.base.label} against itself (A/A)")
                axes.plot([found.low, found.high], [row, row], label=name, **noisy)
        for number, slot in enumerate(slots):
            _ratios_of(axes, slot, points, number, len(slots))
        axes.axvline(1.0, color=_INK, linewidth=1, zorder=1)
        _ratio_axes(
            axes, points, f"ratio to {_text(result.plan.base.label)}, 95 % interval; left of 1: faster, or smaller"
        )
        return _svg(figure, "ratios")


def _ratios_of(axes: Axes, slot: Slot, points: Sequence[Point], number: int, of: int) -> None:
    shift = 0.5 * ((number + 0.5) / of - 0.5)
    for row, point in enumerate(points):
        found = point.cells[slot.label].ratio if slot.label in point.cells else None
        if found is None:
            continue
        low, high = (found.value if end is None else end for end in (found.low, found.high))
        axes.errorbar(
            found.value,
            row + shift,
            xerr=[[found.value - low], [high - found.value]],
            color=COLOURS[(number + 1) % len(COLOURS)],
            marker=MARKERS[(number + 1) % len(MARKERS)],
            markersize=4.5,
            capsize=2.5,
            linestyle="none",
            zorder=3,
            label=_text(slot.label),
        )


def _groups(axes: Axes, points: Sequence[Point]) -> None:
    """A band behind every second workload."""
    names = list(dict.fromkeys(point.workload.name for point in points))
    for row, point in enumerate(points):
        if names.index(point.workload.name) % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=_INK, alpha=0.05, linewidth=0, zorder=0)


def _ratio_axes(axes: Axes, points: Sequence[Point], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.45), max(high, 2.2))
    axes.grid(axis="x", color=_INK, alpha=0.15)
    axes.set_xlabel(label)
    several = {point.workload.name for point in points if point.workload.sizes != (1,)}
    axes.set_yticks(
        range(len(points)),
        [f"{p.workload.name}  {p.size}" if p.workload.name in several else p.workload.name for p in points],
    )
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(points) - 0.5, -0.5)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if handles:
        axes.figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=3)


def scaling(result: Result, workload: str) -> str:
    """Time or memory of one workload against its size, both logarithmic, with the fitted exponents."""
    points = [point for point in result.points if point.workload.name == workload]
    slots = [slot for slot in result.plan.offering(workload) if not slot.again]
    order = [slot.label for slot in result.plan.slots if not slot.again]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.0, 3.1), layout="constrained")
        axes = figure.add_subplot()
        for slot in slots:
            measured = [(p.size, v) for p in points if (v := p.cells[slot.label].value) is not None and v > 0]
            if measured:
                number = order.index(slot.label)
                exponent = result.growth.get((workload, slot.label))
                name = slot.label if exponent is None else f"{slot.label}: n^{exponent.value:.2f}"
                look: Any = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
                axes.plot(*zip(*measured, strict=True), label=_text(name), markersize=5, **look)
        _scaling_axes(axes, points)
        return _svg(figure, f"scaling-{workload}")


def _scaling_axes(axes: Axes, points: Sequence[Point]) -> None:
    workload = points[0].workload
    unit, what = ("B", "memory in bytes") if workload.unit == "bytes" else ("s", "time in seconds")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator([point.size for point in points]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.yaxis.set_major_formatter(EngFormatter(unit=unit))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08, y=0.12)
    axes.grid(color=_INK, alpha=0.15)
    axes.set_xlabel(f"n ({_plural(workload.each)})" if workload.each else "n (rows and columns)")
    axes.set_ylabel(what)
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper left")  # above: lines go through every corner


def _plural(word: str) -> str:
    return {"leaf": "leaves", "pass": "passes"}.get(word, f"{word}s")
