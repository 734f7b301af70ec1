"""The plug-in in plain pytest: inert elsewhere, outcomes, usage errors, one record for any number of workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gradspec.plugin import Bench, Gathered, _conclude, refused_ids
from gradspec.report.record import read_record, same_apart_from_time

CLAUSE = "RETAIN-01"
SOME = ("--gradspec-clause=RETAIN-01", "--gradspec-clause=RETAIN-03", "--gradspec-clause=RETAIN-04")
NEVER_FREES = """
from gradspec.adapters.refgrad import Refgrad
class NeverFrees(Refgrad):
    name = "never_frees"
    def backward(self, root, gradient=None, **keywords):
        super().backward(root, gradient, **keywords | {"retain_graph": True})
"""


def suite(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the suite by pytest as somebody who lives in it would."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gradspec.plugin", "-p", "xdist.plugin"]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
    return subprocess.run(
        [*command, "--pyargs", "gradspec.suite", *arguments],
        cwd=folder,
        env=os.environ | alone,
        capture_output=True,
        text=True,
        check=False,
    )


def never_frees(folder: Path) -> str:
    """The path of an adapter that keeps every graph."""
    (folder / "never.py").write_text(NEVER_FREES, encoding="utf-8")
    return str(folder / "never.py")


# --- elsewhere ----------------------------------------------------------------------------------------------------


def test_the_plugin_is_inert_in_a_run_without_the_suite(tmp_path: Path) -> None:
    heavy = "{'numpy', 'hypothesis', 'jsonschema', 'yaml', 'rich', 'click', 'gradspec.engine', 'refgrad'}"
    body = f"import signal, sys\ndef test_light():\n    assert not {heavy} & set(sys.modules)\n"
    body += "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    (tmp_path / "test_light.py").write_text(body, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "gradspec.plugin", "test_light.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout
    assert "gradspec" not in done.stdout


# --- outcomes -----------------------------------------------------------------------------------------------------


def row(**given: Any) -> dict[str, Any]:
    """A row of the engine that passed, but for what is given."""
    empty: dict[str, Any] = {
        "pinned": None,
        "failure": None,
        "examples": 8,
        "assertions": 8,
        "discards": {},
        "expected_hits": 0,
    }
    return {"item": f"test_x.py::test_y[{CLAUSE}]", "clause": CLAUSE} | empty | given


def failure(kind: str) -> dict[str, Any]:
    """A failure of the engine."""
    return {"kind": kind, "message": "m", "expected": "an error", "found": "none", "case": {"parameters": {"n": 1}}}


def bench(status: str = "stable", kind: str | None = None) -> Any:
    """As much of a bench as the conclusion needs."""
    card = SimpleNamespace(status=status, requirement="MUST", sentence="It MUST.")
    options = SimpleNamespace(spec=SimpleNamespace(clauses={CLAUSE: card}), adapter="x", seed=0, profile="default")
    entries = {} if kind is None else {CLAUSE: SimpleNamespace(kind=kind, reason="known")}
    return SimpleNamespace(options=options, expectations=SimpleNamespace(entries=entries))


@pytest.mark.parametrize(
    ("bench", "row", "outcome", "said"),
    [
        (bench(), row(failure=failure("wrong_value")), pytest.fail.Exception, "RETAIN-01 (MUST) failed: wrong_value"),
        (bench(), row(assertions=0), pytest.fail.Exception, "not exercised: 8 examples ran and none came to an assert"),
        (bench(), row(examples=0, assertions=0, discards={"a/b.py:1": 8}), pytest.fail.Exception, "discarded: b.py:1"),
        (bench(kind="k"), row(), pytest.fail.Exception, "unexpected pass"),
        (bench(kind="k"), row(failure=failure("other")), pytest.fail.Exception, "listed as failing with k"),
        (bench(kind="k"), row(pinned={"failure": failure("k"), "discards": {}}), pytest.xfail.Exception, "known"),
        (bench("disputed"), row(failure=failure("k")), pytest.xfail.Exception, "disputed: failed"),
        (bench("disputed"), row(), pytest.xfail.Exception, "disputed: passed"),
        (
            bench(),
            row(assertions=0, examples=0, discards={"unsupported: rank 2": 3}),
            pytest.skip.Exception,
            "unsupported: rank 2",
        ),
    ],
)
def test_a_verdict_becomes_an_outcome(bench: Any, row: Any, outcome: type[BaseException], said: str) -> None:
    with pytest.raises(outcome) as caught:
        _conclude(bench, CLAUSE, row)
    assert said in str(caught.value)


def test_a_pass_passes() -> None:
    _conclude(bench(), CLAUSE, row())


def test_a_failure_is_told_in_the_words_of_the_clause(tmp_path: Path) -> None:
    done = suite(tmp_path, "--adapter", never_frees(tmp_path), "--gradspec-clause", CLAUSE, "--gradspec-profile=smoke")
    assert done.returncode == 1
    for words in ("graph_freed", "expected:", "found:", "gradspec check", "seed 0: does not conform"):
        assert words in done.stdout
    assert "plugin.py" not in done.stdout
    assert "Traceback" not in done.stdout


def test_what_is_not_declared_is_skipped_with_the_reason(tmp_path: Path) -> None:
    body = "from gradspec.adapters.refgrad import Refgrad\n"
    body += "class Few(Refgrad):\n    name = 'few'\n    features = Refgrad.features - {'graph.retain'}\n"
    (tmp_path / "few.py").write_text(body, encoding="utf-8")
    done = suite(tmp_path, "--adapter", "few.py", "--gradspec-clause", CLAUSE, "-rs", "--gradspec-record=r.json")
    assert "unsupported: feature graph.retain" in done.stdout
    assert "passed" not in done.stdout
    assert [clause["verdict"] for clause in read_record(tmp_path / "r.json")["clauses"]] == ["unsupported"]


# --- usage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 4, "gradspec: say which implementation to check: --adapter"),
        (("--adapter=nosuch",), 4, "there is no adapter 'nosuch'"),
        (("--adapter=broken.py",), 3, "ZeroDivisionError"),
        (("--adapter=refgrad", "--gradspec-clause=RETAIN-99"), 4, "there is no clause 'RETAIN-99'"),
        (("--adapter=refgrad", "--gradspec-record=nosuch/r.json"), 4, "the folder nosuch does not exist"),
    ],
    ids=["nothing", "unknown", "broken", "clause", "record"],
)
def test_a_run_that_cannot_begin_says_why(
    tmp_path: Path, workers: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    done = suite(tmp_path, "-n", workers, *arguments)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_the_ids_of_error_tests_are_read_from_the_tests(tmp_path: Path) -> None:
    body = 'with refused(impl, "A-01", "k"): pass\nhelper(impl, refusal="A-02", accepted="A-03")\n'
    body += 'with twin(impl, "A-04"): pass\nhelpers.seeds(impl, "A-05", "A-06")\n'
    (tmp_path / "test_x.py").write_text(body, encoding="utf-8")
    helpers = "def helper(impl, *, refusal, accepted):\n    with refused(impl, refusal, 'k'): other(accepted)\n"
    helpers += "def seeds(impl, clause, other): inner(impl, clause)\ndef inner(a, b): refused(a, clause=b)\n"
    (tmp_path / "helpers.py").write_text(helpers, encoding="utf-8")
    test = SimpleNamespace(source=(str(tmp_path / "test_x.py"), 1))
    assert refused_ids([test]) == {"A-01", "A-02", "A-05"}  # type: ignore[list-item]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_that_die_while_they_load_are_not_replaced_for_ever(tmp_path: Path, workers: str) -> None:
    # the process that examines it was started with -m, a worker was not
    text = "import os, sys\nfrom gradspec.adapters.refgrad import Refgrad\nclass Dies(Refgrad):\n    name = 'dies'\n"
    text += "if sys.modules['__main__'].__spec__ is None: os._exit(5)\n"
    (tmp_path / "dies.py").write_text(text, encoding="utf-8")
    done = suite(tmp_path, "-n", workers, "--max-worker-restart=1000", "--adapter=dies.py", *SOME)
    assert done.returncode == 3
    assert "its process ended while it was loaded in a worker" in done.stdout + done.stderr


# --- workers ------------------------------------------------------------------------------------------------------


def test_the_record_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    records = []
    for workers in ("0", "1", "2"):
        arguments = [*SOME, "--gradspec-profile=smoke", "--gradspec-record=r.json"]
        suite(tmp_path, "--adapter", never_frees(tmp_path), "-n", workers, *arguments)
        records.append(read_record(tmp_path / "r.json"))
    assert same_apart_from_time(records[0], records[1])
    assert same_apart_from_time(records[0], records[2])
    verdicts = {clause["id"]: clause["verdict"] for clause in records[0]["clauses"]}
    assert verdicts[CLAUSE] == "failed"
    assert "passed" in verdicts.values()
    assert [record["environment"]["workers"] for record in records] == [0, 1, 2]


def test_a_random_seed_is_one_for_all_workers_and_is_told(tmp_path: Path) -> None:
    arguments = ["--adapter", never_frees(tmp_path), *SOME, "--gradspec-profile=smoke"]
    suite(tmp_path, *arguments, "-n", "2", "--gradspec-seed=random", "--gradspec-record=a.json")
    first = read_record(tmp_path / "a.json")
    assert first["seed"] > 0
    suite(tmp_path, *arguments, f"--gradspec-seed={first['seed']}", "--gradspec-record=b.json")
    assert same_apart_from_time(first, read_record(tmp_path / "b.json"))


def test_rows_are_gathered_from_reports_of_the_call_only() -> None:
    gathered = Gathered()
    properties = [("gradspec", json.dumps(row()))]
    for when in ("call", "teardown"):
        made = pytest.TestReport("n", ("n", 0, "n"), {}, "passed", None, when, user_properties=properties)
        gathered.put(made)
    gathered.put(pytest.TestReport("died", ("n", 0, "n"), {}, "failed", "gw0 crashed", "???"))  # type: ignore[arg-type]
    gathered.put(pytest.TestReport("bad", ("n", 0, "n"), {}, "failed", "a\nwhy", "setup"))
    assert len(gathered.rows) == 1
    assert ([nodeid for nodeid, _ in gathered.lost], gathered.broken) == (["died"], [("bad", "why")])


def test_a_ctrl_c_during_an_item_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal  # noqa: PLC0415

    def interrupted(*_: object) -> dict[str, Any]:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:  # as the session does: it takes it for an exception of the implementation
            return {}
        raise AssertionError

    monkeypatch.setattr("gradspec.engine.run_item", interrupted)
    monkeypatch.setattr("gradspec.report.verdicts.missing", lambda *_: "")
    made = bench()
    made.expectations.expected = lambda _: None
    made.options.case, made.options.profile = None, "smoke"
    machine = Bench(made.options, None, None, object(), made.expectations)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        machine.run(SimpleNamespace(), CLAUSE)  # type: ignore[arg-type]
