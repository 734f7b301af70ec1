"""Implementations that hang, crash, flood or starve their process: what they lose is their own example."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradspec import journal
from gradspec.journal import Journal, ending
from gradspec.programs.program import Case
from gradspec.report.record import Record, read_record

ADAPTER = """
import ctypes, os, re, time
from gradspec.adapter import Value
from gradspec.adapters.refgrad import Refgrad


class Mine(Refgrad):
    name = "mine"

    def backward(self, root, gradient=None, **keywords):
        if keywords.get("create_graph") and gradient is not None:  # in RETAIN-04 of the three clauses
            {act}
        super().backward(root, gradient, **keywords)
"""

LATE, ENDED, PLACE = "no end after 6 seconds", "the process ended", ", at mine.py:12 in backward"
MISBEHAVING = {
    "hangs in Python": ("time.sleep(1000)", "timed_out", LATE + PLACE),
    "hangs and holds the lock": ("re.match('(a+)+$', 'a' * 40 + 'b')", "timed_out", LATE + PLACE),
    "segfaults": ("ctypes.string_at(0)", "crashed", f"{ENDED} (Segmentation fault){PLACE}"),
    "ends the process": ("os._exit(7)", "crashed", f"{ENDED} (exit status 7), in example 1"),
    "raises a BaseException": ("raise GeneratorExit('mine')", "failed", "raised GeneratorExit: mine"),
    "writes without end": ("while True: os.write(1, b'x' * 65536); print('x' * 65536)", "timed_out", LATE),
    "returns nonsense": ("self.value = lambda x: Value((2,), 'float64', 'no')", "failed", "value returned"),
    "takes all memory": ("held = [bytes(2**26) for _ in range(10**6)]", "failed", "raised MemoryError"),
}
"""From what an implementation does to what it does it with, the verdict, and what is found."""

LIMITS = ("--profile", "smoke", "--timeout", "6", "--memory", "1000")


def check(folder: Path, act: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Record]:
    """Check a misbehaving adapter: what the command said, and the record."""
    (folder / "mine.py").write_text(ADAPTER.replace("{act}", act), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "gradspec", "check", "mine.py", *LIMITS, "--json", "r.json", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    return done, read_record(folder / "r.json")


@pytest.mark.parametrize(("act", "verdict", "found"), MISBEHAVING.values(), ids=MISBEHAVING)
def test_what_is_lost_is_the_clause_of_the_example(tmp_path: Path, act: str, verdict: str, found: str) -> None:
    clauses = [word for name in ("GRADSLOT-02", "RETAIN-04", "RETAIN-06") for word in ("--clause", name)]
    done, record = check(tmp_path, act, *clauses, "--jobs", "1")
    seen = {clause["id"]: clause for clause in record["clauses"]}
    assert (done.returncode, record["complete"]) == (1, True)
    assert {name: clause["verdict"] for name, clause in seen.items()} == {
        "GRADSLOT-02": "passed",
        "RETAIN-04": verdict,
        "RETAIN-06": "passed",
    }
    failure = seen["RETAIN-04"]["failure"]
    assert found in failure["found"]
    assert Case.from_json(failure["case"]).program.steps, "the case is kept"
    assert record["deterministic"] == (verdict == "failed")
    assert found.partition(",")[0] in " ".join(done.stdout.split()), "the board tells it"
    assert len(done.stdout) < 10_000


def test_the_kept_case_shows_it_again_and_can_be_listed(tmp_path: Path) -> None:
    import yaml  # noqa: PLC0415 - only this test writes an expectation

    only = ("--clause", "RETAIN-04")
    _, record = check(tmp_path, "os._exit(7)", *only)
    failure = record["clauses"][0]["failure"]
    entry = {"clause": "RETAIN-04", "reason": "it exits", "link": "https://example.org/1"}
    entry |= {"kind": failure["kind"], "case": failure["case"]}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump({"gradspec-expectations": 1, "entries": [entry]}), encoding="utf-8")
    done, record = check(tmp_path, "os._exit(7)", *only, "--expect", "e.yaml")
    assert (done.returncode, record["clauses"][0]["verdict"]) == (0, "expected")
    done, record = check(tmp_path, "time.sleep(1000)", *only, "--expect", "e.yaml")
    assert (done.returncode, record["clauses"][0]["verdict"]) == (1, "timed_out")


@pytest.mark.parametrize(
    "wait", ["atexit.register(pause, 1000)", "threading.Thread(target=pause, args=(1000,)).start()"]
)
def test_one_that_does_not_let_its_process_end_is_ended(tmp_path: Path, wait: str) -> None:
    act = f"import atexit, threading; pause = time.sleep; {wait}"
    done, record = check(tmp_path, act, "--clause", "RETAIN-04", "--jobs", "1")
    assert (done.returncode, record["clauses"][0]["verdict"], record["complete"]) == (0, "passed", True)


# --- the journal --------------------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Journal]:
    """The journal of this process, which is no worker."""
    yield Journal(tmp_path, 0)
    faulthandler.cancel_dump_traceback_later()
    faulthandler.enable(sys.__stderr__)


def left(folder: Path, faults: str = "", status: int | None = None) -> journal.Ending:
    """What this process would have left behind if it had ended so."""
    (folder / f"{os.getpid()}.faults").write_text(faults, encoding="utf-8")
    return ending(folder, os.getpid(), status, 2.0)


def test_the_last_example_is_noted_whole(tmp_path: Path, notes: Journal) -> None:
    examples: Any = notes.of("test_x.py::test_y[RETAIN-01]")
    assert left(tmp_path)[:3] if isinstance(left(tmp_path), tuple) else left(tmp_path).case is None
    for number, size in enumerate((1000, 1)):
        case = Case.from_json({"program": {"inputs": [{"shape": [size], "values": [0.5] * size}]}})
        examples.begin(number, case)
        examples.end()
    found = left(tmp_path)
    assert (found.item, found.example) == ("test_x.py::test_y[RETAIN-01]", 1)
    assert found.case == case.to_json()


@pytest.mark.parametrize(
    ("status", "said"),
    [(None, "the process ended"), (3, "the process ended (exit status 3)"), (-9, "the process ended (SIGKILL)")],
)
def test_an_exit_status_is_told_in_words(tmp_path: Path, status: int | None, said: str) -> None:
    assert left(tmp_path, status=status).reason == said


def test_the_place_is_that_of_the_thread_that_ran_the_example(tmp_path: Path) -> None:
    engine = Path(journal.__file__).with_name("engine.py")
    blocks = [
        'Thread 0x01 (most recent call first):\n  File "/else/where.py", line 3 in idle\n',
        f"""Thread 0x02 (most recent call first):
  File "{os.__file__}", line 9 in wait
  File "/home/me/mine.py", line 12 in backward
  File "{engine}", line 8 in _example
""",
    ]
    found = left(tmp_path, "Timeout (0:00:02)!\n" + "".join(blocks))
    assert (found.verdict, found.reason) == ("timed_out", "no end after 2 seconds, at mine.py:12 in backward")
    found = left(tmp_path, "Fatal Python error: Aborted\n\n" + "".join(reversed(blocks)), -signal.SIGABRT)
    assert (found.verdict, found.reason) == ("crashed", "the process ended (Aborted), at mine.py:12 in backward")
    assert left(tmp_path, "Fatal Python error: Aborted\n" + blocks[0]).reason == "the process ended (Aborted)"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"item": '])
def test_a_note_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.json").write_text(text, encoding="utf-8")
    found = ending(tmp_path, 1, 0, 2.0)
    assert (found.item, found.case) == ("", None)


def test_the_share_of_memory_leaves_something(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(journal, "_CGROUP", limit)
    whole = journal.memory_share(1)
    assert 0 < journal.memory_share(4) <= whole / 4 + 1
    limit.write_text(str(1000 << 20), encoding="ascii")
    assert journal.memory_share(2) == 400
    limit.write_text("max\n", encoding="ascii")
    assert journal.memory_share(1) == whole
