"""The command line: one line and status 2 for bad input, and what the small commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gradspec
import pytest
from gradspec import cli
from gradspec.errors import GradspecError


def command(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process: its status, what it printed, what it complained of."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("check nosuch", "there is no adapter 'nosuch'"),
        ("check --level L9", "there is no level 'L9'"),
        ("check --requirement MUSTY", "did you mean MUST?"),
        ("check --feature teleport", "there is no feature 'teleport'"),
        ("check --chapter RETAN", "did you mean RETAIN?"),
        ("check --clause RETAIN-99", "there is no clause 'RETAIN-99'"),
        ("check --clause RETAIN-01 --chapter BACKWARD", "no clause satisfies the whole selection"),
        ("check --profile big", "there is no profile 'big'"),
        ("check --seed x", "neither a number nor the word random"),
        ("check --seed -1", "not between 0 and"),
        ("check --jobs two", "not a valid integer"),
        ("check --jobs 0", "at least one worker"),
        ("check --expect nosuch.yaml", "nosuch.yaml"),
        ("check --case nosuch.json --clause RETAIN-01", "nosuch.json: the case cannot be read"),
        ("check --case nosuch.json", "name it"),
        ("check --json nosuch/record.json", "the folder nosuch does not exist"),
        ("check --json=", "--json names no file"),
        ("check --quiet --failures-only", "name one of them"),
        ("check refgrad torch --json r.json", "name a folder"),
        ("check refgrad refgrad --json {adapter}.json", "would write the same file"),
        ("explain RETAIN-99", "there is no clause 'RETAIN-99'"),
        ("faults nosuch", "nosuch"),
        ("faults --json nosuch/table.json", "the folder nosuch does not exist"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capfd: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    status, out, err = command(capfd, *arguments.split())
    assert said in err
    assert (status, out, err.count("\n"), err[:10]) == (2, "", 1, "gradspec: ")


def test_a_case_that_is_none_is_told_with_its_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for text, said in (
        ("{", "the case is not JSON"),
        ("[]", "a case is an object"),
        ('{"program": {}}', "a program has inputs"),
    ):
        (tmp_path / "c.json").write_text(text, encoding="utf-8")
        status, _, err = command(capfd, "check", "--clause", "RETAIN-01", "--case", str(tmp_path / "c.json"))
        assert status == 2
        assert f"c.json: {said}" in err
        assert said in err


def test_the_version_is_that_of_the_package(capfd: pytest.CaptureFixture[str]) -> None:
    assert command(capfd, "--version") == (0, f"gradspec, version {gradspec.__version__}\n", "")


def test_the_adapters_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capfd, "adapters")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["refgrad", "torch"]


def test_the_clauses_are_listed_for_people_and_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = command(capfd, "clauses")
    _, text, _ = command(capfd, "clauses", "--json")
    ids = [row["id"] for row in json.loads(text)]
    assert [line.split()[0] for line in plain.splitlines()] == ids
    assert "RETAIN-01" in ids


def test_a_clause_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capfd, "explain", "retain-01")
    assert status == 0
    assert out.startswith("# RETAIN-01 ·")


def test_list_shows_what_is_selected_and_what_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = "from gradspec.adapters.refgrad import Refgrad\nclass Few(Refgrad):\n    features = frozenset({'scalar'})\n"
    (tmp_path / "few.py").write_text(body, encoding="utf-8")
    status, out, _ = command(capfd, "check", str(tmp_path / "few.py"), "--list", "--clause", "RETAIN-01")
    assert status == 0
    assert out.splitlines()[1].startswith("RETAIN-01     MUST   L2  A second backward")
    assert out.splitlines()[1].endswith("[unsupported: feature graph.retain]")


def test_targets_of_records(tmp_path: Path) -> None:
    assert cli._targets(None, ["a", "b"]) == [None, None]
    assert cli._targets("r.json", ["a"]) == [Path("r.json")]
    assert cli._targets("{adapter}-r.json", ["torch", "x/mine.py:A"]) == [
        Path("torch-r.json"),
        Path("mine.py-A-r.json"),
    ]
    assert cli._targets(str(tmp_path), ["torch"]) == [tmp_path / "torch.json"]
    with pytest.raises(GradspecError):
        cli._targets("r.json", ["a", "b"])


def test_one_that_cannot_start_does_not_keep_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    arguments = ["--clause", "RETAIN-01", "--profile", "smoke", "--jobs", "1", "--json", str(tmp_path)]
    status, out, err = command(capfd, "check", str(tmp_path / "broken.py"), "refgrad", *arguments)
    assert status == 3
    assert "ZeroDivisionError" in err
    assert "refgrad" in out
    assert json.loads((tmp_path / "refgrad.json").read_text(encoding="utf-8"))["conforms"]


def test_the_package_is_light_and_runs_as_a_module() -> None:
    code = "import sys, gradspec; print({'pytest', 'numpy', 'hypothesis', 'click'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    done = subprocess.run(
        [sys.executable, "-m", "gradspec", "explain", "x"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.startswith("gradspec: there is no clause 'x'")) == (2, True)


@pytest.mark.parametrize("adapter", ["refgrad", "gradspec.faults:H04"])
def test_a_run_says_as_much_as_it_is_asked_to(capfd: pytest.CaptureFixture[str], adapter: str) -> None:
    arguments = ["check", adapter, "--clause", "RETAIN-03", "--profile", "smoke", "--jobs", "1"]
    (_, full, _), (_, failures, _), (_, quiet, _) = (
        command(capfd, *arguments, *extra) for extra in ((), ("--failures-only",), ("--quiet",))
    )
    assert quiet
    assert failures.endswith(quiet)
    assert full.endswith(failures)
    assert "Exit status" in quiet
    assert (quiet == failures) == (adapter == "refgrad")
    assert "declared/total" in full
    assert "declared/total" not in failures
