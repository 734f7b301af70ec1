"""The self-test of an adapter: what is right passes, and each way of being wrong is told by its own check."""

# ruff: noqa: ARG002, ARG005 - an adapter that is broken on purpose does not look at what it is given

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradspec.suite
import pytest
import refgrad
from gradspec.adapter import OPTIONAL, Unsupported, Value
from gradspec.adapters.refgrad import Refgrad
from gradspec.adapters.torch import Torch
from gradspec.cli import main
from gradspec.errors import ERROR_KINDS
from gradspec.faults import FAULTS
from gradspec.probe import RESTARTS, examine
from gradspec.qualify import qualification_of
from gradspec.report.record import Finding, read_record
from gradspec.selftest import CHECKS, miscalled, selftest
from gradspec.selftest.refusals import UNASKED
from gradspec.spec import load_spec

IN_THE_SLOT = {"GRADSLOT_01_forward_fills", "GRADSLOT_01_starts_as_zeros"}
"""Faults that sit in what the self-test looks at: a remark, since the adapter may as well be at fault."""


def said(adapter: Any) -> list[tuple[str, str, str]]:
    """What is wrong or worth a remark: result, check, sentence."""
    return [(f.result, f.check, f.text) for f in selftest(adapter) if f.result in ("wrong", "remark")]


# --- what is right ------------------------------------------------------------------------------------------------


def test_refgrad_passes_every_check_that_it_declares() -> None:
    found = selftest(Refgrad())
    assert {f.result for f in found} == {"ok", "not declared"}
    assert [f.check for f in found] == list(CHECKS)
    lacking = (OPTIONAL - Refgrad.keywords) | (set(load_spec().features) - Refgrad.features)
    assert all(f.text.split()[-1] in lacking for f in found if f.result == "not declared")


def test_torch_passes_every_check() -> None:
    assert {f.result for f in selftest(Torch())} == {"ok"}


def test_no_fault_of_an_engine_is_called_one_of_its_adapter() -> None:
    some = {*list(FAULTS)[::6], *IN_THE_SLOT}  # all of them take a minute
    found = {name: said(FAULTS[name].adapter()) for name in some}
    assert {name for name, sentences in found.items() if sentences} == IN_THE_SLOT
    assert {result for sentences in found.values() for result, _, _ in sentences} == {"remark"}


class Scalar(Refgrad):
    """A scalar engine with two operations and one way of passing."""

    features, keywords, max_rank, dtypes = frozenset({"scalar"}), frozenset(), 0, ("float64",)
    operations = frozenset({"add", "mul"})

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
        assert gradient is None
        assert not keywords
        root.backward()

    def requires_grad(self, x: Any) -> bool:
        raise Unsupported("nothing has a flag")


def test_a_small_engine_is_asked_for_nothing_that_it_does_not_declare() -> None:
    found = selftest(Scalar())
    assert said(Scalar()) == []
    assert {f.check for f in found if f.result == "ok"} >= {"values go in and come out", "start forgets events"}
    assert all(f.text.startswith("needs ") for f in found if f.result == "not declared")


def test_the_kinds_that_a_clause_asks_for_are_provoked_and_the_others_only_remarked() -> None:
    suite = Path(gradspec.suite.__file__).parent
    text = "".join(file.read_text(encoding="utf-8") for file in suite.glob("*.py"))
    asked = {kind for kind in ERROR_KINDS if f'"{kind}"' in text}
    provoked = {name.split()[2] for name in CHECKS if name.startswith("the refusal ")}
    assert asked <= provoked
    assert asked.isdisjoint(UNASKED)
    assert provoked - asked == UNASKED


def test_every_keyword_and_every_feature_with_acts_is_asked_for() -> None:
    assert {f"the keyword {keyword} is taken" for keyword in OPTIONAL} <= set(CHECKS)
    asked = {need for check in CHECKS.values() for need in check.needs}
    assert set(load_spec().features) - asked <= {"higher", "multi_output", "legacy_names"}  # operations and keywords


# --- what is wrong ------------------------------------------------------------------------------------------------


class WrongDtype(Refgrad):
    def value(self, x: Any) -> Value:
        value = super().value(x)
        return Value(value.shape, "float64" if value.dtype == "float32" else value.dtype, value.data)


class Rounds(Refgrad):
    def tensor(self, data: Any, *, shape: Any = (), dtype: str = "float64", requires_grad: bool = False) -> Any:
        if dtype == "float64":
            data = self.ns.tensor(data, dtype=self.ns.float32).tolist() if 0 not in shape else data
        return super().tensor(data, shape=shape, dtype=dtype, requires_grad=requires_grad)


class ForgetsShape(Refgrad):
    def tensor(self, data: Any, *, shape: Any = (), dtype: str = "float64", requires_grad: bool = False) -> Any:
        return self.ns.tensor(data, dtype=getattr(self.ns, dtype), requires_grad=requires_grad)


class BareNumber(Refgrad):
    def grad(self, x: Any) -> Any:
        return None if x.grad is None else float(x.grad.tolist()) if x.grad.shape == () else x.grad


class NoKinds(Refgrad):
    def error_kinds(self, error: BaseException) -> frozenset[str]:
        return super().error_kinds(error) & {"behaviour_error"}


class AllKinds(Refgrad):
    def error_kinds(self, error: BaseException) -> frozenset[str]:
        return super().error_kinds(error) | frozenset(ERROR_KINDS)


class Misspelt(Refgrad):
    def error_kinds(self, error: BaseException) -> frozenset[str]:
        return frozenset(kind.replace("graph_freed", "graph_fred") for kind in super().error_kinds(error))


class NoWarningKinds(Refgrad):
    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        return frozenset()


class Immortal(Refgrad):
    def alive(self, watch: Any) -> bool:
        return True


class NeverShares(Refgrad):
    def shares_storage(self, a: Any, b: Any) -> bool:
        return False


class ByValue(Refgrad):
    def same(self, a: Any, b: Any) -> bool:
        return bool(a.tolist() == b.tolist())


class InBytes(Refgrad):
    def strides(self, x: Any) -> tuple[int, ...]:
        return tuple(8 * step for step in super().strides(x))


class Remembers(Refgrad):
    def start(self) -> None:
        self.ns.set_grad_enabled(True)


class LeavesModes(Refgrad):
    def start(self) -> None:
        self._events.clear()


class RecordsTwice(Refgrad):
    def record(self, label: str, *items: Any) -> None:
        super().record(label, *items)
        super().record(label, *items)


class NoContext(Refgrad):
    def no_grad(self) -> Any:
        return object()


class NotTaken(Refgrad):
    def backward(self, root: Any, gradient: Any = None, *, retain_graph: Any = None, create_graph: Any = False) -> None:
        super().backward(root, gradient, retain_graph=retain_graph, create_graph=create_graph)


class Inverted(Refgrad):
    def requires_grad(self, x: Any) -> bool:
        return not x.requires_grad


class NotThere(Refgrad):
    def retain_grad(self, x: Any) -> None:
        raise self.missing("retain_grad")


class Slips(Refgrad):
    def set_grad(self, x: Any, value: Any) -> None:
        x.gradient_slot.assign(value)


class Swallows(Refgrad):
    def register_hook(self, x: Any, hook: Any) -> Any:
        return super().register_hook(x, lambda g: None)


class Translates(Refgrad):
    def raise_(self, text: str) -> None:
        raise RuntimeError(text)


class NoVersion(Refgrad):
    def version(self) -> str:
        return ""


VALUES = "values go in and come out"
TAKES_INPUTS = "take 'inputs' in `backward` of the adapter, or leave 'backward.inputs' out of `keywords`"


@pytest.mark.parametrize(
    ("broken", "result", "check", "words"),
    [
        (WrongDtype, "wrong", VALUES, ["dtype='float32') has dtype float64", "read it in `value`"]),
        (Rounds, "wrong", VALUES, ["is -1.0: look whether `tensor` or `value` of the adapter rounds"]),
        (ForgetsShape, "wrong", VALUES, ["shape=(0, 3)", "has shape (0,): hand `shape` on in `tensor`"]),
        (BareNumber, "wrong", ".grad is None before", ["the bare number", "wrap it in a tensor", "in `grad`"]),
        (NoKinds, "wrong", "the refusal graph_freed", ["let `error_kinds` of the adapter return frozenset({'graph_f"]),
        (AllKinds, "wrong", "error_kinds says nothing", ["kinds for AttributeError", "return an empty frozenset"]),
        (Misspelt, "wrong", "the refusal graph_freed", ["names 'graph_fred'", "did you mean graph_freed?"]),
        (NoWarningKinds, "wrong", "the warning non_leaf_grad", ["names no kind", "name it in `warning_kinds`"]),
        (Immortal, "wrong", "a tensor that was given up", ["alive is True", "whether `alive` collects garbage"]),
        (NeverShares, "wrong", "shares_storage tells", ["of a tensor and itself is False", "where the elements lie"]),
        (ByValue, "wrong", "same tells", ["two tensors with equal values is True", "by identity in `same`"]),
        (InBytes, "wrong", "strides count", ["(24, 8) (these are bytes)", "in elements in `strides`"]),
        (Remembers, "wrong", "start forgets events", ["call super().start() in `start` of the adapter"]),
        (LeavesModes, "wrong", "start puts the grad mode", ["switch recording on in `start` of the adapter"]),
        (RecordsTwice, "wrong", "what record writes", ["not one event with the label", "leave `record` and `events`"]),
        (NoContext, "wrong", "no_grad and enable_grad", ["enter raised AttributeError", "look at"]),
        (NotTaken, "wrong", "the keyword backward.inputs", ["raised TypeError", TAKES_INPUTS]),
        (Inverted, "wrong", "a fresh tensor has", ["requires_grad=False) is True", "is it inverted there?"]),
        (NotThere, "wrong", "the acts of retain_grad", ["implement `retain_grad`", "leave 'retain_grad' out of `feat"]),
        (Slips, "wrong", "the acts of grad.assign", ["raised AttributeError", "look at `set_grad` of the adapter"]),
        (Swallows, "wrong", "hooks are called", ["no event came back", "hands its behaviour to the implementation"]),
        (Translates, "wrong", "what a hook raises", ["with no kind", "leave `raise_` to the base class"]),
        (NoVersion, "remark", "the version is known", ["return it in `version` of the adapter"]),
    ],
)
def test_an_adapter_broken_in_one_way_is_told_what_to_do(
    broken: type[Refgrad], result: str, check: str, words: list[str]
) -> None:
    found = said(broken())
    mine = [text for r, name, text in found if r == result and name.startswith(check)]
    assert mine, found
    assert all(word in mine[0] for word in words), mine[0]
    assert all(word.count("\n") == 0 for _, _, word in found)
    others = {name for _, name, _ in found if not name.startswith(check)}
    assert len(others) <= ALSO.get(broken, 0), others


ALSO = {NoKinds: 17, NoWarningKinds: 1, NoContext: 2, NotTaken: 1, NotThere: 1, Slips: 3, Swallows: 1}
"""Checks beside the one that is meant that say something too: they ask for the same act."""


def test_an_operation_under_another_attribute_name_is_told() -> None:
    misfits = [{"class": "ordinary", "expected": "it succeeds", "found": "raised TypeError: no keyword 'dim0'"}]
    other = [{"class": "0-d", "expected": "0.5", "found": "1.0"}]
    (finding,) = miscalled(qualification_of({"transpose": misfits, "sin": other, "cos": []}))
    assert finding.result == "wrong"
    assert "transpose raised TypeError: no keyword 'dim0', on all its operands: let `apply` take" in finding.text


def test_a_slip_under_misuse_is_not_charged_to_the_adapter() -> None:
    class Stumbles(Refgrad):
        def retain_grad(self, x: Any) -> None:
            if not x.requires_grad:
                raise AttributeError("no node")
            super().retain_grad(x)

    ((result, check, text),) = said(Stumbles())
    assert (result, check) == ("remark", "the refusal not_requiring_grad is named")
    assert "AttributeError: no node" in text


# --- in a process that may die of it ------------------------------------------------------------------------------

HEAD = "import os, re, signal\nfrom gradspec.adapters.refgrad import Refgrad\nclass Mine(Refgrad):\n    name = 'mine'\n"
DIES = """
    def apply(self, op, *a, **k):
        if op == "tanh": os.kill(os.getpid(), signal.SIGSEGV)
        return super().apply(op, *a, **k)
    def retains_grad(self, x): os._exit(7)
    def strides(self, x): re.match(r"(a+)+$", "a" * 40 + "b")
    def backward_many(self, *a, **k):
        while True: os.write(1, b"endless" * 1000)
    features = Refgrad.features - {"backward.many"}
"""


def mine(folder: Path, body: str) -> str:
    """The path of an adapter over refgrad."""
    (folder / "mine.py").write_text(HEAD + body, encoding="utf-8")
    return str(folder / "mine.py")


def test_what_ends_the_process_costs_its_own_check(tmp_path: Path) -> None:
    examined = examine(mine(tmp_path, DIES), timeout=5)
    wrong = {f.check: f.text for f in examined.findings if f.result == "wrong"}
    assert set(wrong) == {"the acts of retain_grad can be asked for", "strides count elements"}
    assert "in `retains_grad`, it ended the interpreter (status 7)" in wrong["the acts of retain_grad can be asked for"]
    assert "in `strides`, no end after 5 seconds" in wrong["strides count elements"]
    assert {f.check for f in examined.findings} == set(CHECKS)
    (misfit,) = examined.qualification.failed.pop("tanh")
    assert misfit["found"] == "the signal 11 ended the process"
    assert (examined.qualification.failed, examined.qualification.void) == ({}, False)


def test_a_process_that_always_dies_is_given_up(tmp_path: Path) -> None:
    body = "    def tensor(self, *a, **k):\n        os._exit(3)\n"
    examined = examine(mine(tmp_path, body), timeout=30)
    assert len(examined.qualification.failed) == len(examined.declared.operations)
    assert "not tried" in examined.qualification.failed["conj"][0]["found"]
    last = examined.findings[-1]
    assert f"{RESTARTS} processes of the self-test ended before their time" in last.text
    assert f"{len(CHECKS)} checks were not run" in last.text


def test_in_a_process_of_its_own_the_same_is_found() -> None:
    examined = examine("refgrad")
    assert list(examined.findings) == selftest(Refgrad())
    assert (examined.declared.name, examined.qualification.failed) == ("refgrad", {})
    assert examined.declared.version() == refgrad.__version__


# --- the command and the record -----------------------------------------------------------------------------------


def test_the_command_shows_each_check_in_80_columns(tmp_path: Path) -> None:
    body = "    def same(self, a, b):\n        return True\n    def version(self): return ''\n"
    done = subprocess.run(
        [sys.executable, "-m", "gradspec", "selftest", mine(tmp_path, body)],
        env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0] == "mine: self-test of the adapter"
    assert all(len(line) <= 80 for line in lines)
    shown = {line.split(maxsplit=1)[1] for line in lines if re.match(r"(ok|wrong|remark) ", line)}
    silent = {finding.check for finding in selftest(Refgrad()) if finding.result == "not declared"}
    assert set(CHECKS) - silent <= shown
    assert "by identity in `same` of the adapter" in " ".join(done.stdout.split())
    assert " ".join(lines[-2:]).endswith("the suite could not believe this adapter. Exit status 1.")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("nosuch", 2, "there is no adapter 'nosuch'"),
        ("refgrad --timeout x", 2, "--timeout x"),
        ("broken.py", 3, "Zero"),
    ],
)
def test_what_cannot_be_examined_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    arguments: str, status: int, said: str,
) -> None:  # fmt: skip
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["selftest", *arguments.split()])
    out, err = capfd.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (status, "", 1)
    assert said in err


def test_check_and_pytest_record_the_same_self_test(tmp_path: Path) -> None:
    path = mine(tmp_path, "    def same(self, a, b):\n        return True\n    def version(self): return ''\n")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    check = ["gradspec", "check", path, "--clause", "RETAIN-01", "--profile", "smoke", "--json", "a.json"]
    live = ["pytest", "-p", "gradspec.plugin", "--pyargs", "gradspec.suite", "--adapter", path]
    live += ["--gradspec-clause=RETAIN-01", "--gradspec-profile=smoke", "--gradspec-record=b.json"]
    for words in (check, live):
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=environment, timeout=120, check=False)
        assert done.returncode == 1
    a, b = read_record(tmp_path / "a.json"), read_record(tmp_path / "b.json")
    assert a["selftest"] == b["selftest"]
    assert a["selftest"]["counts"]["wrong"] == 1
    assert [one["result"] for one in a["selftest"]["findings"]] == ["remark", "wrong"]
    assert a["problems"] == b["problems"] == [f"self-test: {a['selftest']['findings'][1]['text']}"]
    assert a["notes"] == b["notes"] == [f"self-test: {a['selftest']['findings'][0]['text']}"]
    assert (a["conforms"], a["clauses"][0]["verdict"]) == (False, "passed")


def test_a_finding_without_a_sentence_is_only_counted() -> None:
    assert Finding("a", "ok").text == ""
