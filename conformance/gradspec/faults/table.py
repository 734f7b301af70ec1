"""The kill table: every fault is run over its chapters, and the clauses that notice are written down.

It tests the suite. A fault that none of its own clauses notices is a hole; a clause that no fault breaks has a test of
which nobody has seen that it can fail; a fault that breaks much else says little about its own clause.

Each fault runs in a fresh process: a crash costs one row, and what is drawn does not depend on the faults before it.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from gradspec.adapter import Unsupported
from gradspec.capabilities import Capabilities
from gradspec.engine import Settings, SuiteTest, run_item
from gradspec.errors import GradspecError
from gradspec.faults import FAULTS
from gradspec.faults.registry import Fault
from gradspec.judge import BuildFailed, NotJudged
from gradspec.qualify import qualify
from gradspec.report.verdicts import Declarations, missing
from gradspec.session import Session
from gradspec.spec import Clause, Spec, load_spec
from gradspec.suite.support import suite_tests
from gradspec.wire import bounded

CONTROL = "control"
"""The name of the row in which nothing is wrong."""

PATIENCE = 600.0
"""Seconds after which a fault counts as hanging."""


@dataclass(frozen=True)
class Row:
    """One fault and who noticed.

    Attributes:
        fault, title, source, clauses: as declared.
        caught_by: its own clauses that failed, each with the number of examples until it did.
        implied: other clauses that failed and cannot hold without one of its own.
        others: all other clauses that failed.
        judged: how many clauses ran. unqualified: operations that failed alone and were drawn nowhere else.
        error: why there is no result: the process ended, or took too long; "" otherwise.
        seconds: wall time.
    """

    fault: str
    title: str
    source: str
    clauses: tuple[str, ...]
    caught_by: Mapping[str, int] = field(default_factory=dict)
    implied: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    judged: int = 0
    unqualified: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        """None of its own clauses noticed it."""
        return not self.caught_by


# --- one fault ----------------------------------------------------------------------------------------------------


def items(
    spec: Spec, chapters: Iterable[str], tests: Iterable[SuiteTest], declared: Declarations | None = None
) -> list[tuple[SuiteTest, str]]:
    """What is run for faults of `chapters`: each test with each of its clauses that can be judged.

    Pending clauses cannot, nor details of torch, nor, where `declared` is given, what it does not offer. Operations are
    tried alone before (`qualify.py`), so that VALUE is run for its own faults only.
    """
    wanted = set(chapters)
    cards = {
        c.id
        for c in spec.clauses.values()
        if c.chapter in wanted
        and c.status != "pending"
        and c.requirement != "TORCH"
        and (declared is None or not missing(c, declared))
    }
    return [(test, name) for test in tests for name in test.clauses if name in cards]


def observed(fault: Fault, examples: int, beside: int | None = None) -> tuple[dict[str, int], list[str], int]:
    """Run a fault in this process.

    Args:
        fault: the fault.
        examples: of each of its own clauses.
        beside: of each other clause; as many by default.

    Returns:
        The clauses that failed with the examples until they did, the unqualified operations, the number of clauses run.
    """
    adapter = fault.adapter()
    session = Session(adapter)
    offered = Capabilities.of(adapter)
    qualification = qualify(session, offered)
    without = frozenset() if qualification.void else frozenset(qualification.failed)
    offered = Capabilities.of(adapter, without=without)
    failed: dict[str, int] = {}
    chapters = fault.chapters or ("GRADSLOT", "BACKWARD", "RETAIN", "VALUE")
    found = items(load_spec(), chapters, suite_tests(), Declarations.of(adapter))
    for test, name in found:
        counter = Counter(test)
        number = examples if beside is None or name in fault.clauses else beside
        row = run_item(counter.test, name, session, offered, Settings(seed=0, examples=number, stop_at_first=True))
        if row["failure"] is not None:
            failed[name] = min(counter.first or 1, failed.get(name, counter.first or 1))
    return failed, sorted(qualification.failed), len({name for _, name in found})


class Counter:
    """Counts the examples of a test until one fails; discarded ones do not count. Hypothesis runs that one again."""

    def __init__(self, test: SuiteTest) -> None:
        self.count, self.first = 0, 0
        self.test = dataclasses.replace(test, function=self._counted(test.function))

    def _counted(self, function: Callable[[Session, Any], None]) -> Callable[[Session, Any], None]:
        def counted(session: Session, case: Any) -> None:
            self.count += 1
            try:
                function(session, case)
            except (Unsupported, BuildFailed, NotJudged):
                self.count -= 1
                raise
            except Exception:
                self.first = self.first or self.count
                raise

        return counted


def classified(fault: Fault, failed: Mapping[str, int], spec: Spec) -> dict[str, dict[str, int]]:
    """The failed clauses, by what they are to the fault: its own, implied by these, or others."""
    beside = implied(spec, fault.clauses)
    split: dict[str, dict[str, int]] = {"caught_by": {}, "implied": {}, "others": {}}
    for name in (*spec.clauses, *(name for name in failed if name not in spec.clauses)):
        if name in failed:
            kind = "caught_by" if name in fault.clauses else "implied" if name in beside else "others"
            split[kind][name] = failed[name]
    return split


def implied(spec: Spec, broken: Iterable[str]) -> set[str]:
    """The clauses that cannot hold when those in `broken` do not: by `depends` and `implied_by`, transitively."""
    found, queue = set(broken), list(broken)
    while queue:
        name = queue.pop()
        follow = [c.id for c in spec.clauses.values() if name in c.depends]
        if name in spec.clauses:
            follow += spec.clauses[name].implied_by
        queue += [each for each in follow if each not in found]
        found.update(follow)
    return found - set(broken)


# --- all of them --------------------------------------------------------------------------------------------------


def _control() -> Fault:
    return Fault(CONTROL, (), "nothing is wrong: what fails here fails everywhere", "", lambda _copy: None)


def named(name: str) -> Fault:
    """The fault of a name, the control included.

    Raises:
        GradspecError: there is none; the message names the nearest.
    """
    if name == CONTROL:
        return _control()
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=2)
        raise GradspecError(f"there is no fault {name!r}" + (f", did you mean {' or '.join(near)}?" if near else ""))
    return FAULTS[name]


def _task(name: str, examples: int, beside: int | None, answer: Connection) -> None:
    try:
        answer.send((*observed(named(name), examples, beside), ""))
    except Exception as error:  # noqa: BLE001 - the suite itself failed: one row, not the run
        answer.send(({}, [], 0, bounded(f"{type(error).__name__}: {error}".replace("\n", " "))))


def kill_table(
    names: Sequence[str] | None = None,
    *,
    jobs: int = 2,
    examples: int = 100,
    beside: int | None = None,
    progress: Callable[[Row, int, int], None] | None = None,
) -> list[Row]:
    """Run faults and say who noticed.

    Args:
        names: faults, or "control"; all faults by default.
        jobs: how many run at a time. The result does not depend on it, but for the seconds.
        examples: of each clause that a fault names.
        beside: of each other clause; as many by default. Fewer tell sooner whether a fault survives.
        progress: called after each fault with its row, how many are done, and of how many.

    Returns:
        A row for each fault, in the order of `names`.

    Raises:
        GradspecError: a name is unknown.
    """
    faults = [named(name) for name in (FAULTS if names is None else names)]
    spec = load_spec()
    waiting, rows = list(reversed(faults)), {}
    running: dict[Connection, tuple[Fault, SpawnProcess, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, jobs):
                one = waiting.pop()
                running |= _started(one, examples, beside)
            for connection in _ready(running):
                one, process, began = running.pop(connection)
                rows[one.name] = _row(one, connection, process, time.monotonic() - began, spec)
                if progress is not None:
                    progress(rows[one.name], len(rows), len(faults))
    finally:
        for _, process, _ in running.values():
            process.kill()
    return [rows[one.name] for one in faults]


def _started(fault: Fault, examples: int, beside: int | None) -> dict[Connection, tuple[Fault, SpawnProcess, float]]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_task, args=(fault.name, examples, beside, sender), daemon=True)
    process.start()
    sender.close()  # so that the end of the process ends the pipe
    return {receiver: (fault, process, time.monotonic())}


def _ready(running: Mapping[Connection, tuple[Fault, SpawnProcess, float]]) -> list[Connection]:
    """The connections that answered, ended, or have been waited for too long."""
    now = time.monotonic()
    late = [connection for connection, (_, _, began) in running.items() if now - began > PATIENCE]
    answered = [each for each in wait(list(running), timeout=0 if late else 5) if isinstance(each, Connection)]
    return [*answered, *(each for each in late if each not in answered)]


def _row(fault: Fault, connection: Connection, process: SpawnProcess, seconds: float, spec: Spec) -> Row:
    row = Row(fault.name, fault.title, fault.source, fault.clauses, seconds=round(seconds, 1))
    try:
        late: tuple[dict[str, int], list[str], int, str] = {}, [], 0, f"it took more than {PATIENCE:.0f} s"
        failed, unqualified, judged, error = connection.recv() if connection.poll() else late
    except EOFError:
        process.join()
        failed, unqualified, judged, error = {}, [], 0, f"its process ended with exit status {process.exitcode}"
    process.kill()
    process.join()
    connection.close()
    split = classified(fault, failed, spec)
    return dataclasses.replace(
        row,
        caught_by=split["caught_by"],
        implied=split["implied"],
        others=split["others"],
        judged=judged,
        unqualified=tuple(unqualified),
        error=error,
    )


# --- what the table says ------------------------------------------------------------------------------------------


def survivors(rows: Iterable[Row]) -> list[str]:
    """The faults that none of their own clauses noticed, those without a result included."""
    return [row.fault for row in rows if row.fault != CONTROL and row.survived]


def musts(spec: Spec, chapters: Iterable[str]) -> list[Clause]:
    """The MUST cards of some chapters that are not pending."""
    wanted = set(chapters)
    cards = [c for c in spec.clauses.values() if c.requirement == "MUST" and c.status != "pending"]
    return [card for card in cards if card.chapter in wanted]


def uncovered(spec: Spec, rows: Iterable[Row]) -> list[str]:
    """The MUST clauses of the chapters that have faults, which killed none of the faults that name them."""
    rows = list(rows)
    killing = {name for row in rows for name in row.caught_by}
    chapters = {name.partition("-")[0] for row in rows for name in row.clauses}
    return [card.id for card in musts(spec, chapters) if card.id not in killing]


def too_broad(rows: Iterable[Row]) -> list[str]:
    """The faults that break more than one other clause and more than a tenth of the rest of what was judged."""
    return [
        row.fault
        for row in rows
        if row.fault != CONTROL and len(row.others) > max(1, (row.judged - len(row.clauses)) // 10)
    ]


def summary(spec: Spec, rows: Sequence[Row]) -> str:
    """The table in one line."""
    rows = [row for row in rows if row.fault != CONTROL]
    lost = len(survivors(rows))
    chapters = {name.partition("-")[0] for row in rows for name in row.clauses}
    total = len(musts(spec, chapters))
    covered = total - len(uncovered(spec, rows))
    return (
        f"{len(rows)} faults, {len(rows) - lost} caught, {lost} survived;"
        f" MUST clauses with a killing fault: {covered}/{total}"
    )


def _listed(failed: Mapping[str, int], *, counts: bool) -> str:
    return ", ".join(f"{name} ({n})" if counts else name for name, n in failed.items())


def render(rows: Iterable[Row]) -> Table:
    """The table for a terminal of 80 columns: fault and title, who caught it (examples), what else it hit."""
    table = Table(box=box.SIMPLE, width=80, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("fault", ratio=6, overflow="fold")
    table.add_column("caught by (examples)", ratio=3, overflow="fold")
    table.add_column("also hit", ratio=3, overflow="fold")
    for row in rows:
        caught = _listed(row.caught_by, counts=True) or row.error or ("" if row.fault == CONTROL else "SURVIVED")
        hit = [_listed(row.others, counts=False), f"implied: {len(row.implied)}" if row.implied else ""]
        table.add_row(f"{row.fault}\n  {row.title}", caught, "\n".join(part for part in hit if part))
    return table


def to_json(rows: Iterable[Row]) -> str:
    """The table as JSON: the same for the same suite, apart from "seconds"."""
    data = [dataclasses.asdict(row) | {"survived": row.survived and row.fault != CONTROL} for row in rows]
    return json.dumps({"faults": data}, indent=1, ensure_ascii=False) + "\n"


# --- for the command line -----------------------------------------------------------------------------------------


def main(names: Sequence[str] = (), *, json: str | None = None, jobs: int = 2, beside: int | None = None) -> int:
    """What `gradspec faults` does: run, print, write.

    Args:
        names: faults; all by default.
        json: where to write the table.
        jobs: how many run at a time.
        beside: examples of the clauses that a fault does not name; as many as of its own by default.

    Returns:
        0; 1 where a fault survived, the control fails, or (all faults run) a MUST clause killed none.
    """
    from gradspec.report.board import make_console  # noqa: PLC0415 - a worker needs no terminal

    console, spec = make_console(width=80), load_spec()
    chosen = list(names or FAULTS)

    def progress(row: Row, done: int, total: int) -> None:
        state = "ok" if row.fault == CONTROL else row.error or ("SURVIVED" if row.survived else "caught")
        console.print(f"{done}/{total} {row.fault}: {state}", soft_wrap=True)

    control, *rows = kill_table([CONTROL, *chosen], jobs=jobs, beside=beside, progress=progress)
    console.print(render(rows))
    problems = [f"fails without any fault: {name}" for name in control.others]
    problems += [control.error] if control.error else []
    problems += [f"survived: {name}" for name in survivors(rows)]
    if not names:
        problems += [f"MUST without a killing fault: {name}" for name in uncovered(spec, rows)]
    for line in (*problems, *(f"broad: {name}" for name in too_broad(rows))):
        console.print(line, soft_wrap=True)
    console.print(summary(spec, rows), soft_wrap=True)
    if json is not None:
        _written(Path(json), to_json(rows))
    return 1 if problems else 0


def _written(path: Path, text: str) -> None:
    """Beside, then renamed: there is never half a file."""
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise GradspecError(f"cannot be written: {error.strerror}", path=path) from None
