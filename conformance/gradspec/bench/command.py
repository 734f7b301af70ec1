"""`gradspec bench`: plan, measure, show and write."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from gradspec.adapters import CouldNotStart
from gradspec.bench.plan import FULL, QUICK, make_plan, workloads_named
from gradspec.bench.process import Measure, Progress, measure
from gradspec.errors import GradspecError
from gradspec.probe import probe
from gradspec.report.board import make_console, plain
from gradspec.report.record import recorded_argument, write_text
from gradspec.runner import check_writable

if TYPE_CHECKING:
    from gradspec.bench.results import Result

_EXTRA = ("scipy", "matplotlib", "jinja2")


def default_adapters() -> tuple[str, ...]:
    """refgrad, and torch where it is installed."""
    return ("refgrad", "torch") if importlib.util.find_spec("torch") else ("refgrad",)


def run(
    adapters: Sequence[str],
    *,
    base: str | None = None,
    only: Sequence[str] = (),
    quick: bool = False,
    source: str | None = None,
    json_file: str | None = None,
    html: str | None = None,
    markdown: str | None = None,
    console: Console | None = None,
    measuring: Measure = measure,
) -> int:
    """Measure adapters, or read what was measured, and show and write the result.

    Args:
        adapters: as `check` takes them; none for the default ones.
        base: what the others are compared with.
        only: names of workloads; all by default.
        quick: small sizes and few repeats.
        source: a file that `json_file` wrote, to be shown again instead of measuring.
        json_file: pytest-benchmark's file with the result is written there.
        html: a page with plots is written there.
        markdown: tables are written there.
        console: where to show it.
        measuring: what measures a plan.

    Returns:
        The exit status: 0, or 1 where something that is offered could not be measured.

    Raises:
        GradspecError: wrong usage, or an extra is missing.
        CouldNotStart: an implementation could not be loaded, or the process that measures died.
    """
    _check_extra()
    console = console or make_console()
    _check_files(json_file, html, markdown)
    if source is not None:
        if adapters or base or only or quick or json_file:
            raise GradspecError("--from shows what was measured: it takes --html and --markdown only")
        from gradspec.bench.results import read_kept  # noqa: PLC0415 - needs the extra

        result = read_kept(Path(source))
    else:
        result = _measured(adapters, base, only, quick, json_file, console, measuring)
    _show(result, html, markdown, console)
    return 1 if result.failures else 0


def _check_extra() -> None:
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise GradspecError(f"bench needs {' and '.join(missing)}: install them with pip install 'gradspec[bench]'")


def _check_files(*files: str | None) -> None:
    """All files can be written, and none twice."""
    given = [file for file in files if file is not None]
    for file in given:
        if not file:
            raise GradspecError("a file to write has no name: write one after --json, --html or --markdown")
        check_writable(Path(file))
    if len({Path(file).resolve() for file in given}) < len(given):
        raise GradspecError("two reports would be written to one file: name a file for each")


def _measured(
    adapters: Sequence[str],
    base: str | None,
    only: Sequence[str],
    quick: bool,
    json_file: str | None,
    console: Console,
    measuring: Measure,
) -> Result:
    from gradspec.bench.results import keep, read_result  # noqa: PLC0415 - needs the extra

    workloads_named(only)  # a wrong name is told before anything is loaded
    chosen = tuple(adapters) or default_adapters()
    plan = make_plan([(argument, probe(argument)) for argument in chosen], base, only, QUICK if quick else FULL)
    names = " and ".join(slot.label for slot in plan.slots if not slot.again)
    with Progress(f"bench {plain(names)}", list(plan.items()), console) as progress:
        raw = measuring(plan, progress)
    shown = replace(plan, slots=tuple(replace(s, argument=recorded_argument(s.argument)) for s in plan.slots))
    kept = keep(raw, asdict(shown))
    if json_file is not None:
        write_text(Path(json_file), json.dumps(kept, indent=1) + "\n", "benchmark")
    return read_result(kept)


def _show(result: Result, html: str | None, markdown: str | None, console: Console) -> None:
    from gradspec.bench import tables  # noqa: PLC0415 - needs the extra

    tables.show(result, console)
    if markdown is not None:
        write_text(Path(markdown), tables.markdown(result), "table")
    if html is not None:
        from gradspec.bench.page import page  # noqa: PLC0415 - plots take a second to load

        write_text(Path(html), page(result), "page")
    if all(point.cells[label].value is None for point in result.points for label in point.cells):
        raise CouldNotStart("nothing could be measured")
