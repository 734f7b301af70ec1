"""The same seed, profile, selection, versions and adapter give the same record, whatever ran it and however.

Each test runs the whole command several times: `tox -e determinism`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gradspec.report.record import Record, read_record, same_apart_from_time

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = {
    "refgrad": (),
    "gradspec.faults:H04": ("BACKWARD-20", "GRADSLOT-01", "GRADSLOT-12", "RETAIN-03", "RETAIN-04", "RETAIN-06"),
    "mine.py": ("RETAIN-01", "RETAIN-03", "RETAIN-04", "RETAIN-10"),
}
"""What is checked, and the clauses: all where none are named. The last two fail three of theirs, after shrinking."""

MINE = """
import pathlib
import gradspec, refgrad
from gradspec.adapters.refgrad import Refgrad

with pathlib.Path("where").open("a") as file:
    print(gradspec.__file__, refgrad.__file__, sep="\\n", file=file)


class Mine(Refgrad):
    name = "mine"

    def backward(self, root, gradient=None, **keywords):
        super().backward(root, gradient, **keywords | {"retain_graph": True})
        if keywords.get("retain_graph"):
            super().backward(root, gradient, **keywords)
"""
"""An adapter that never frees and adds twice; it notes where the suite and refgrad were loaded from."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user's adapter lies."""
    place = tmp_path_factory.mktemp("user")
    (place / "mine.py").write_text(MINE, encoding="utf-8")
    return place


def gradspec(folder: Path, *arguments: str, **environment: str) -> int:
    """Run the command in a folder; its status."""
    command = [sys.executable, "-m", "gradspec", *arguments]
    inherited = {name: text for name, text in os.environ.items() if name not in ("PYTHONHASHSEED", "PYTHONPATH")}
    done = subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr == ""
    return done.returncode


def check(folder: Path, adapter: str, *arguments: str, **environment: str) -> Record:
    """The record of one run."""
    target = folder / "r.json"
    target.unlink(missing_ok=True)
    few = [f"--clause={clause}" for clause in ADAPTERS[adapter]]
    status = gradspec(
        folder, "check", adapter, "--profile", "smoke", *few, *arguments, "--json", target.name, **environment
    )
    record = read_record(target)
    assert (record["exit_status"], record["complete"]) == (status, True)
    return record


@pytest.fixture(scope="module", params=ADAPTERS)
def one_worker(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Record]:
    """An adapter, and its record by one worker."""
    adapter = str(request.param)
    record = check(folder, adapter, "--jobs", "1", PYTHONHASHSEED="1")
    failed = [clause for clause in record["clauses"] if clause["failure"] is not None]
    assert len(failed) == (0 if adapter == "refgrad" else 3)
    return adapter, record


def test_two_workers_and_another_hash_seed(one_worker: tuple[str, Record], folder: Path) -> None:
    adapter, record = one_worker
    other = check(folder, adapter, "--jobs", "2", PYTHONHASHSEED="2")
    assert other["environment"]["workers"] == 2
    assert same_apart_from_time(other, record)


def test_three_shards_merged(one_worker: tuple[str, Record], folder: Path) -> None:
    adapter, record = one_worker
    for n in (2, 1, 3):
        part = check(folder, adapter, "--jobs", str(min(n, 2)), "--shard", f"{n}/3", PYTHONHASHSEED=str(n))
        assert len(part["clauses"]) < len(record["clauses"])
        (folder / "r.json").rename(folder / f"s{n}.json")
    assert gradspec(folder, "merge", "s3.json", "s1.json", "s2.json", "-o", "m.json") == record["exit_status"]
    assert same_apart_from_time(read_record(folder / "m.json"), record)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds."""
    place = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(ROOT))
    subprocess.run(build, check=True, timeout=120)
    (file,) = place.glob("gradspec-*.whl")
    subprocess.run((*pip, "install", "--no-deps", "--target", str(place / "lib"), str(file)), check=True, timeout=120)
    assert (place / "lib" / "gradspec" / "_spec").is_dir()
    return place / "lib"


def test_the_wheel_instead_of_an_editable_install(one_worker: tuple[str, Record], folder: Path, wheel: Path) -> None:
    adapter, record = one_worker
    (folder / "where").unlink(missing_ok=True)
    other = check(folder, adapter, PYTHONPATH=str(wheel))
    if adapter == "mine.py":
        loaded = set((folder / "where").read_text(encoding="utf-8").split())
        assert loaded == {str(wheel / name / "__init__.py") for name in ("gradspec", "refgrad")}
    assert same_apart_from_time(other, record)


def test_numbers_in_another_file_of_the_user_change_no_case(folder: Path) -> None:
    record = check(folder, "mine.py")
    # Hypothesis mixes the literals of local modules into some draws
    literals = [f"N{n} = ({n}, -{n}.5, {n}.0625e3, '{n}', {2**n})" for n in range(2, 60)]
    (folder / "many_numbers.py").write_text("\n".join(literals), encoding="utf-8")
    (folder / "mine.py").write_text(f"import many_numbers\n{MINE}", encoding="utf-8")
    other = check(folder, "mine.py")
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    assert same_apart_from_time(other, record)
