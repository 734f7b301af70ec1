"""The second transport: starting an implementation in another interpreter, and what is said where it cannot be."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from gradspec import remote
from gradspec.adapters import CouldNotStart
from gradspec.bundle import environment
from gradspec.errors import GradspecError
from gradspec.remote import Remote, open_adapter
from gradspec.session import Session

PLAIN = str(Path(__file__).with_name("plain_engine.py"))


def interpreter(folder: Path, line: str) -> str:
    """A program that stands for an interpreter: a line of shell, in which {python} is the real one."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{line.format(python=sys.executable)}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def written(folder: Path, body: str) -> str:
    """A file with an adapter: its path."""
    file = folder / "mine.py"
    file.write_text(f"import os, sys, time\nfrom gradspec.adapters.refgrad import Refgrad\n{body}", encoding="utf-8")
    return str(file)


# --- what cannot be started ---------------------------------------------------------------------------------------

OLD = (
    "exec {python} -c 'import sys; sys.version_info = (3, 9, 7); sys.argv = sys.argv[1:]; "
    'exec(compile(open(sys.argv[0]).read(), "start", "exec"), dict(__name__="__main__", __file__=sys.argv[0]))\' "$@"'
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (OLD, "Python 3.9.7 is too old to serve an implementation: name one of 3.11 or newer"),
        ("exit 0", "this is no Python interpreter that works"),
        ('exec cat "$@"', "this is no Python interpreter that works"),
        ("exec {python} -c 'import sys; sys.exit(3)'", "this is no Python interpreter that works"),
        ('[ $1 = -c ] && exec {python} "$@"; kill -11 $$', "the process ended (SIGSEGV) while it was loaded"),
    ],
    ids=["old", "silent", "babble", "useless", "crash"],
)
def test_an_interpreter_that_cannot_serve_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(CouldNotStart) as caught:
        Remote(PLAIN, interpreter(tmp_path, line))
    assert said in str(caught.value)
    assert caught.value.status == 3


@pytest.mark.parametrize("python", ["/no/such/python", "no-such-python", "/", ""])
def test_an_interpreter_that_does_not_exist_is_named(python: str) -> None:
    with pytest.raises(CouldNotStart, match=f"--python {python}: it cannot be run: "):
        Remote(PLAIN, python)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0\n", "mine.py could not be started: ZeroDivisionError: division by zero, at mine.py:3"),
        ("os._exit(4)\n", "mine.py could not be started: the process ended (exit status 4) while it was loaded"),
        ("os.kill(os.getpid(), 11)\n", "the process ended (SIGSEGV) while it was loaded"),
        (
            "for n in range(3, 9):\n    try: os.write(n, b'junk\\n')\n    except OSError: pass\n",
            "it wrote into the channel",
        ),
        ("time.sleep(600)\n", "mine.py could not be started: nothing came back for 1.5 seconds"),
    ],
    ids=["raises", "exits", "crashes", "babbles", "hangs"],
)
def test_an_implementation_that_cannot_be_loaded_is_told(
    tmp_path: Path, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 1.5 if "sleep" in body else 60.0)
    with pytest.raises(CouldNotStart) as caught:
        Remote(written(tmp_path, body), sys.executable)
    assert said in str(caught.value)


@pytest.mark.parametrize("argument", ["nosuch", "nosuch.module:X", "nosuch.py", "gradspec.faults:H0"])
def test_a_name_that_leads_nowhere_is_wrong_usage_served_too(argument: str) -> None:
    with pytest.raises(GradspecError) as here:
        open_adapter(argument)
    with pytest.raises(GradspecError) as there:
        open_adapter(argument, sys.executable)
    assert str(here.value) == str(there.value)
    assert (here.value.status, there.value.status) == (2, 2)


# --- another environment ------------------------------------------------------------------------------------------


def test_only_the_standard_library_is_needed(tmp_path: Path) -> None:
    with closing(Remote(PLAIN, interpreter(tmp_path, 'exec {python} -I -S "$@"'))) as adapter:
        assert adapter.version() == "__main__ _gradspec_adapter_plain_engine gradspec"
        session = Session(adapter)
        session.start()
        x = session.tensor(3.0)
        session.backward(session.apply("mul", session.apply("add", x, x), x))
        assert session.value(session.grad(x)).data == 12.0


def test_nothing_of_this_environment_is_shown_to_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    found = environment()
    assert "PYTHONHOME" not in found
    kept = found["PYTHONPATH"].split(os.pathsep)
    assert str(tmp_path) in kept
    assert not any("site-packages" in path for path in kept)
    assert not any((Path(path) / "gradspec").is_dir() for path in kept)


def test_one_that_takes_the_name_of_another_stays_over_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '9.9'\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    body = "import torch\nclass Mine(Refgrad):\n    name = 'mine'\n    def version(self): return torch.__version__\n"
    with closing(Remote(written(tmp_path, body), sys.executable)) as adapter:
        assert adapter.version() == "9.9"
    with pytest.raises(CouldNotStart, match="`import torch` is answered by no installed distribution"):
        Remote("torch", sys.executable)
    assert getattr(sys.modules.get("torch"), "__version__", "") != "9.9"


def test_a_module_beside_the_user_is_found_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "class Mine(Refgrad):\n    name = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    with closing(Remote("mine:Mine", sys.executable)) as adapter:
        assert adapter.name == "mine"


def test_memory_is_limited_over_there(tmp_path: Path) -> None:
    body = "class Mine(Refgrad):\n    def version(self): return str(len(bytearray(10**9)))\n"
    with pytest.raises(CouldNotStart, match="MemoryError"):
        Remote(written(tmp_path, body), sys.executable, memory=600)
