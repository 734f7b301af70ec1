"""`gradspec check`: the suite on one implementation, in processes of its own, with a record at the end.

The implementation is first loaded in a process that may die of it (`probe.py`). Then pytest runs in this process as the
controller of xdist's workers: nothing of the implementation is ever imported here, and nothing of the user's pytest
configuration, environment or other plug-ins reaches the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from json import loads
from pathlib import Path
from typing import Any, Protocol

import pytest

import gradspec.suite
from gradspec.adapters import CouldNotStart, Interrupts
from gradspec.errors import GradspecError
from gradspec.journal import memory_share
from gradspec.options import TIMEOUT, Options, resolve
from gradspec.plugin import DIED, ROW, RUN, Gathered, check_traceable
from gradspec.probe import Declared, Examined, check_features, examine, probe
from gradspec.report.expectations import Expectations, load_expectations
from gradspec.report.record import Record, is_stream, write_record

__all__ = ["Progress", "check", "check_writable", "default_jobs", "run"]

_ENVIRONMENT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_AUTO_NUM_WORKERS")


class Progress(Protocol):
    """What is told about a run while it goes on; `report.board.Board` is one."""

    def done(self, row: Mapping[str, Any]) -> None:
        """An item finished."""

    def lost(self, item: str, verdict: str) -> None:
        """An item's process died."""


Opener = Callable[[Options, Sequence[tuple[str, str]], Expectations], contextlib.AbstractContextManager[Progress]]
"""Makes the progress once it is known which items will be run and which failures are listed."""


def default_jobs() -> int:
    """Two workers where there are two processors."""
    return max(1, min(2, os.cpu_count() or 1))


def check(
    adapter: str = "refgrad",
    *,
    level: str | None = None,
    requirement: str | Iterable[str] = (),
    feature: str | Iterable[str] = (),
    chapter: str | Iterable[str] = (),
    clause: str | Iterable[str] = (),
    seed: int | str = 0,
    profile: str = "default",
    jobs: int | None = None,
    expect: str | os.PathLike[str] | None = None,
    strict: bool = False,
    case: str | os.PathLike[str] | None = None,
    shard: str | None = None,
    python: str | None = None,
    timeout: float = TIMEOUT,
    memory: int | None = None,
    json: str | os.PathLike[str] | None = None,
) -> Record:
    """Run the suite on an implementation.

    Args:
        adapter: a shipped name, `module:attr` or `file.py[:attr]`.
        level: clauses up to this level of the ladder, such as "L3".
        requirement: one or several of MUST, SHOULD, MAY, TORCH: only these.
        feature: one or several features: only clauses that need one of them.
        chapter: one or several chapters: only theirs.
        clause: one or several ids: only these.
        seed: what the examples are drawn from; "random" draws one.
        profile: "smoke", "default" or "deep": how many examples.
        jobs: the number of worker processes, at least one; by default two, or one on a machine with one processor.
        expect: a file of expected failures; by default the one that is shipped with the adapter, if there is one.
        strict: a failure of a SHOULD counts as one of a MUST.
        case: a file with one case: run that instead of drawn ones (needs one clause).
        shard: run a part of the selection, as "2/3"; `merge` puts the records together.
        python: an interpreter that serves the implementation, which then needs not be installed beside gradspec.
        timeout: seconds that one example may take; 0 for no limit.
        memory: MiB that each process of the implementation may use, where the system can hold it to that; by default
            its share of four fifths of the machine; 0 for no limit.
        json: a file that the record is written to.

    Returns:
        The record: a dict in the form of `schemas/record-1.schema.json`. Its "exit_status" is 0 where the
        implementation conforms, 1 where it does not, 130 where the run was interrupted.

    Raises:
        GradspecError: wrong usage, such as an unknown clause.
        CouldNotStart: the implementation could not be started (a subclass of GradspecError).
    """
    options = resolve(
        adapter,
        level=level,
        requirement=_several(requirement),
        feature=_several(feature),
        chapter=_several(chapter),
        clause=_several(clause),
        seed=seed,
        profile=profile,
        strict=strict,
        expect=expect,
        case=case,
        shard=shard,
        python=python,
        timeout=timeout,
        memory=memory,
    )
    return run(options, jobs=jobs, json=json)


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def run(
    options: Options,
    *,
    jobs: int | None = None,
    json: str | os.PathLike[str] | None = None,
    progress: Opener | None = None,
) -> Record:
    """Run what `options` ask for; see `check`. `progress` makes what is told while the run goes on."""
    if jobs is not None and jobs < 1:
        raise GradspecError(f"--jobs {jobs}: at least one worker is needed, which keeps the implementation apart")
    if json is not None:
        check_writable(Path(json))
    examined = examined_by(options, jobs or default_jobs())
    record = _run_pytest(options, examined, jobs or default_jobs(), progress)
    if json is not None:
        write_record(Path(json), record)
    return record


def declared_by(options: Options) -> Declared:
    """What the implementation declares, after everything was checked that can be before it runs."""
    _check_beforehand(options)
    return _check_declared(options, probe(options.adapter, python=options.python))


def examined_by(options: Options, jobs: int = 1) -> Examined:
    """What is found out about the implementation and its adapter before the suite runs, after the same checks.

    Args:
        options: what is asked for.
        jobs: how many processes will share the machine's memory where no limit is asked for.
    """
    _check_beforehand(options)
    memory = memory_share(jobs) if options.memory is None else options.memory
    examined = examine(options.adapter, options.python, timeout=options.timeout, memory=memory)
    _check_declared(options, examined.declared)
    return examined


def _check_beforehand(options: Options) -> None:
    check_traceable(options)
    if options.expect is not None:
        load_expectations(options.expect, "", options.spec)


def _check_declared(options: Options, declared: Declared) -> Declared:
    check_features(options.adapter, declared, options.spec.features)
    load_expectations(options.expect, declared.name, options.spec)
    return declared


def check_writable(path: Path) -> None:
    """GradspecError where a file could not be written to `path`: told before a run, not after it."""
    if path.is_dir():
        raise GradspecError("is a folder: name a file in it", path=path)
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise GradspecError("cannot be written: Permission denied", path=path)
        return
    if not path.parent.is_dir():
        raise GradspecError(f"the folder {path.parent} does not exist: make it first", path=path)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise GradspecError(f"the folder {path.parent} cannot be written: {error.strerror}", path=path) from None


# --- pytest -------------------------------------------------------------------------------------------------------


class _Listener:
    """Sits in pytest's controller: hands the declarations in, feeds the progress, brings the record out."""

    def __init__(self, options: Options, examined: Examined, progress: Opener | None) -> None:
        self.options, self.examined, self.opener = options, examined, progress
        self.config: pytest.Config | None = None
        self.internal_error = ""
        self.interrupts = Interrupts()
        self._open = contextlib.ExitStack()
        self._progress: Progress | None = None

    # trylast: after the hooks of the plug-in

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Hand in what was found out."""
        self.config = config
        config.stash[RUN].examined = self.examined

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionstart(self) -> Generator[None, object, object]:
        """Workers leave Ctrl-C to this process from their first moment: they inherit that the signal is held back."""
        if not hasattr(signal, "pthread_sigmask"):
            return (yield)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return (yield)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @pytest.hookimpl(trylast=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """The items are known: the progress can begin."""
        assert self.config is not None, "pytest configures first"
        if self.opener is not None and self._progress is None:
            items = self.config.stash[RUN].items or []
            listed = load_expectations(self.options.expect, self.examined.declared.name, self.options.spec)
            self._progress = self._open.enter_context(self.opener(self.options, items, listed))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell what came in."""
        if self._progress is None or self.config is None:
            return
        given, when = dict(report.user_properties), str(report.when)
        if when == "call" and ROW in given:
            self._progress.done(loads(str(given[ROW])))
        elif when == DIED and report.failed:
            nodeid, ending = self.config.stash[RUN].lost[-1]
            self._progress.lost(nodeid, ending.verdict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """The progress ends before anything else is said; a Ctrl-C counts even where pytest broke of another thing."""
        self._open.close()
        if self.config is not None:
            self.config.stash[RUN].interrupted |= self.interrupts.seen

    def pytest_internalerror(self, excrepr: object) -> bool:
        """Keep it: without a terminal it would be lost."""
        self.internal_error = str(excrepr).strip()
        return True


def _run_pytest(options: Options, examined: Examined, jobs: int, progress: Opener | None) -> Record:
    listener = _Listener(options, examined, progress)
    try:
        with _own_environment(), listener.interrupts, tempfile.TemporaryDirectory(prefix="gradspec-") as journal:
            status = pytest.main([*_arguments(options, jobs), f"--gradspec-journal={journal}"], plugins=[listener])
    finally:
        listener.pytest_sessionfinish()
    gathered = listener.config.stash[RUN] if listener.config is not None else Gathered()
    if gathered.record is not None:
        return gathered.record
    if listener.interrupts.seen or gathered.interrupted:  # before any worker had found its items
        raise KeyboardInterrupt
    if gathered.refusal is not None:
        refused, text = gathered.refusal
        raise CouldNotStart(text) if refused == CouldNotStart.status else GradspecError(text)
    why = listener.internal_error.splitlines()[-1:] or [f"pytest ended with status {int(status)}"]
    raise CouldNotStart(f"{options.adapter}: the run broke off before it had a result: {why[0]}")


def _arguments(options: Options, jobs: int) -> list[str]:
    suite = Path(gradspec.suite.__file__).resolve().parent
    several = {
        "requirement": options.selection.requirement,
        "feature": options.selection.feature,
        "chapter": options.selection.chapter,
        "clause": options.selection.clause,
    }
    arguments = [
        f"--config-file={suite / 'pytest.ini'}",
        f"--rootdir={suite}",
        "--noconftest",
        "--import-mode=importlib",
        "--assert=plain",
        "--capture=no",  # the workers write nowhere: a file of what they print could fill the disk
        *(f"-pno:{name}" for name in ("terminal", "cacheprovider", "faulthandler")),
        *("-p", "xdist.plugin", "-p", "gradspec.plugin"),
        f"--numprocesses={jobs}",
        "--dist=load",
        "--maxschedchunk=1",
        "--max-worker-restart=1000000",  # the default would silently drop what is left
        f"--adapter={options.adapter}",
        f"--gradspec-seed={options.seed}",
        f"--gradspec-profile={options.profile}",
        f"--gradspec-timeout={options.timeout}",
        f"--gradspec-memory={memory_share(jobs) if options.memory is None else options.memory}",
        *(f"--gradspec-{name}={value}" for name, values in several.items() for value in values),
    ]
    if options.selection.level:
        arguments.append(f"--gradspec-level={options.selection.level}")
    if options.expect:
        arguments.append(f"--gradspec-expect={options.expect}")
    if options.strict:
        arguments.append("--gradspec-strict")
    if options.case_file:
        arguments.append(f"--gradspec-case={options.case_file}")
    if options.shard:
        arguments.append("--gradspec-shard={}/{}".format(*options.shard))
    if options.python:
        arguments.append(f"--gradspec-python={options.python}")
    return [*arguments, str(suite)]


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """The user's pytest settings and other plug-ins stay out of the run, also in the workers; put back afterwards."""
    before = {name: os.environ.pop(name) for name in _ENVIRONMENT if name in os.environ}
    autoload = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        os.environ.update(before)
        if autoload is None:
            del os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
        else:
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = autoload
