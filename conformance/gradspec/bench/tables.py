"""The result as text: lines and tables for the terminal, Markdown for everywhere else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradspec.bench.estimates import Estimate
from gradspec.bench.plan import Slot
from gradspec.bench.results import Cell, Point, Result
from gradspec.report.board import plain

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
_BYTES = ((1e6, "MB"), (1e3, "kB"), (0.0, "B"))
_SCALE = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "MB": 1e6, "kB": 1e3, "B": 1.0}


def amount(value: float, unit: str) -> str:
    """A number of seconds or bytes in three digits: "5.15 µs", "643 B"."""
    steps = _BYTES if unit == "bytes" else _SECONDS
    name = next((name for least, name in steps if abs(value) >= least), steps[-1][1])
    number = value / _SCALE[name]
    return f"{number:.3g} {name}" if abs(number) < 100 else f"{number:.0f} {name}"


def interval(estimate: Estimate | None, digits: int = 2) -> str:
    """An estimate with its interval: "0.71 (0.70 to 0.72)"; a dash where there is none."""
    if estimate is None:
        return "-"
    text = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def total(point: Point, cell: Cell) -> str:
    """What the whole point took."""
    return "-" if cell.value is None else amount(cell.value, point.workload.unit)


def each(point: Point, cell: Cell) -> str:
    """What one node, use, hook, ... took; the whole where the size counts nothing."""
    if cell.value is None or not point.workload.each:
        return total(point, cell)
    return amount(cell.value / point.size, point.workload.unit)


def counted(point: Point) -> str:
    """The name of a workload with what its figures are for."""
    return f"{point.workload.name}, per {point.workload.each}" if point.workload.each else point.workload.name


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        title: above it.
        head: the names of its columns; those after the first two hold numbers.
        rows: its cells.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def versus(result: Result, slot: Slot) -> Grid:
    """One slot beside the base: a row for each point."""
    base, rows, before = result.plan.base, [], ""
    for point in result.points:
        if base.label not in point.cells and slot.label not in point.cells:
            continue
        cells = [point.cells.get(label) for label in (base.label, slot.label)]
        times = ["not offered" if c is None else "failed" if c.reason else each(point, c) for c in cells]
        name, found = counted(point), cells[1].ratio if cells[1] is not None else None
        rows.append((name if name != before else "", _size(point), *times, interval(found)))
        before = name
    head = ("workload", "n", base.label, slot.label, "ratio (95 %)")
    return Grid(f"{_named(slot)} against {_named(base)}", head, tuple(rows))


def _size(point: Point) -> str:
    return str(point.size) if point.workload.sizes != (1,) else ""


def growths(result: Result) -> Grid:
    """The exponent of growth of every slot but the second base on every workload that has several sizes."""
    slots = [slot for slot in result.plan.slots if not slot.again]
    names = [name for name in result.plan.workloads if any((name, slot.label) in result.growth for slot in slots)]
    rows = [(name, *(interval(result.growth.get((name, slot.label))) for slot in slots)) for name in names]
    return Grid("growth with n: the exponent (95 %)", ("workload", *(slot.label for slot in slots)), tuple(rows))


def _named(slot: Slot) -> str:
    return f"{slot.label} {slot.version}".strip()


def compared(result: Result) -> list[Slot]:
    """Who is shown beside the base: the others, or the base itself where it is alone."""
    others = [slot for slot in result.plan.slots[1:] if not slot.again]
    return others or [result.plan.slots[1]]


def noise_line(result: Result) -> str:
    """How far the base is from itself."""
    noise = result.noise()
    if not noise:
        return "noise: not known, since the base could not be measured twice"
    off = [abs(found.value - 1) for _, found in noise]
    worst, _ = max(noise, key=lambda pair: abs(pair[1].value - 1))
    inside, known = sum(r.contains(1.0) for _, r in noise), sum(r.low is not None for _, r in noise)
    at = f"{worst.workload.name} {_size(worst)}".rstrip()
    return (
        f"noise: {result.plan.base.label} against itself (A/A) is off 1 by {statistics.median(off):.1%} at the median,"
        f" {max(off):.1%} at most ({at}); its interval holds 1 at {inside} of {known} points"
    )


def method_lines(result: Result) -> list[str]:
    """How it was measured and on what."""
    plan, machine = result.plan, result.machine
    first = plan.settings[plan.workloads[0]]
    tensors = "scalars" if not first.shape else f"{first.shape[0]} elements"
    return [
        (
            f"{plan.effort.repeats} interleaved repeats, fewer of what starts processes; chains on {tensors} of"
            f" {first.dtype}; times are medians of the repeats' fastest rounds, ratios medians of paired repeats"
        ),
        (
            f"{machine['processor']}, {machine['processors']} processors, {machine['system']}, {machine['python']};"
            f" threads: {machine['threads']}"
        ),
    ]


def left_out(result: Result) -> list[str]:
    """What was not measured, and why."""
    lines = []
    for workload, lacks in result.plan.lacks.items():
        told = [f"{label} ({why})" for label, why in lacks.items() if not result.plan.slot(label).again]
        if told:
            lines.append(f"not offered: {workload}: {', '.join(told)}")
    for point, label, reason in result.failures:
        if not result.plan.slot(label).again:
            lines.append(f"failed: {point.workload.name} {_size(point)}: {label}: {reason}")
    return lines


def show(result: Result, console: Console) -> None:
    """Show the result in the terminal."""
    for slot in compared(result):
        _print_grid(versus(result, slot), console)
    if result.growth:
        _print_grid(growths(result), console)
    for line in (noise_line(result), *method_lines(result), *left_out(result)):
        console.print(Text(plain(line)))


def _print_grid(grid: Grid, console: Console) -> None:
    console.print(Text(plain(grid.title), style="bold"))
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for number, name in enumerate(grid.head):
        table.add_column(Text(plain(name)), justify="left" if not number else "right")
    for row in grid.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console.print(table)


def markdown(result: Result) -> str:
    """The result as Markdown."""
    parts = ["# Benchmark", *(_markdown_grid(versus(result, slot)) for slot in compared(result))]
    if result.growth:
        parts.append(_markdown_grid(growths(result)))
    lines = (noise_line(result), *method_lines(result), *left_out(result))
    about = (f"{name}: {_workload(result, name)}" for name in result.plan.workloads)
    parts.append(_bullets(lines))
    parts.append(_bullets(about))
    return "\n\n".join(parts) + "\n"


def _workload(result: Result, name: str) -> str:
    return next(point.workload.about for point in result.points if point.workload.name == name)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _markdown_grid(grid: Grid) -> str:
    rule = ["---", *("---:" for _ in grid.head[1:])]
    return "\n".join([f"## {_escaped(grid.title)}", "", _row(grid.head), _row(rule), *map(_row, grid.rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_escaped(cell) if set(cell) - set('-:') else cell for cell in cells)} |"


def _escaped(text: str) -> str:
    """Text that an implementation may have written, so that Markdown shows it as it is."""
    line = plain(text)
    for mark in "\\`*_[]<>|#":
        line = line.replace(mark, f"\\{mark}")
    return line
