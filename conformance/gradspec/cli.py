"""The command `gradspec`: a thin layer over `check`, the spec and the reports.

Exit status: 0 conforms · 1 does not · 2 wrong usage · 3 the implementation could not be started · 130 interrupted.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

import gradspec
from gradspec.adapters import CouldNotStart, shipped
from gradspec.errors import GradspecError

WRONG_USAGE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status; whatever is wrong with the input is one line on stderr."""
    try:
        status = command.main(arguments, prog_name="gradspec", standalone_mode=False)
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.ClickException as error:
        status = _told(error.format_message(), WRONG_USAGE)
    except GradspecError as error:
        status = _told(str(error), error.status)
    except (KeyboardInterrupt, click.Abort):
        status = _told("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        status = 0
    sys.exit(status or 0)


def _told(text: str, status: int) -> int:
    click.echo(f"gradspec: {text}", err=True)
    return status


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gradspec.__version__, prog_name="gradspec")
def command() -> None:
    """The executable specification of PyTorch-style autograd and modules."""


# --- check --------------------------------------------------------------------------------------------------------


def _selecting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select clauses."""
    for name, text in (
        ("clause", "This clause, such as RETAIN-01."),
        ("chapter", "Clauses of this chapter, such as RETAIN."),
        ("feature", "Clauses that need this feature."),
        ("requirement", "MUST, SHOULD, MAY or TORCH."),
    ):
        function = click.option(f"--{name}", multiple=True, metavar="X", help=f"{text} Repeatable.")(function)
    return click.option("--level", metavar="L", help="Clauses up to this level of the ladder, such as L3.")(function)


def _limiting(step: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where the implementation runs, and what it may take; `step` is what its time is for."""

    def options(function: Callable[..., Any]) -> Callable[..., Any]:
        python = click.option("--python", metavar="FILE", help="An interpreter that serves the implementation.")
        text = f"Seconds for one {step}; 0: no limit."
        timeout = click.option("--timeout", default="30", show_default=True, metavar="S", help=text)
        text = "Memory of a process.  [default: a share of the machine]"
        return python(timeout(click.option("--memory", metavar="MIB", help=text)(function)))

    return options


@command.command()
@click.argument("adapters", nargs=-1, metavar="[ADAPTER]...")
@click.option("--profile", default="default", show_default=True, metavar="P", help="smoke, default or deep.")
@click.option("--seed", default="0", show_default=True, metavar="N", help="What examples are drawn from, or random.")
@click.option("--jobs", type=int, metavar="N", help="Worker processes.  [default: two, one on one processor]")
@click.option("--strict", is_flag=True, help="A failure of a SHOULD counts.")
@click.option("--list", "only_list", is_flag=True, help="Show the selected clauses and run nothing.")
@click.option("--failures-only", is_flag=True, help="Show failures, problems and the last sentence.")
@click.option("--quiet", is_flag=True, help="Show the last sentence.")
@_selecting
@click.option("--case", metavar="FILE", help="Run this one case only; needs one --clause.")
@click.option("--shard", metavar="I/N", help="The I-th of N parts of the selection; see merge.")
@_limiting("example")
@click.option("--expect", metavar="FILE", help="Expected failures, instead of those shipped with the adapter.")
@click.option(
    "--json", "target", metavar="FILE", help="Write the record; for several adapters a folder or a name with {adapter}."
)
def check(
    adapters: tuple[str, ...],
    *,
    jobs: int | None,
    only_list: bool,
    failures_only: bool,
    quiet: bool,
    target: str | None,
    **selection: Any,
) -> int:
    """Check implementations against the specification.

    ADAPTER is a shipped name, module:attr or file.py[:attr]; refgrad by default.
    """
    from gradspec.options import number_of, resolve  # noqa: PLC0415
    from gradspec.runner import check_writable  # noqa: PLC0415 - other commands need neither pytest nor NumPy

    if failures_only and quiet:
        raise GradspecError("--quiet shows less than --failures-only: name one of them")
    shown = "quiet" if quiet else "failures" if failures_only else "all"
    selection["seed"] = number_of(selection["seed"])  # one for all adapters
    chosen = [resolve(adapter, **selection) for adapter in adapters or ("refgrad",)]
    if only_list:
        return max(_listed(options) for options in chosen)
    files = _targets(target, [options.adapter for options in chosen])
    for file in files:
        if file is not None:
            check_writable(file)
    status = 0
    for options, file in zip(chosen, files, strict=True):
        status = max(status, _checked(options, jobs, file, shown))
        if status == INTERRUPTED:
            break
    return status


def _checked(options: Any, jobs: int | None, file: Path | None, shown: str) -> int:
    from gradspec.report.board import Board, make_console, show_record  # noqa: PLC0415
    from gradspec.runner import run  # noqa: PLC0415

    console = make_console()

    def opened(_: Any, items: Sequence[tuple[str, str]], listed: Any) -> Board:
        return Board(f"{options.adapter}, seed {options.seed}", items, options.spec, console, listed)

    try:
        record = run(options, jobs=jobs, json=file, progress=opened if shown == "all" else None)
    except CouldNotStart as error:  # the other adapters are checked all the same
        return _told(str(error), error.status)
    show_record(record, options.spec, console, shown)
    return int(record["exit_status"])


def _targets(target: str | None, adapters: Sequence[str]) -> list[Path | None]:
    """The file for each record."""
    if target is None:
        return [None] * len(adapters)
    if not target:
        raise GradspecError("--json names no file: write one, or a folder")
    if "{adapter}" not in target and (Path(target).is_dir() or target.endswith(("/", "\\"))):
        target = str(Path(target) / "{adapter}.json")
    if "{adapter}" not in target and len(adapters) > 1:
        raise GradspecError(f"--json {target}: for several adapters name a folder, or write {{adapter}} in the name")
    files = [Path(target.replace("{adapter}", _file_name(adapter))) for adapter in adapters]
    if len(set(files)) < len(files):
        raise GradspecError("--json: two adapters would write the same file: check them one at a time")
    return list(files)


def _file_name(adapter: str) -> str:
    from gradspec.report.record import recorded_argument  # noqa: PLC0415

    return re.sub(r"[^\w.+-]+", "-", recorded_argument(adapter))


def _listed(options: Any) -> int:
    from gradspec.report.verdicts import Declarations, missing  # noqa: PLC0415
    from gradspec.runner import declared_by  # noqa: PLC0415

    declarations = Declarations.of(declared_by(options))
    click.echo(f"{options.adapter}: {len(options.selected)} of {len(options.spec.clauses)} clauses")
    for name in options.selected:
        card = options.spec.clauses[name]
        lack = missing(card, declarations)
        why = {"pending": card.pending_reason or "", "unsupported": lack, "untested": card.untested or ""}
        if card.status != "pending":
            del why["pending"]
        state = next((f"{word}: {reason}" for word, reason in why.items() if reason), "")
        line = f"{name:<13} {card.requirement:<6} {card.level}  {card.title}"
        click.echo(f"{line}  [{state}]" if state else line)
    return 0


@command.command()
@click.argument("adapter")
@_limiting("check")
def selftest(adapter: str, **limits: Any) -> int:
    """Check an adapter: can the suite believe what it says?

    ADAPTER is a shipped name, module:attr or file.py[:attr]. check does it first. Exit status 1 where something is
    wrong; remarks are allowed.
    """
    from gradspec.options import resolve  # noqa: PLC0415
    from gradspec.report.board import make_console  # noqa: PLC0415
    from gradspec.report.examination import show_examined  # noqa: PLC0415
    from gradspec.runner import examined_by  # noqa: PLC0415

    return show_examined(examined_by(resolve(adapter, **limits)), make_console())


@command.command()
@click.argument("shards", nargs=-1, required=True, metavar="SHARD...")
@click.option("-o", "--output", "target", required=True, metavar="FILE", help="Write the record of the whole run.")
def merge(shards: tuple[str, ...], *, target: str) -> int:
    """Put the records of shards together, as one run would have made them.

    SHARD is a record of check --shard I/N. Exit status 1 where a shard is missing, else that of the whole run.
    """
    from gradspec.report.board import make_console, show_record  # noqa: PLC0415
    from gradspec.report.merge import merge_files  # noqa: PLC0415
    from gradspec.report.record import write_record  # noqa: PLC0415
    from gradspec.runner import check_writable  # noqa: PLC0415
    from gradspec.spec import load_spec  # noqa: PLC0415

    if Path(target).resolve() in {Path(shard).resolve() for shard in shards}:
        raise GradspecError(f"-o {target} is one of the shards: name another file")
    check_writable(Path(target))
    record = merge_files(shards)
    write_record(target, record)
    show_record(record, load_spec(), make_console())
    return int(record["exit_status"])


# --- what there is ------------------------------------------------------------------------------------------------


@command.command()
@click.argument("adapter")
def serve(adapter: str) -> None:
    """Speak the protocol of gradspec on stdin and stdout.

    One JSON object a line, as schemas/message-1.schema.json says; what ADAPTER prints goes to stderr.
    """
    from gradspec.serve import serve as speak  # noqa: PLC0415

    speak(adapter)


@command.command()
def adapters() -> None:
    """List the shipped adapters."""
    for name in shipped():
        folder = Path(__file__).resolve().parent / "adapters"
        text = ast.get_docstring(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))) or ""
        state = "" if importlib.util.find_spec(name) else f"  [not installed: pip install 'gradspec[{name}]']"
        click.echo(f"{name:<10} {text.splitlines()[0] if text else ''}{state}")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="All fields, as JSON.")
def clauses(*, as_json: bool) -> None:
    """List the clauses."""
    from gradspec.spec import clauses_table, load_spec  # noqa: PLC0415

    table = clauses_table(load_spec())
    if as_json:
        click.echo(json.dumps(table, indent=1, ensure_ascii=False))
        return
    for row in table:
        status = "" if row["status"] == "stable" else f"  [{row['status']}]"
        click.echo(f"{row['id']:<13} {row['requirement']:<6} {row['level']}  {row['title']}{status}")


@command.command()
@click.argument("clause")
def explain(clause: str) -> None:
    """Show one clause: its sentence, where it is documented, an example."""
    from gradspec.spec import load_spec  # noqa: PLC0415

    click.echo(load_spec().explain(clause), nl=False)


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "target", metavar="FILE", help="Write the kill table.")
@click.option(
    "--beside",
    metavar="N",
    type=click.IntRange(min=1),
    help="Examples of the clauses that a fault does not name.  [default: as many as of its own]",
)
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), default=2, show_default=True, help="Faults at a time.")
def faults(names: tuple[str, ...], *, target: str | None, beside: int | None, jobs: int) -> int:
    """Run the deliberately wrong implementations and show which clause caught each.

    This tests the suite, not your library.
    """
    from gradspec.faults import table  # noqa: PLC0415 - it needs refgrad and the whole suite
    from gradspec.runner import check_writable  # noqa: PLC0415

    if target is not None:
        check_writable(Path(target))
    return table.main(names, json=target, jobs=jobs, beside=beside)


@command.command()
@click.argument("adapters", nargs=-1, metavar="[ADAPTER]...")
@click.option("--base", metavar="NAME", help="What the others are compared with.  [default: torch, else the first]")
@click.option("--only", metavar="W", multiple=True, help="This workload, such as chain. Repeatable.")
@click.option("--quick", is_flag=True, help="Small sizes and few repeats: one minute instead of four.")
@click.option("--json", "json_file", metavar="FILE", help="Write pytest-benchmark's file, with the result in it.")
@click.option("--html", metavar="FILE", help="Write a page with plots.")
@click.option("--markdown", metavar="FILE", help="Write the tables as Markdown.")
@click.option("--from", "source", metavar="FILE", help="Measure nothing: show what --json wrote.")
def bench(adapters: tuple[str, ...], **asked: Any) -> int:
    """Measure how long implementations take, as ratios to one of them.

    ADAPTER as for check; refgrad, and torch where it is installed, by default.
    """
    from gradspec.bench.command import run  # noqa: PLC0415 - other commands need nothing of it

    return run(adapters, **asked)
