"""The pytest plug-in: options, selection, one item a clause, the record of a run.

pytest loads it into every run of everybody who has gradspec installed, so it does nothing, and imports neither NumPy
nor Hypothesis, until a test of `gradspec.suite` is collected. Each process that runs items has one implementation;
every item sends its row as a property of its report; the process that the user started computes the verdicts from the
rows.

PYTEST_DONT_REWRITE: there is nothing to rewrite here, and `gradspec check` may have imported the module already.
"""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from gradspec.errors import GradspecError
from gradspec.journal import Ending, ending

if TYPE_CHECKING:
    from gradspec.capabilities import Capabilities
    from gradspec.engine import SuiteTest
    from gradspec.journal import Journal
    from gradspec.options import Options
    from gradspec.probe import Examined
    from gradspec.report.expectations import Expectations
    from gradspec.report.record import Qualification, Record
    from gradspec.report.verdicts import Declarations, Lost
    from gradspec.session import Session

ROW = "gradspec"
"""A property of a report: the row of the item."""

WRONG_USAGE = 2
DIED = "???"
"""How xdist marks the report of an item whose worker died."""

_REFUSED = "gradspec_refused"
_DEATHS = 3
"""So many processes in a row that end while they load the implementation end the run: xdist would go on for ever."""

_SEED, _QUALIFICATION = "gradspec_seed", "gradspec_qualification"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all with a prefix but `--adapter`."""
    group = parser.getgroup("gradspec", "the conformance suite (pytest --pyargs gradspec.suite)")
    add = group.addoption
    add("--adapter", metavar="NAME", help="the implementation: a shipped name, module:attr or file.py[:attr]")
    add("--gradspec-seed", metavar="N", default="0", help="what the examples are drawn from, or the word random")
    add("--gradspec-profile", metavar="P", default="default", help="smoke, default or deep: how many examples")
    add("--gradspec-expect", metavar="FILE", help="the failures that are expected")
    add("--gradspec-level", metavar="L", help="clauses up to this level of the ladder, such as L3")
    for name in ("requirement", "feature", "chapter", "clause"):
        add(f"--gradspec-{name}", metavar="X", action="append", default=[], help=f"clauses of this {name}; repeatable")
    add("--gradspec-case", metavar="FILE", help="run this one case only; needs one --gradspec-clause")
    add("--gradspec-strict", action="store_true", help="a failure of a SHOULD counts")
    add("--gradspec-shard", metavar="I/N", help="the I-th of N parts of the selection")
    add("--gradspec-python", metavar="FILE", help="the interpreter that the implementation is served from")
    add("--gradspec-timeout", metavar="S", default="0", help="seconds that an example may take")
    add("--gradspec-memory", metavar="MIB", help="memory for a process that runs items")
    add("--gradspec-journal", metavar="DIR", help="a folder in which each process notes what it runs (gradspec check)")
    add("--gradspec-record", metavar="FILE", help="write the record of the run")


# --- a process that runs items ------------------------------------------------------------------------------------


@dataclass
class Bench:
    """The implementation under test in this process, ready to run items."""

    options: Options
    session: Session
    declarations: Declarations
    capabilities: Capabilities
    expectations: Expectations
    journal: Journal | None = None

    @classmethod
    def of(cls, options: Options, qualification: Qualification, journal: Journal | None = None) -> Bench:
        """Load the implementation. GradspecError where it or what it declares is not as it should be.

        Args:
            options: what is asked for.
            qualification: what another process has found out about its operations.
            journal: the notes of this process, if it keeps any.
        """
        from gradspec.capabilities import Capabilities  # noqa: PLC0415 - the plug-in is inert until it is needed
        from gradspec.declared import Declared, check_features, declarations  # noqa: PLC0415
        from gradspec.remote import open_adapter  # noqa: PLC0415
        from gradspec.report.expectations import load_expectations  # noqa: PLC0415
        from gradspec.report.verdicts import Declarations  # noqa: PLC0415
        from gradspec.session import Session  # noqa: PLC0415

        adapter = open_adapter(options.adapter, options.python, timeout=options.timeout, memory=options.memory)
        declared = Declared(declarations(adapter, options.adapter))
        check_features(options.adapter, declared, options.spec.features)
        expectations = load_expectations(options.expect, adapter.name, options.spec)
        capabilities = Capabilities.of(adapter, frozenset() if qualification.void else frozenset(qualification.failed))
        return cls(options, Session(adapter), Declarations.of(declared), capabilities, expectations, journal)

    def run(self, test: SuiteTest, clause: str) -> dict[str, Any]:
        """The row of one item."""
        from gradspec.adapters import Interrupts  # noqa: PLC0415
        from gradspec.engine import EXAMPLES, Settings, run_item  # noqa: PLC0415
        from gradspec.report.verdicts import missing  # noqa: PLC0415

        lack = missing(self.options.spec.clauses[clause], self.declarations)
        if lack:
            return unsupported_row(test, clause, lack)
        settings = Settings(self.options.seed, EXAMPLES[self.options.profile])
        expected = self.expectations.expected(clause)
        watch = None if self.journal is None else self.journal.of(test.item(clause))
        with Interrupts() as interrupts:
            row = run_item(test, clause, self.session, self.capabilities, settings, expected, self.options.case, watch)
        if interrupts.seen:  # the session took it for an exception of the implementation
            raise KeyboardInterrupt
        return row


def unsupported_row(test: SuiteTest, clause: str, reason: str) -> dict[str, Any]:
    """The row of an item that is not run: the implementation does not declare what its clause needs."""
    return {
        "item": test.item(clause),
        "clause": clause,
        "pinned": None,
        "examples": 0,
        "assertions": 0,
        "discards": {f"unsupported: {reason}": 1},
        "expected_hits": 0,
        "failure": None,
        "seconds": 0.0,
    }


_BENCH = pytest.StashKey[Bench]()
_JOURNAL = pytest.StashKey["Journal"]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the suite becomes one item for each of its clauses."""
    test = getattr(metafunc.function, "suite_test", None)
    if test is not None and "gradspec_clause" in metafunc.fixturenames:
        metafunc.parametrize("gradspec_clause", test.clauses)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what was not selected, and load the implementation if anything is left."""
    ours = {id(item): found for item in items if (found := _suite_item(item)) is not None}
    if not ours:
        return
    try:
        options = _options(config)
        check_traceable(options)
        selected = {c for c in options.selected if options.spec.clauses[c].status != "pending"}
        out = [item for item in items if id(item) in ours and ours[id(item)][1] not in selected]
        config.hook.pytest_deselected(items=out)
        gone = {id(item) for item in out}
        items[:] = [item for item in items if id(item) not in gone]
        pairs = [(test.item(clause), clause) for key, (test, clause) in ours.items() if key not in gone]
        if not config.option.collectonly:
            config.stash[_BENCH] = _loaded(options, _handed(config), config.stash.get(_JOURNAL, None))
    except GradspecError as error:
        items.clear()  # xdist would hand them out to a worker that has ended
        _refuse(config, error)
    if RUN in config.stash:
        config.stash[RUN].items = pairs


def _loaded(options: Options, qualification: Qualification, journal: Journal | None) -> Bench:
    """The implementation, in no more time than it has."""
    from gradspec.probe import TIMEOUT  # noqa: PLC0415

    if journal is not None:
        journal.limit(TIMEOUT)
    try:
        return Bench.of(options, qualification, journal)
    finally:
        if journal is not None:
            journal.rest()


def _suite_item(item: pytest.Item) -> tuple[SuiteTest, str] | None:
    test = getattr(getattr(item, "function", None), "suite_test", None)
    call = getattr(item, "callspec", None)
    return None if test is None or call is None else (test, call.params["gradspec_clause"])


def _refuse(config: pytest.Config, error: GradspecError) -> NoReturn:
    """End a run that cannot begin; a worker leaves the word to the process that started it."""
    status = error.status
    if hasattr(config, "workeroutput"):
        config.workeroutput[_REFUSED] = [status, str(error)]
    if RUN in config.stash:
        config.stash[RUN].refusal = status, str(error)
    _end(status, str(error))


def _end(status: int, text: str) -> NoReturn:
    if status == WRONG_USAGE:
        raise pytest.UsageError(f"gradspec: {text}")
    pytest.exit(f"gradspec: {text}", returncode=status)


def check_traceable(options: Options) -> None:
    """GradspecError where cards and tests do not belong to each other, with a line for each finding."""
    from gradspec.spec import check_traceability  # noqa: PLC0415
    from gradspec.suite.support import suite_tests  # noqa: PLC0415

    tests = suite_tests()
    findings = check_traceability(options.spec, {t.name: t.clauses for t in tests}, refused_ids(tests))
    if findings:
        raise GradspecError("tests and cards do not belong to each other:\n" + "\n".join(findings))


def refused_ids(tests: Iterable[SuiteTest]) -> set[str]:
    """The ids that tests of the suite name as the clause behind an error that they ask for.

    They do so by `refused(impl, "RETAIN-01", …)`, or by a helper of the suite that hands a parameter on to it.
    """
    folders = {Path(test.source[0]).parent for test in tests}
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    asking: dict[str, dict[str, int]] = {"refused": {"clause": 1}}  # function -> parameter -> its place
    before = -1
    while before != (before := sum(map(len, asking.values()))):
        for function in functions:
            given = function.args
            places = {a.arg: n for n, a in enumerate([*given.posonlyargs, *given.args, *given.kwonlyargs])}
            handed = {node.id for node in _asked(function, asking) if isinstance(node, ast.Name)} & set(places)
            asking.setdefault(function.name, {}).update({name: places[name] for name in handed})
    literals = [node.value for tree in trees for node in _asked(tree, asking) if isinstance(node, ast.Constant)]
    return {text for text in literals if isinstance(text, str)}


def _asked(tree: ast.AST, asking: Mapping[str, Mapping[str, int]]) -> Iterator[ast.AST]:
    """What calls below `tree` give for the parameters that name the clause of an error."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        parameters = asking.get(ast.unparse(call.func).rpartition(".")[2], {})
        places = set(parameters.values())
        named = [argument for place, argument in enumerate(call.args) if place in places]
        named += [keyword.value for keyword in call.keywords if keyword.arg in parameters]
        yield from (node for argument in named for node in ast.walk(argument))


@pytest.fixture
def gradspec_run(request: pytest.FixtureRequest) -> Callable[[SuiteTest, str], None]:
    """Runs one item of the suite and turns its row into an outcome of pytest."""
    bench, node = request.config.stash[_BENCH], request.node

    def run(test: SuiteTest, clause: str) -> None:
        row = bench.run(test, clause)
        node.user_properties.append((ROW, json.dumps(row)))
        _conclude(bench, clause, row)

    return run


def _conclude(bench: Bench, clause: str, row: dict[str, Any]) -> None:
    from gradspec.report.record import clean_text  # noqa: PLC0415
    from gradspec.report.verdicts import outcome  # noqa: PLC0415

    card, entry = bench.options.spec.clauses[clause], bench.expectations.entries.get(clause)
    verdict, reason = outcome(row, entry.kind if entry else None)
    reason = clean_text(reason)
    if verdict == "unsupported":
        pytest.skip(f"unsupported: {reason}")
    if card.status == "disputed":
        pytest.xfail(f"disputed: {verdict} {reason}".rstrip())
    if verdict == "expected":
        pytest.xfail(entry.reason if entry else reason)
    if verdict != "passed":
        pytest.fail("\n".join(_explained(bench, clause, row, verdict, reason)), pytrace=False)


def _explained(bench: Bench, clause: str, row: dict[str, Any], verdict: str, reason: str) -> list[str]:
    from gradspec.report.failures import failure_lines, replay_line  # noqa: PLC0415

    card, options = bench.options.spec.clauses[clause], bench.options
    head = f"{clause} ({card.requirement}) {verdict.replace('_', ' ')}" + (f": {reason}" if reason else "")
    failure = row["failure"] or (row["pinned"] or {}).get("failure")
    if failure is not None:
        replay = replay_line(options.adapter, clause, options.seed, options.profile)
        failure = {"oracle": "", "other": "", "case": None, "replay": replay} | failure
    return [head, *failure_lines({"failure": failure, "reason": ""}, card.sentence)]


# --- the process that the user started ----------------------------------------------------------------------------


@dataclass
class Gathered:
    """What has come in: the rows of all workers, whatever their order."""

    record: Record | None = None
    items: list[tuple[str, str]] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    lost: list[tuple[str, Ending]] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    examined: Examined | None = None
    pids: dict[Any, int] = field(default_factory=dict)
    endings: dict[Any, Ending] = field(default_factory=dict)
    ready: set[Any] = field(default_factory=set)
    deaths: int = 0
    refusal: tuple[int, str] | None = None
    interrupted: bool = False
    started: str = ""
    clock: float = 0.0

    def put(self, report: pytest.TestReport) -> None:
        """Take in a report."""
        given, when = dict(report.user_properties), str(report.when)
        if ROW in given:
            if when == "call":
                self.rows.append(json.loads(str(given[ROW])))
        elif report.failed and when == DIED:
            self.lost.append((report.nodeid, self.endings.get(getattr(report, "node", None), Ending())))
        elif report.failed:
            self.broken.append((report.nodeid, str(report.longrepr).strip().splitlines()[-1]))


RUN = pytest.StashKey[Gathered]()
"""Where the process that the user started keeps what has come in."""


def pytest_configure(config: pytest.Config) -> None:
    """Where the suite is asked for: a worker leaves Ctrl-C to the process that started it, which gathers the rows."""
    if not config.getoption("--adapter", default=None):
        return
    if hasattr(config, "workerinput"):
        # so a KeyboardInterrupt in a worker was raised by the implementation, and is a failure of its own
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        config.option.gradspec_seed = config.workerinput.get(_SEED, config.option.gradspec_seed)
        if config.option.gradspec_journal:
            config.stash[_JOURNAL] = _contained(config.option)
        return
    gathered = Gathered(started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
    gathered.clock = time.perf_counter()
    config.stash[RUN] = gathered
    if config.option.gradspec_seed == "random":
        from gradspec.options import number_of  # noqa: PLC0415

        config.option.gradspec_seed = str(number_of("random"))


def _contained(option: Any) -> Journal:
    """From here on this process is the implementation's: what it prints, takes and hangs in is bounded."""
    from gradspec.bundle import place  # noqa: PLC0415
    from gradspec.descriptors import muffle  # noqa: PLC0415
    from gradspec.journal import Journal, limit_memory  # noqa: PLC0415
    from gradspec.remote import PATIENCE  # noqa: PLC0415

    place(Path(option.gradspec_journal))
    muffle()
    limit_memory(int(option.gradspec_memory or 0))
    timeout = float(option.gradspec_timeout)
    if timeout and option.gradspec_python:  # it is the other process that is watched, and that may be started anew
        timeout = 2 * timeout + PATIENCE
    return Journal(Path(option.gradspec_journal), timeout)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process with a journal has said all it had to say: it must end now."""
    if _JOURNAL in session.config.stash:
        session.config.stash[_JOURNAL].ends()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Every worker draws from the same seed, also from a random one, and the same operations."""
    if RUN in node.config.stash:
        node.workerinput[_SEED] = node.config.option.gradspec_seed
        node.workerinput[_QUALIFICATION] = json.dumps(asdict(_handed(node.config)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """Note the process of a worker, to end it at once when the run is interrupted."""
    if RUN in node.config.stash:
        node.config.stash[RUN].pids[node] = node.gateway._rinfo().pid  # noqa: SLF001 - as xdist itself reads it


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker that could not begin says why; one that died of it cannot, and is not replaced for ever."""
    gathered = node.config.stash.get(RUN, Gathered())  # nowhere, where no implementation was named
    gathered.endings[node] = _ending(node, gathered.pids.pop(node, None))
    refused = getattr(node, "workeroutput", {}).get(_REFUSED)
    if refused is None and error and node not in gathered.ready:
        gathered.deaths += 1
        if gathered.deaths == _DEATHS:
            adapter = node.config.getoption("--adapter")
            refused = 3, f"{adapter} could not be started: its process ended while it was loaded in a worker"
    if refused is not None:
        gathered.refusal = refused[0], refused[1]
        _end(*gathered.refusal)


def _ending(node: Any, pid: int | None) -> Ending:
    folder, status = node.config.getoption("--gradspec-journal", default=None), None
    if folder is None or pid is None:
        return Ending()
    with contextlib.suppress(AttributeError, subprocess.TimeoutExpired):  # execnet does not promise to show its process
        status = node.gateway._io.popen.wait(1)  # noqa: SLF001
    return ending(Path(folder), pid, status, float(node.config.option.gradspec_timeout))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """What will be run, as the workers found it."""
    if RUN in node.config.stash:
        gathered = node.config.stash[RUN]
        gathered.items, gathered.deaths = _pairs(ids), 0
        gathered.ready.add(node)


def _pairs(nodeids: Iterable[str]) -> list[tuple[str, str]]:
    from gradspec.suite.support import suite_tests  # noqa: PLC0415

    known = {test.item(clause): clause for test in suite_tests() for clause in test.clauses}
    items = [nodeid.rpartition("/")[2] for nodeid in nodeids]
    return [(item, known[item]) for item in items if item in known]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Wrong options are told before any worker is started."""
    config = session.config
    if RUN not in config.stash:
        return
    try:
        _options(config)
        if config.option.gradspec_record:
            from gradspec.runner import check_writable  # noqa: PLC0415

            check_writable(Path(config.option.gradspec_record))
        _examine(config)
    except GradspecError as error:
        _refuse(config, error)
    config.pluginmanager.register(_Gatherer(config.stash[RUN]), "gradspec-gatherer")


def _examine(config: pytest.Config) -> None:
    """Once, before any worker is started: a process that may die of it tells whether the adapter can be believed."""
    gathered = config.stash[RUN]
    if gathered.examined is None and not config.option.collectonly:
        from gradspec.probe import CHECK_TIMEOUT, examine  # noqa: PLC0415

        options = _options(config)
        limits: dict[str, Any] = {"timeout": options.timeout or CHECK_TIMEOUT, "memory": options.memory}
        gathered.examined = examine(options.adapter, options.python, **limits)


def _handed(config: pytest.Config) -> Qualification:
    """What the examination found out about the operations; a worker was told by the process that started it."""
    from gradspec.report.record import Qualification  # noqa: PLC0415

    if hasattr(config, "workerinput"):
        return Qualification(**json.loads(config.workerinput[_QUALIFICATION]))
    return _examined(config.stash[RUN]).qualification


def _examined(gathered: Gathered) -> Examined:
    assert gathered.examined is not None, "the session started with the examination"
    return gathered.examined


class _Gatherer:
    """The hooks of the process that the user started."""

    def __init__(self, gathered: Gathered) -> None:
        self.gathered = gathered

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what an item reports."""
        self.gathered.put(report)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the workers of a run that is interrupted."""
        if excinfo.errisinstance(KeyboardInterrupt):
            self.gathered.interrupted = True
            for pid in self.gathered.pids.values():  # they ignore Ctrl-C, and may be busy for long
                os.kill(pid, signal.SIGTERM)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Make the record, write it, and end with a status that agrees with it."""
        gathered, config = self.gathered, session.config
        if gathered.items is None or gathered.refusal or config.option.collectonly:
            return
        gathered.interrupted |= exitstatus == pytest.ExitCode.INTERRUPTED
        try:
            gathered.record = _record(config, gathered)
            path = config.getoption("--gradspec-record")
            if path:
                from gradspec.report.record import write_record  # noqa: PLC0415

                write_record(path, gathered.record)
        except GradspecError as error:  # no usage error can be raised here any more
            status = pytest.ExitCode.USAGE_ERROR if error.status == WRONG_USAGE else error.status
            pytest.exit(f"gradspec: {error}", returncode=status)
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # a shard may have no item at all
            conforms = gathered.record["conforms"]
            session.exitstatus = pytest.ExitCode.OK if conforms else pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What the items alone do not show."""
        record = self.gathered.record
        if record is not None:
            terminalreporter.section("gradspec", sep="-")
            for problem in record["problems"]:
                terminalreporter.line(problem)
            terminalreporter.line(f"seed {record['seed']}: {'conforms' if record['conforms'] else 'does not conform'}")


def _options(config: pytest.Config) -> Options:
    if not config.getoption("--adapter"):
        raise GradspecError("say which implementation to check: --adapter refgrad, or module:attr, or file.py")
    from gradspec.options import resolve  # noqa: PLC0415

    option = config.option
    return resolve(
        option.adapter,
        level=option.gradspec_level,
        requirement=option.gradspec_requirement,
        feature=option.gradspec_feature,
        chapter=option.gradspec_chapter,
        clause=option.gradspec_clause,
        seed=option.gradspec_seed,
        profile=option.gradspec_profile,
        strict=option.gradspec_strict,
        expect=option.gradspec_expect,
        case=option.gradspec_case,
        shard=option.gradspec_shard,
        python=option.gradspec_python,
        timeout=option.gradspec_timeout,
        memory=option.gradspec_memory,
    )


def _record(config: pytest.Config, gathered: Gathered) -> Record:
    """The record of what was gathered."""
    from gradspec.engine import EXAMPLES  # noqa: PLC0415
    from gradspec.report.expectations import load_expectations  # noqa: PLC0415
    from gradspec.report.record import Run, build_record  # noqa: PLC0415

    options, examined = _options(config), _examined(gathered)
    declared = examined.declared
    workers = config.getoption("numprocesses", default=None) or 0
    run = Run(
        options.adapter,
        options.seed,
        options.profile,
        EXAMPLES[options.profile],
        options.selection,
        options.strict,
        interrupted=gathered.interrupted,
        shard=options.shard,
        started=gathered.started,
        seconds=round(time.perf_counter() - gathered.clock, 3),
        workers=workers if isinstance(workers, int) else 0,
        served=examined.served,
    )
    return build_record(
        options.spec,
        options.selected,
        declared,
        run,
        gathered.rows,
        lost=_lost(gathered),
        items=gathered.items,
        expectations=load_expectations(options.expect, declared.name, options.spec),
        qualification=examined.qualification,
        selftest=examined.findings,
        problems=[f"{item}: {text}" for nodeid, text in gathered.broken for item, _ in _pairs([nodeid])],
    )


def _lost(gathered: Gathered) -> list[Lost]:
    from gradspec.report.verdicts import Lost  # noqa: PLC0415

    if gathered.interrupted:  # we have ended them
        return []
    found = []
    for nodeid, end in gathered.lost:
        for item, clause in _pairs([nodeid]):
            case = end.case if end.item == item else None
            when = f"in example {end.example + 1}" if end.item == item else "before its first example"
            found.append(Lost(item, clause, end.verdict, f"{end.reason}, {when}", case))
    return found
