"""Runs one item of the suite: one test judged for one clause, on one implementation.

An item draws cases with Hypothesis and runs the test on each. The result is a row of JSON data: counts, and the
smallest failure with its case and trace. Nothing here knows pytest: the plug-in, the kill table and the tests of the
suite call `run_item`. A row depends on the seed, the profile, the item's id and the implementation only.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.strategies import SearchStrategy

from gradspec.adapter import Gone, Unsupported
from gradspec.capabilities import Capabilities
from gradspec.judge import BuildFailed, Finding, Judge, NotJudged
from gradspec.programs.program import Case
from gradspec.session import Misuse, NativeError, Session
from gradspec.wire import bounded

EXAMPLES: Mapping[str, int] = {"smoke": 8, "default": 100, "deep": 1500}
"""Examples of a clause in each profile."""

SHRINK_BUDGET = 300
"""Examples after the first failure; counted, since wall time would make the result depend on the machine."""

CaseStrategy = Callable[[Capabilities], SearchStrategy[Case]]


class Watch(Protocol):
    """Told of each example, and of nothing that is ours, such as drawing the case."""

    def begin(self, number: int, case: Case) -> None:
        """An example is going to be run; `number` ran before."""

    def end(self) -> None:
        """It ended."""


@dataclass(frozen=True)
class SuiteTest:
    """A test function of the suite.

    Attributes:
        name: module and function, as `test_retain.py::test_x`.
        function: called with the session and a case.
        clauses: the ids that it judges.
        draws: from what the implementation offers to the strategy of cases.
        source: file and line, for messages.
        at_least: fewest examples in any profile: a test over a finite table asks for all of it.
    """

    name: str
    function: Callable[[Session, Case], None]
    clauses: tuple[str, ...]
    draws: CaseStrategy
    source: tuple[str, int] = ("", 0)
    at_least: int = 0

    def item(self, clause: str) -> str:
        """The full id of the item that judges `clause`: also what its examples are seeded with."""
        return f"{self.name}[{clause}]"


@dataclass(frozen=True)
class Expected:
    """What an expectation says of a clause: the kind of its failure and the pinned case."""

    kind: str
    case: Case


@dataclass(frozen=True)
class Settings:
    """How to run an item. `stop_at_first` ends at the first failure, without shrinking (the kill table)."""

    seed: int = 0
    examples: int = EXAMPLES["default"]
    stop_at_first: bool = False


@dataclass
class _Progress:
    """Counts of one item while it runs."""

    watch: Watch | None = None
    begun: int = 0
    examples: int = 0
    assertions: int = 0
    discards: collections.Counter[str] = field(default_factory=collections.Counter)
    expected_hits: int = 0
    failure: dict[str, Any] | None = None
    smallest: tuple[int, dict[str, Any], Case] | None = None
    since_failure: int = 0
    lost: str | None = None

    @contextlib.contextmanager
    def watching(self, case: Case) -> Iterator[None]:
        """Around one example."""
        if self.watch is not None:
            self.watch.begin(self.begun, case)
        self.begun += 1
        try:
            yield
        finally:
            if self.watch is not None:
                self.watch.end()


def run_item(
    test: SuiteTest,
    clause: str,
    session: Session,
    capabilities: Capabilities,
    settings: Settings,
    expected: Expected | None = None,
    only: Case | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Judge one clause by one test and return the row.

    Args:
        test: the test.
        clause: one of its ids; findings on its other ids are not raised.
        session: the session over the implementation.
        capabilities: what strategies may draw.
        settings: seed and number of examples.
        expected: a listed failure: its pinned case is replayed first, drawn cases must then fail the same way or pass.
        only: run this one case instead of drawing any.
        watch: told of each example before it is run.

    Returns:
        The row: item, clause, examples, assertions, discards (by reason), failure or None, pinned or None, seconds, and
        lost: "crashed" or "timed_out" where the process of the implementation ended in the example that failed.
    """
    progress = _Progress(watch)
    started = time.perf_counter()
    row: dict[str, Any] = {"item": test.item(clause), "clause": clause, "pinned": None}
    if only is not None:
        _replay(test, clause, session, progress, only)
    else:
        if expected is not None:
            pinned = _Progress(watch)
            _replay(test, clause, session, pinned, expected.case)
            row["pinned"] = {"failure": pinned.failure, "discards": dict(pinned.discards)}
            progress.begun, progress.lost = pinned.begun, pinned.lost
            progress.examples, progress.assertions = pinned.examples, pinned.assertions
        if progress.lost is None:
            _draw(test, clause, session, capabilities, settings, expected, progress)
    row |= {
        "examples": progress.examples,
        "assertions": progress.assertions,
        "discards": dict(sorted(progress.discards.items())),
        "expected_hits": progress.expected_hits,
        "failure": progress.failure,
        "lost": progress.lost,
        "seconds": round(time.perf_counter() - started, 4),
    }
    return row


def _replay(test: SuiteTest, clause: str, session: Session, progress: _Progress, case: Case) -> None:
    with contextlib.suppress(_Failed, _Discarded, _Enough):
        _example(test, clause, session, progress, case, expected=None)


def _draw(
    test: SuiteTest,
    clause: str,
    session: Session,
    capabilities: Capabilities,
    settings: Settings,
    expected: Expected | None,
    progress: _Progress,
) -> None:
    try:
        strategy = test.draws(capabilities)
    except Unsupported as missing:
        progress.discards[f"unsupported: {missing}"] += 1
        return

    def example(case: Case) -> None:
        if progress.failure is not None:
            progress.since_failure += 1
            if settings.stop_at_first or progress.since_failure > SHRINK_BUDGET:
                raise _Enough
        try:
            _example(test, clause, session, progress, case, expected)
        except _Discarded:
            hypothesis.reject()

    shrinks = not settings.stop_at_first and expected is None
    how = _hypothesis_settings(max(settings.examples, test.at_least), shrinks=shrinks)
    run = how(hypothesis.given(strategy)(example))
    hypothesis.seed(stable_hash(f"{settings.seed}:{test.item(clause)}"))(run)
    try:
        run()
    except _Failed:
        pass
    except _Enough:
        if progress.lost is None:
            _confirm(test, clause, session, progress)
    except Unsupported as missing:  # only the draw itself raises it here
        progress.discards[f"unsupported: {missing}"] += 1
    except hypothesis.errors.Unsatisfiable:
        pass  # every case was discarded: the counts say why
    except hypothesis.errors.Flaky:
        assert progress.failure is not None
        progress.failure["flaky"] = True


def _hypothesis_settings(examples: int, *, shrinks: bool) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        backend="hypothesis",  # every one that a user's profile could set: what is left out is inherited from it
        suppress_health_check=list(HealthCheck),
    )


def _confirm(test: SuiteTest, clause: str, session: Session, progress: _Progress) -> None:
    """Replay the smallest failure, as Hypothesis does where it comes to an end by itself."""
    assert progress.smallest is not None
    _, progress.failure, case = progress.smallest
    failure = progress.failure
    try:
        _example(test, clause, session, progress, case, expected=None)
    except _Failed:
        return
    except _Discarded:
        pass
    failure["flaky"] = True


class _Enough(BaseException):
    """The examples after the first failure are spent: no Exception, so that it ends Hypothesis' search at once."""


class _Failed(Exception):
    """The example failed; the progress holds the failure."""


class _Discarded(Exception):
    """The example says nothing about the clause; the progress counts the reason."""


def _example(
    test: SuiteTest, clause: str, session: Session, progress: _Progress, case: Case, expected: Expected | None
) -> None:
    judge = Judge(clause)
    session.judge = judge
    failure: dict[str, Any] | None = None
    reason = ""
    with isolated(), progress.watching(case):
        try:
            session.start()
            test.function(session, case)
            judge.close()
        except Unsupported as missing:
            reason = f"unsupported: {missing}"
        except (BuildFailed, NotJudged) as why:
            reason = str(why)
        except Finding as finding:
            failure = finding.to_json()
        except NativeError as error:
            failure = _raised(error)
        except Gone as gone:
            progress.lost = gone.verdict
            failure = unended(gone.verdict, gone.reason)
        except (hypothesis.errors.HypothesisException, KeyboardInterrupt, Misuse):
            raise
        except MemoryError:  # outside an act, but it is the implementation that has filled the memory
            failure = unended("raised", "MemoryError: there is no memory left")
        except Exception as error:  # noqa: BLE001 - a fault of ours, or a result that no check foresaw
            failure = _surprise(error)
    if reason:
        progress.discards[reason] += 1
        raise _Discarded
    progress.examples += 1
    progress.assertions += judge.assertions
    if failure is None:
        return
    if progress.lost is not None:  # not to be shrunk: each further example would cost a process
        progress.failure = failure | {"case": case.to_json(), "trace": [step.to_json() for step in session.trace]}
        raise _Enough
    if expected is not None and failure["kind"] == expected.kind:
        progress.expected_hits += 1
        return
    progress.failure = failure | {"case": case.to_json(), "trace": [step.to_json() for step in session.trace]}
    size = len(json.dumps(progress.failure["case"]))
    if progress.smallest is None or size <= progress.smallest[0]:
        progress.smallest = size, progress.failure, case
    raise _Failed


def _raised(error: NativeError) -> dict[str, Any]:
    kind = "nonsense" if error.kinds == {"nonsense"} else "raised"
    found = (
        error.text if kind == "nonsense" else f"raised {error.type}: {error.text} (at act {error.step}, {error.act})"
    )
    return {"kind": kind, "message": str(error), "expected": f"{error.act} succeeds", "found": found}


def _surprise(error: Exception) -> dict[str, Any]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119 - never an absolute path in a record
    text = bounded(f"{type(error).__name__} at {place}: {error}")
    return {"kind": "suite_error", "message": text, "expected": "the suite can judge the case", "found": text}


def unended(kind: str, found: str) -> dict[str, Any]:
    """The failure of an example that did not come to its end."""
    return {"kind": kind, "message": found, "expected": "the example ends", "found": found}


class _Nowhere(io.TextIOBase):
    """A stream that takes everything and keeps nothing."""

    def write(self, text: str) -> int:
        """Take the text."""
        return len(text)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Put back what an implementation may change for the whole process: warnings, NumPy errors, streams, folder."""
    errors, folder, limit = np.geterr(), os.getcwd(), sys.getrecursionlimit()  # noqa: PTH109 - a plain string is put back
    streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = _Nowhere()  # what an implementation prints, or does to the stream, is its own affair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            np.seterr(**errors)
            sys.stdout, sys.stderr = streams
            sys.setrecursionlimit(limit)
            if os.getcwd() != folder:  # noqa: PTH109
                os.chdir(folder)


def stable_hash(text: str) -> int:
    """A number that depends on the text alone, equal in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
