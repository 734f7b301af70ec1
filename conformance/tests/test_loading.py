"""From the command line's word to an adapter: what is refused, what could not be started, what is declared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gradspec.adapters import CouldNotStart, guarded, load_adapter, shipped
from gradspec.adapters.refgrad import Refgrad
from gradspec.errors import GradspecError
from gradspec.probe import check_features, probe

HEAD = "import os, sys, time\nfrom gradspec.adapters.refgrad import Refgrad\n"


def written(folder: Path, body: str, name: str = "mine.py") -> str:
    """A file with an adapter; its path."""
    (folder / name).write_text(HEAD + body, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("nosuch", "there is no adapter 'nosuch'; shipped are refgrad, torch"),
        ("refgrd", "did you mean refgrad?"),
        ("stdio:prog", "come later"),
        ("nosuch.module:X", "no module is called 'nosuch'"),
        ("gradspec.nosuch:X", "no module is called 'gradspec.nosuch'"),
        ("gradspec.adapters.refgrad:Refgra", "no attribute 'Refgra', did you mean Refgrad"),
        ("gradspec.faults:H0", "no attribute 'H0', did you mean H0"),
        ("gradspec.errors:ERROR_KINDS", "no gradspec.adapter.Adapter"),
        ("gradspec.errors:", "write module:attr"),
        ("nosuch.py", "there is no such file"),
        ("nosuch.py:X", "there is no such file"),
    ],
)
def test_a_name_that_leads_nowhere_is_wrong_usage(argument: str, said: str) -> None:
    with pytest.raises(GradspecError) as caught:
        load_adapter(argument)
    assert said in str(caught.value)
    assert not isinstance(caught.value, CouldNotStart)


@pytest.mark.parametrize(
    ("body", "attribute", "said"),
    [
        ("", "", "defines no subclass"),
        ("class A(Refgrad): pass\nclass B(Refgrad): pass\n", "", "several adapters (A, B)"),
        ("def make(): return 3\n", ":make", "it returned int"),
        ("thing = 3\n", ":thing", "3 is no gradspec.adapter.Adapter"),
        ("", ":", "names no attribute"),
    ],
)
def test_a_file_without_one_adapter_is_wrong_usage(tmp_path: Path, body: str, attribute: str, said: str) -> None:
    with pytest.raises(GradspecError) as caught:
        load_adapter(written(tmp_path, body) + attribute)
    assert said in str(caught.value)
    assert not isinstance(caught.value, CouldNotStart)


@pytest.mark.parametrize(
    ("body", "attribute", "said"),
    [
        ("1 / 0\n", "", "ZeroDivisionError: division by zero, at mine.py:3"),
        ("import nosuch_thing\n", "", "No module named 'nosuch_thing', at mine.py:3"),
        ("def f(:\n", "", "SyntaxError: invalid syntax, at mine.py:3"),
        ("sys.exit('bye')\n", "", "SystemExit: bye, at mine.py:3"),
        ("raise KeyboardInterrupt\n", "", "KeyboardInterrupt: (no message), at mine.py:3"),
        (
            "class A(Refgrad):\n    def __init__(self): raise ValueError('no\\ndevice')\n",
            ":A",
            "ValueError: no, at mine.py:4",
        ),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E\n", "", "E: (a message that cannot be read)"),
    ],
)
def test_code_that_raises_could_not_be_started(tmp_path: Path, body: str, attribute: str, said: str) -> None:
    with pytest.raises(CouldNotStart) as caught:
        load_adapter(written(tmp_path, body) + attribute)
    assert said in str(caught.value)
    assert caught.value.status == 3


@pytest.mark.parametrize("attribute", ["", ":Mine", ":make", ":ready"])
def test_a_class_a_factory_and_an_instance_are_taken(tmp_path: Path, attribute: str) -> None:
    body = "class Mine(Refgrad):\n    name = 'mine'\ndef make(): return Mine()\nready = Mine()\n"
    adapter = load_adapter(written(tmp_path, body) + attribute)
    assert adapter.name == "mine"


def test_a_module_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "class Mine(Refgrad):\n    name = 'mine'\n", "a_module_of_mine.py")
    written(tmp_path, "1 / 0\n", "refgrad.py")  # hides nothing that is installed
    assert load_adapter("a_module_of_mine:Mine").name == "mine"
    assert isinstance(load_adapter("refgrad"), Refgrad)


def test_a_fault_is_loaded_by_its_name() -> None:
    assert isinstance(load_adapter("gradspec.faults:H04"), Refgrad)


def test_the_shipped_adapters_are_these() -> None:
    assert shipped() == ["refgrad", "torch"]


def test_torch_that_is_missing_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CouldNotStart, match=r"pip install 'gradspec\[torch\]'"):
        load_adapter("torch")


def test_a_torch_of_another_distribution_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '9.9'\n", encoding="utf-8")
    info = tmp_path / "candle_python-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: candle-python\nVersion: 1.0\n", encoding="utf-8")
    (info / "top_level.txt").write_text("torch\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CouldNotStart, match="answered by the distribution candle-python, not by torch"):
        probe("torch")


def test_a_ctrl_c_while_loading_stays_a_ctrl_c() -> None:
    def code() -> None:
        import signal  # noqa: PLC0415

        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        guarded("mine", None, code)


# --- in a process of its own --------------------------------------------------------------------------------------


def test_the_probe_tells_what_is_declared() -> None:
    declared, adapter = probe("refgrad"), Refgrad()
    for name in ("name", "features", "operations", "keywords", "dtypes", "devices", "max_rank", "distribution"):
        assert getattr(declared, name) == getattr(adapter, name)
    assert declared.version() == adapter.version()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os._exit(0)\n", "it ended the interpreter (status 0)"),
        ("import signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "the signal 11 ended the process"),
        ("time.sleep(60)\n", "nothing came back for 2 seconds"),
        (
            "for n in range(3, 20):\n    try: os.write(n, b'garbage')\n    except OSError: pass\nos._exit(0)\n",
            "channel",
        ),
        ("class A(Refgrad):\n    def version(self): raise SystemExit(4)\n", "SystemExit: 4"),
    ],
)
def test_an_implementation_that_dies_takes_only_the_probe_with_it(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(CouldNotStart) as caught:
        probe(written(tmp_path, body), timeout=2 if "sleep" in body else 60)
    assert said in str(caught.value)


def test_what_an_implementation_prints_is_no_answer(tmp_path: Path) -> None:
    body = "print('hello')\nos.system('echo hello')\nos.write(1, b'{}')\nclass A(Refgrad):\n    name = 'loud'\n"
    assert probe(written(tmp_path, body)).name == "loud"


def test_the_probe_hides_nothing_behind_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "1 / 0\n", "refgrad.py")
    monkeypatch.chdir(tmp_path)
    assert probe("refgrad").name == "refgrad"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("features = ['scalar']", "features is list: write a frozenset of names"),
        ("operations = frozenset({'addd'})", "operations declares 'addd', which does not exist"),
        ("keywords = frozenset({'backward.nosuch'})", "keywords declares 'backward.nosuch'"),
        ("dtypes = 'float64'", "dtypes is str: write a tuple of names"),
        ("dtypes = ()", "dtypes is empty: name the element types"),
        ("dtypes = ('float64', 'float65')", "dtypes declares 'float65', which does not exist"),
        ("max_rank = 'two'", "max_rank is 'two'"),
        ("max_rank = True", "max_rank is True"),
        ("name = ''", "has no name"),
        ("distribution = None", "distribution is NoneType, not a text"),
    ],
)
def test_a_malformed_declaration_is_wrong_usage(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(GradspecError) as caught:
        probe(written(tmp_path, f"class A(Refgrad):\n    {body}\n"))
    assert said in str(caught.value)
    assert not isinstance(caught.value, CouldNotStart)


def test_an_unknown_feature_is_wrong_usage(tmp_path: Path) -> None:
    declared = probe(written(tmp_path, "class A(Refgrad):\n    features = frozenset({'teleport'})\n"))
    with pytest.raises(GradspecError, match="features declares 'teleport', which does not exist"):
        check_features("mine.py", declared, {"scalar"})


def test_the_probe_is_a_command_that_prints_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gradspec.probe", "nosuch"], capture_output=True, text=True, check=False
    )
    assert '"status": 2' in done.stdout
    assert done.stdout.count("\n") == 1
