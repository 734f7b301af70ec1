"""The board in the terminal: progress while a run goes on, then a table by chapter, each failure, and the word.

Everything that an implementation said is shown as plain text: markup in it means nothing, control characters are gone.
"""

from __future__ import annotations

import collections
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gradspec.report.expectations import Expectations
from gradspec.report.failures import failure_lines
from gradspec.report.verdicts import FAILURES, NOTHING_JUDGED, STOPPED, VERDICTS, outcome
from gradspec.spec import Spec

Entry = Mapping[str, Any]

WORDS = {verdict: verdict.replace("_", " ") for verdict in VERDICTS}
STYLES = {
    "passed": "green",
    "failed": "bold red",
    "crashed": "bold red",
    "timed_out": "bold red",
    "unexpected_pass": "bold red",
    "not_exercised": "bold red",
    "expected": "yellow",
    "disputed": "yellow",
}
_COLUMNS = ("passed", "failed", "expected", "unsupported")
_REASONS = 6
"""So many reasons of unsupported clauses are shown; the record has them all."""

_STEP = 10
"""Per cent of the clauses between two lines of progress where a line cannot be redrawn."""


def make_console(stream: TextIO | None = None, width: int | None = None) -> Console:
    """A console on `stream` (standard output): plain lines where NO_COLOR is set or the stream is no terminal."""
    stream = stream or sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and "utf" not in str(getattr(stream, "encoding", "")).lower():
        reconfigure(errors="replace")  # a log in ASCII must not end the run
    terminal = False if os.environ.get("NO_COLOR") else None  # None: found out from the stream
    return Console(file=stream, width=width, force_terminal=terminal, markup=False, highlight=False, emoji=False)


def plain(text: object) -> str:
    """Text of an implementation as one line without control or formatting characters."""
    return "".join(c if c.isprintable() else " " for c in str(text))


class LiveLine:
    """A line that is redrawn in a terminal while something long goes on; a context manager around it.

    Args:
        console: where to.
        redrawn: whether there is anything to show.
    """

    def __init__(self, console: Console, *, redrawn: bool = True) -> None:
        self.console, self._redrawn = console, redrawn
        self._started = time.monotonic()
        self._live: Live | None = None

    def status(self) -> Text:
        """The line."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self.console.is_interactive and self._redrawn:
            self._live = Live(console=self.console, get_renderable=self.status, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class Board(LiveLine):
    """Progress of a run.

    Args:
        title: what is checked, as "torch 2.13.0".
        items: the (item, clause) pairs that will report.
        spec: the spec, for the chapters.
        console: where to; standard output by default.
        expectations: the listed failures, so that they count as expected.
    """

    def __init__(
        self,
        title: str,
        items: Iterable[tuple[str, str]],
        spec: Spec,
        console: Console | None = None,
        expectations: Expectations | None = None,
    ) -> None:
        self._title, self._spec = plain(title), spec
        self._entries = expectations.entries if expectations else {}
        self._clause_of = dict(items)
        self._open = collections.Counter(self._clause_of.values())
        self._total = len(self._open)
        self._verdicts: dict[str, str] = {}
        self._done: set[str] = set()
        self._chapter, self._told = "", 0
        super().__init__(console or make_console(), redrawn=self._total > 0)

    def done(self, row: Entry) -> None:
        """An item reported its row."""
        entry = self._entries.get(row["clause"])
        verdict, _ = outcome(row, entry.kind if entry else None)
        self._count(row["item"], row["clause"], verdict)

    def lost(self, item: str, verdict: str) -> None:
        """The process of an item ended before it did: "crashed" or "timed_out"."""
        clause = self._clause_of.get(item)
        if clause is not None:
            self._count(item, clause, verdict)

    def _count(self, item: str, clause: str, verdict: str) -> None:
        if self._clause_of.pop(item, None) is None:
            return  # reported twice, or never selected: the record tells it
        self._verdicts[clause] = min(verdict, self._verdicts.get(clause, verdict), key=VERDICTS.index)
        self._chapter = self._spec.clauses[clause].chapter
        self._open[clause] -= 1
        if not self._open[clause]:
            self._done.add(clause)
        self._tell()

    def _tell(self) -> None:
        if self._live is not None:
            return  # redrawn by itself
        step = 100 * len(self._done) // self._total // _STEP
        if step > self._told:
            self._told = step
            self.console.print(self.status(), soft_wrap=True)

    def status(self) -> Text:
        """One line: clauses done, verdicts so far, chapter, time gone and time left."""
        done, gone = len(self._done), time.monotonic() - self._started
        counts = collections.Counter(self._verdicts[clause] for clause in self._done)
        line = Text(f"{self._title}: {done}/{self._total} clauses")
        for verdict in (v for v in VERDICTS if counts[v]):
            line.append(", ").append(f"{counts[verdict]} {WORDS[verdict]}", STYLES.get(verdict, ""))
        left = f", about {duration(gone * (self._total - done) / done)} left" if 0 < done < self._total else ""
        return line.append(f"; {self._chapter + ', ' if self._chapter else ''}{duration(gone)}{left}")


def duration(seconds: float) -> str:
    """Seconds in words, as "95 s" or "3 min 05 s"."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02} s"


# --- the finished record ------------------------------------------------------------------------------------------


def show_record(record: Entry, spec: Spec, console: Console | None = None, shown: str = "all") -> None:
    """Show a finished record: head line, table by chapter, failures, groups, problems, and the exit sentence last.

    Args:
        record: as `build_record` or `read_record` gives it.
        spec: the spec, for the sentences; a clause that it does not know is shown without one.
        console: where to; standard output by default.
        shown: "all"; "failures" for failures, problems and the exit sentence; "quiet" for the exit sentence.
    """
    console = console or make_console()
    if shown == "all":
        console.print(Text(_head(record), style="bold"), soft_wrap=True)
        if record["clauses"]:
            console.print(_table(record))
    if shown != "quiet":
        _show_failures(record, spec, console)
    for line in {"all": (*_groups(record), *_remarks(record)), "failures": _problems(record)}.get(shown, ()):
        console.print(Text(plain(line)))
    style = "bold green" if record["exit_status"] == 0 else "bold red"
    console.print(Text(plain(exit_sentence(record)), style=style))


def _name(record: Entry) -> str:
    adapter, shard = record["adapter"], record["shard"]
    part = "" if shard is None else f", shard {shard['index']}/{shard['of']}"
    return plain(f"{adapter['name']} {adapter['version']}".strip() + part)


def _head(record: Entry) -> str:
    totals = record["totals"]
    word = "conforms" if record["conforms"] else "does not conform"
    if NOTHING_JUDGED in record["problems"]:
        word = "nothing was checked"
    if not record["complete"]:
        word += " (incomplete)"
    return f"{_name(record)}: {totals['declared']} / {totals['total']} clauses declared, {word}"


def _table(record: Entry) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("chapter")
    for name in (*_COLUMNS, "other", "declared/total"):
        table.add_column(name, justify="right")
    chapters = record["totals"]["by_chapter"]
    for chapter, bucket in chapters.items():
        table.add_row(*_cells(chapter, bucket), end_section=chapter == list(chapters)[-1])
    table.add_row(*_cells("all", record["totals"]))
    return table


def _cells(name: str, bucket: Entry) -> list[Text]:
    counts = dict(bucket["by_verdict"])
    counts["failed"] = sum(counts.pop(verdict) for verdict in FAILURES)
    cells = [Text(name)]
    for column in _COLUMNS:
        number = counts.pop(column)
        cells.append(Text(str(number), style=STYLES.get(column, "") if number else ""))
    return [*cells, Text(str(sum(counts.values()))), Text(f"{bucket['declared']}/{bucket['total']}")]


def _show_failures(record: Entry, spec: Spec, console: Console) -> None:
    shown = [clause for clause in record["clauses"] if clause["verdict"] in FAILURES]
    for entry in (clause for clause in shown if not clause["consequence_of"]):
        console.print(_title(entry))
        card = spec.clauses.get(entry["id"])
        for line in failure_lines(entry, card.sentence if card else "", console.width - 2):
            if line.startswith("replay:"):  # is copied, so it must stay one line
                console.print(Text(f"  {plain(line)}"), soft_wrap=True)
            else:
                _print_indented(console, plain(line))
        also = [other["id"] for other in shown if _root_of(other, shown) == entry["id"]]
        if also:
            _print_indented(console, f"also fails: {', '.join(also)}")
        console.print()
    for entry in record["clauses"]:
        if entry["verdict"] in ("unexpected_pass", "not_exercised") and entry["reason"] != STOPPED:
            console.print(_title(entry))
            _print_indented(console, plain(entry["reason"]))


def _title(entry: Entry) -> Text:
    title = Text(WORDS[entry["verdict"]].upper(), style=STYLES[entry["verdict"]])
    return title.append(plain(f" {entry['id']} · {entry['title']} ({entry['requirement']}, {entry['level']})"), "bold")


def _print_indented(console: Console, line: str) -> None:
    """The line under a heading; where it goes on, a little further in."""
    for number, part in enumerate(Text(line).wrap(console, console.width - 4)):
        part.rstrip()
        console.print(Text("    " if number else "  ").append_text(part))


def _root_of(entry: Entry, shown: Sequence[Entry]) -> str | None:
    """The first clause behind a failure that is a consequence of none itself."""
    roots = {other["id"] for other in shown if not other["consequence_of"]}
    return next((name for name in entry["consequence_of"] if name in roots), None)


def _groups(record: Entry) -> list[str]:
    """One line for each group of clauses that need no look."""
    lines = []
    titles = {"expected": "expected failures", "disputed": "disputed", "pending": "pending", "untested": "untested"}
    for verdict, title in titles.items():
        names = [clause["id"] for clause in record["clauses"] if clause["verdict"] == verdict]
        if names:
            lines.append(_group(title, names))
    stopped = [clause["id"] for clause in record["clauses"] if clause["reason"] == STOPPED]
    if stopped:
        lines.append(_group("not reached", stopped))
    reasons = collections.Counter(c["reason"] for c in record["clauses"] if c["verdict"] == "unsupported")
    if reasons:
        lines.append(f"unsupported ({reasons.total()}): {', '.join(_folded(reasons))}")
    return lines


def _folded(reasons: collections.Counter[str]) -> list[str]:
    """The commonest reasons, each with its count, and how many there are besides."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{reason} ({count})" for reason, count in ordered[:_REASONS]]
    rest = ordered[_REASONS:]
    return [*told, f"and {_some(len(rest), 'more reason')} ({sum(n for _, n in rest)})"] if rest else told


def _group(title: str, names: Sequence[str]) -> str:
    return f"{title} ({len(names)}): {', '.join(names)}"


def _remarks(record: Entry) -> list[str]:
    qualification = record["qualification"]
    lines = []
    if qualification["void"]:
        lines.append("qualification is void: too few operations work alone, so all are drawn and the clauses judge")
    if qualification["failed"]:
        failed = ", ".join(qualification["failed"])
        lines.append(f"operations that fail alone ({len(qualification['failed'])}): {failed}")
    lines += [f"note: {note}" for note in record["notes"]]
    return lines + _problems(record)


def _problems(record: Entry) -> list[str]:
    return [f"problem: {problem}" for problem in record["problems"]]


def exit_sentence(record: Entry) -> str:
    """What the exit status means, with the reasons counted."""
    name, totals, status = _name(record), record["totals"], record["exit_status"]
    open_ = sum(c["reason"] == STOPPED for c in record["clauses"])
    if status == 130:
        of = f"{totals['declared'] - open_} of {totals['declared']} declared clauses"
        return f"Interrupted: {of} were judged, the record is incomplete. Exit status 130."
    if NOTHING_JUDGED in record["problems"]:
        return f"{name}: nothing was checked: {', '.join(_reasons(record))}. Exit status {status}."
    if not record["complete"] and open_:
        of = f"{totals['declared'] - open_} of {totals['declared']} declared clauses"
        return f"{name}: the record is incomplete, {of} were judged. Exit status {status}."
    if record["conforms"]:
        expected = totals["by_verdict"]["expected"]
        listed = f", with {_some(expected, 'listed failure')}" if expected else ""
        of = f"{totals['declared']} of {totals['total']} clauses"
        return f"{name} conforms to what it declares ({of}){listed}. Exit status 0."
    return f"{name} does not conform: {', '.join(_reasons(record))}. Exit status {status}."


def _reasons(record: Entry) -> list[str]:
    counted = ("MUST", "SHOULD") if record["strict"] else ("MUST",)
    reasons = []
    for requirement in counted:
        bucket = record["totals"]["by_requirement"].get(requirement)
        number = sum(bucket["by_verdict"][verdict] for verdict in FAILURES) if bucket else 0
        if number:
            reasons.append(f"{_some(number, f'{requirement} clause')} failed")
    verdicts = record["totals"]["by_verdict"]
    if verdicts["unexpected_pass"]:
        reasons.append(f"{_some(verdicts['unexpected_pass'], 'clause')} passed unexpectedly")
    if verdicts["not_exercised"]:
        reasons.append(f"{_some(verdicts['not_exercised'], 'clause')} not exercised")
    if record["problems"]:
        reasons.append(_some(len(record["problems"]), "problem"))
    return reasons


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
