"""`gradspec check` as a whole: kept apart from the user's pytest, from crashes, and from being interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gradspec.errors import GradspecError
from gradspec.report.record import Record, read_record, write_record
from gradspec.runner import check, check_writable, default_jobs

HEAD = "import os, sys, time\nfrom gradspec.adapters.refgrad import Refgrad\nclass Mine(Refgrad):\n    name = 'mine'\n"
ARGUMENTS = ("--clause", "RETAIN-06", "--clause", "RETAIN-04", "--profile", "smoke", "--json", "r.json")


def run(folder: Path, *arguments: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the command in a folder: what came of it, and the record."""
    done = subprocess.run(
        [sys.executable, "-m", "gradspec", "check", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, read_record(folder / "r.json")


def test_refgrad_conforms_whatever_pytest_was_told(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nosuch-option\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text("1 / 0\n", encoding="utf-8")
    done, record = run(
        tmp_path, *ARGUMENTS, PYTEST_ADDOPTS="--nosuch-option", PYTEST_PLUGINS="nosuch_plugin", PYTHONWARNINGS="default"
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert (record["conforms"], record["complete"], record["exit_status"]) == (True, True, 0)
    assert {clause["verdict"] for clause in record["clauses"]} <= {"passed", "pending", "untested"}


def test_check_is_a_function_that_leaves_the_environment_alone(tmp_path: Path) -> None:
    code = "import os, gradspec, json\nos.environ['PYTEST_ADDOPTS'] = '--nosuch'\nbefore = dict(os.environ)\n"
    code += "r = [gradspec.check('refgrad', clause='RETAIN-01', profile='smoke', jobs=1) for _ in range(2)]\n"
    code += "assert dict(os.environ) == before\nassert r[0]['rows'] == r[1]['rows']\nprint(r[0]['conforms'])\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("act", "verdict", "found"),
    [
        ("os._exit(7)", "crashed", "the process ended"),
        ("raise KeyboardInterrupt", "failed", "raised KeyboardInterrupt"),
        ("raise SystemExit(0)", "failed", "raised SystemExit"),
    ],
)
def test_what_an_implementation_does_to_its_process_is_its_own_failure(
    tmp_path: Path, act: str, verdict: str, found: str
) -> None:
    body = f"    def backward(self, *a, **k):\n        if k.get('create_graph'): {act}\n"
    body += "        super().backward(*a, **k)\n"
    (tmp_path / "mine.py").write_text(HEAD + body, encoding="utf-8")
    done, record = run(tmp_path, "mine.py", *ARGUMENTS)
    clauses = {clause["id"]: clause for clause in record["clauses"]}
    assert done.returncode == 1
    assert clauses["RETAIN-04"]["verdict"] == verdict
    assert found in clauses["RETAIN-04"]["failure"]["found"]
    assert clauses["RETAIN-06"]["verdict"] == "passed"
    assert record["complete"]


SLOW = """
    def backward(self, *a, **k):
        if "gradspec.probe" not in sys.orig_argv:
            with open("pids", "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(0.2)
        super().backward(*a, **k)
    features = Refgrad.features
    operations = frozenset({"add", "mul", "sum"})
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="signals to process groups are those of POSIX")
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
def test_an_interrupted_run_says_so_and_leaves_nothing_behind(tmp_path: Path, send: Any) -> None:
    (tmp_path / "mine.py").write_text(HEAD + SLOW, encoding="utf-8")
    child = subprocess.Popen(
        [sys.executable, "-m", "gradspec", "check", "mine.py", *ARGUMENTS],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    patience = time.monotonic() + 60
    while not (tmp_path / "pids").exists() and time.monotonic() < patience:
        time.sleep(0.05)
    send(child.pid, signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130
    record = read_record(tmp_path / "r.json")
    assert (record["complete"], record["conforms"], record["exit_status"]) == (False, False, 130)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != "_") == ["mine.py", "pids", "r.json"]
    pids = {int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()}
    while any(map(_alive, pids)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


def test_a_case_is_replayed(tmp_path: Path) -> None:
    body = "    def backward(self, root, gradient=None, **k):\n"
    body += "        super().backward(root, gradient, **k | {'retain_graph': True})\n"
    (tmp_path / "mine.py").write_text(HEAD + body, encoding="utf-8")
    arguments = ("mine.py", "--clause", "RETAIN-01", *ARGUMENTS[4:])
    _, record = run(tmp_path, *arguments)
    (clause,) = record["clauses"]
    (tmp_path / "case.json").write_text(json.dumps(clause["failure"]["case"]), encoding="utf-8")
    _, again = run(tmp_path, *arguments, "--case", "case.json")
    assert again["clauses"][0]["failure"]["found"] == clause["failure"]["found"]
    assert again["clauses"][0]["examples"] < clause["examples"]


# --- before the run -----------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr("gradspec.runner.examine", lambda *_, **__: pytest.fail("the run has begun"))
    for place, said in ((tmp_path, "is a folder"), (tmp_path / "file" / "r.json", "does not exist")):
        with pytest.raises(GradspecError, match=said):
            check(json=place)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", refused)
    with pytest.raises(GradspecError, match="cannot be written: Permission denied"):
        check(json=tmp_path / "r.json")


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    check_writable(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_there_is_always_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, jobs in ((None, 1), (1, 1), (2, 2), (64, 2)):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        assert default_jobs() == jobs
    with pytest.raises(GradspecError, match="at least one worker"):
        check(jobs=0)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    record: Record = check("refgrad", clause="RETAIN-01", profile="smoke", jobs=1)
    check_writable(pipe)
    writer = threading.Thread(target=write_record, args=(pipe, record))
    writer.start()
    text = pipe.read_text(encoding="utf-8")
    writer.join()
    assert json.loads(text)["conforms"]
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


# --- an implementation that cannot be loaded again ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os._exit(5)", "could not be started: its process ended while it was loaded in a worker"),
        ("raise RuntimeError('device busy')", "could not be started: RuntimeError: device busy, at mine.py:2"),
    ],
)
def test_one_that_the_workers_cannot_load_could_not_be_started(tmp_path: Path, act: str, said: str) -> None:
    body = f"import os, sys\nif 'gradspec.probe' not in sys.orig_argv: {act}\n{HEAD}"
    (tmp_path / "mine.py").write_text(body, encoding="utf-8")
    command = [sys.executable, "-m", "gradspec", "check", "mine.py", *ARGUMENTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, said in done.stderr) == (3, "", True)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals to process groups are those of POSIX")
def test_a_ctrl_c_while_the_workers_start_is_one(tmp_path: Path) -> None:
    body = "import sys, time\nif 'gradspec.probe' not in sys.orig_argv:\n"
    body += "    open('loading', 'w').close()\n    time.sleep(60)\n"
    (tmp_path / "mine.py").write_text(body + HEAD, encoding="utf-8")
    command = [sys.executable, "-m", "gradspec", "check", "mine.py", *ARGUMENTS, "--jobs", "1"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    patience = time.monotonic() + 60
    while not (tmp_path / "loading").exists() and time.monotonic() < patience:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert (child.returncode, said.strip()) == (130, "gradspec: interrupted")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py", "loading"}


def test_an_operation_that_is_declared_and_refused_is_a_problem(tmp_path: Path) -> None:
    body = "    def apply(self, op, *a, **k):\n        if op == 'reshape': raise self.missing('reshape')\n"
    (tmp_path / "mine.py").write_text(f"{HEAD}{body}        return super().apply(op, *a, **k)\n", encoding="utf-8")
    done, record = run(tmp_path, "mine.py", *ARGUMENTS)
    assert done.returncode == 1
    assert record["problems"] == ["operation reshape is declared and not offered: reshape is not offered"]


def test_a_run_that_judges_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}    features = frozenset({{'scalar'}})\n", encoding="utf-8")
    done, record = run(tmp_path, "mine.py", *ARGUMENTS)
    assert (done.returncode, record["problems"]) == (1, ["no selected clause could be judged"])
    assert "clauses declared, nothing was checked" in done.stdout
    assert "nothing was checked: 1 problem. Exit status 1." in " ".join(done.stdout.split())
    assert "conform" not in done.stdout
