"""Life beside others: what else is installed, configured or asked for changes no verdict and no row.

Each test runs the whole command, or pytest, several times: `tox -e beside`, where the plug-ins below are installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gradspec.report.record import Record, read_record, same_apart_from_time

PLUGINS = ("pytest-timeout", "pytest-xdist", "pytest-benchmark", "pytest-cov", "pytest-randomly")
SOME = ("GRADSLOT-12", "GRADSLOT-18", "RETAIN-04", "RETAIN-06", "RETAIN-10")
"""Two of them fail with the adapter below; of GRADSLOT-18 many drawn cases are discarded, others by other draws."""
RETAIN = tuple(f"RETAIN-{number:02}" for number in range(1, 12))

ADAPTER = """
import warnings
from gradspec.adapters.refgrad import Refgrad

warnings.warn("refgrad is old", DeprecationWarning)  # as many libraries do while they are imported


class Mine(Refgrad):
    name = "mine"

    def backward(self, root, gradient=None, **keywords):
        warnings.warn("backward is old", DeprecationWarning)
        super().backward(root, gradient, **keywords | {"retain_graph": True})
"""

CONFTEST = """
import random
import warnings
import hypothesis
import pytest

hypothesis.settings.register_profile(
    "hostile", max_examples=1, deadline=1, derandomize=True, stateful_step_count=1, backend="hypothesis-urandom",
    phases=[hypothesis.Phase.generate], verbosity=hypothesis.Verbosity.verbose,
)
hypothesis.settings.load_profile("hostile")
warnings.simplefilter("error")


@pytest.fixture(autouse=True)
def noisy(request):
    warnings.simplefilter("error")
    random.seed(7)
    print("a fixture of the user")
    yield


def pytest_collection_modifyitems(items):
    items.reverse()


def pytest_runtest_setup(item):
    item.add_marker(pytest.mark.timeout(50))
"""

PYTEST_INI = """
[pytest]
addopts = -W error --strict-markers --strict-config --timeout=60 --cov=. --cov-branch -p randomly -n 2
    --hypothesis-seed=5 --hypothesis-verbosity=verbose --doctest-modules --durations=3 -ra --showlocals
xfail_strict = true
timeout = 55
filterwarnings = error
markers = mine: of the user
"""

ENVIRONMENT = {
    "PYTEST_ADDOPTS": "--maxfail=1 --nosuch-option",
    "PYTEST_PLUGINS": "nosuch_plugin",
    "PYTEST_XDIST_AUTO_NUM_WORKERS": "7",
    "PYTEST_TIMEOUT": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONDEVMODE": "1",
    "HYPOTHESIS_EXPERIMENTAL_OBSERVABILITY": "1",
    "HYPOTHESIS_STORAGE_DIRECTORY": "/nosuch/folder",
    "CI": "true",
    "COV_CORE_SOURCE": ".",
    "PYTHONHASHSEED": "5",
}


@pytest.fixture(scope="module", autouse=True)
def _others() -> None:
    """All of the plug-ins are here: without them nothing would be shown."""
    for name in PLUGINS:
        importlib.metadata.version(name)


def _user(folder: Path, *, hostile: bool) -> Path:
    """A folder of a user, with an adapter that fails some clauses."""
    folder.mkdir()
    (folder / "mine.py").write_text(ADAPTER, encoding="utf-8")
    if hostile:
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        (folder / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")
    return folder


def ran(folder: Path, *arguments: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], Record]:
    """What came of a command, and its record."""
    (folder / "r.json").unlink(missing_ok=True)
    inherited = {name: text for name, text in os.environ.items() if name not in ENVIRONMENT}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (folder / "r.json").exists(), done.stdout + done.stderr
    return done, read_record(folder / "r.json")


def clauses(*names: str) -> list[str]:
    return [f"--clause={name}" for name in names]


# --- gradspec check -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adapter", "names"), [("mine.py", SOME), ("refgrad", RETAIN)])
def test_nothing_of_the_user_reaches_check(tmp_path: Path, adapter: str, names: tuple[str, ...]) -> None:
    command = ("-m", "gradspec", "check", adapter, *clauses(*names), "--profile=smoke", "--json=r.json")
    _, alone = ran(_user(tmp_path / "alone", hostile=False), *command)
    done, record = ran(_user(tmp_path / "hostile", hostile=True), *command, **ENVIRONMENT)
    assert (done.returncode, done.stderr) == (record["exit_status"], "")
    assert record["conforms"] == (adapter == "refgrad")
    assert same_apart_from_time(record, alone)


# --- pytest -------------------------------------------------------------------------------------------------------


def suite(*names: str) -> list[str]:
    chosen = [f"--gradspec-clause={name}" for name in names]
    return [
        "-m",
        "pytest",
        "--pyargs",
        "gradspec.suite",
        *chosen,
        "--gradspec-profile=smoke",
        "--gradspec-record=r.json",
    ]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nothing_of_the_others_changes_a_row(tmp_path: Path, workers: str) -> None:
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (*suite(*SOME), "--adapter=mine.py")
    plain, expected = ran(_user(tmp_path / "alone", hostile=False), *command, "-p", "gradspec.plugin", **alone)
    folder = _user(tmp_path / "hostile", hostile=True)
    done, record = ran(folder, *command, "-n", workers, "--benchmark-disable", PYTHONHASHSEED="5", CI="true")
    assert (done.returncode, plain.returncode) == (1, 1)
    assert same_apart_from_time(record, expected)
    outcomes = {clause["id"]: clause["verdict"] for clause in record["clauses"]}
    assert set(outcomes.values()) == {"passed", "failed"}
    assert "Using --randomly-seed" in done.stdout
    assert "timeout: 60" in done.stdout
    assert (folder / ".coverage").exists()


def test_the_plugin_stays_out_of_the_runs_of_others(tmp_path: Path) -> None:
    heavy = "{'gradspec.engine', 'gradspec.spec', 'gradspec.options', 'jsonschema', 'yaml', 'rich', 'refgrad'}"
    body = "import signal, sys, hypothesis\n\n\ndef test_light():\n"
    body += f"    assert not {heavy} & set(sys.modules)\n    assert hypothesis.settings().max_examples == 1\n"
    folder = _user(tmp_path / "hostile", hostile=True)
    (folder / "test_light.py").write_text(body, encoding="utf-8")
    (folder / "mine.py").unlink()
    command = [sys.executable, "-m", "pytest", "--benchmark-disable"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert "1 passed" in done.stdout, done.stdout
    assert "gradspec" not in done.stdout.replace("gradspec-", "")
