"""The record: real sessions over a small adapter, round trip, schemas, and nothing in it that depends on the order."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from gradspec.adapter import Adapter, Value
from gradspec.behaviour import behaviour
from gradspec.capabilities import Capabilities
from gradspec.engine import Settings, SuiteTest, run_item
from gradspec.errors import GradspecError
from gradspec.judge import Finding
from gradspec.programs.program import Case, Input, Program, Root, Step
from gradspec.report import first_violation
from gradspec.report.record import (
    Qualification,
    Record,
    Run,
    Selection,
    build_record,
    clean_text,
    read_record,
    recorded_argument,
    same_apart_from_time,
    validate_record,
    write_record,
)
from gradspec.report.verdicts import Lost
from gradspec.session import Session
from gradspec.spec import Clause, Feature, Spec
from gradspec.wire import encode
from hypothesis import strategies as st


class Squares(Adapter):
    """Numbers that can be squared, and a backward that is wrong for 3 and gives NaN for 2."""

    name = "squares"
    features = frozenset({"base"})
    operations = frozenset({"square"})
    keywords = frozenset({"tensor.requires_grad"})

    def tensor(
        self, data: Any, *, shape: tuple[int, ...] = (), dtype: str = "float64", requires_grad: bool = False
    ) -> Any:
        assert (shape, dtype) == ((), "float64")
        return {"data": data, "from": None, "grad": None, "flag": requires_grad}

    def value(self, x: Any) -> Value:
        return Value((), "float64", x["data"])

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:  # noqa: ARG002 - the contract's
        return {"data": operands[0]["data"] ** 2, "from": operands[0], "grad": None}

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:  # noqa: ARG002 - the contract's
        if root["from"] is None:
            raise RuntimeError("nothing leads to <object at 0x7f12ab34cd56> in /home/somebody/lib/engine.py")
        x = root["from"]
        x["grad"] = self.tensor({2.0: math.nan, 3.0: 7.0}.get(x["data"], 2 * x["data"]))

    def grad(self, x: Any) -> Any:
        return x["grad"]

    def register_hook(self, x: Any, hook: Any) -> Any:
        return hook(x)


def claim(impl: Session, clause: str, expected: Any, found: Any) -> None:
    impl.judge.asserted(clause)
    if expected != found:
        impl.judge.report(Finding(clause, "wrong_value", repr(expected), repr(found), "the table", "it agrees"))


def squared(impl: Session, case: Case) -> None:
    x = impl.tensor(case["x"], requires_grad=True)
    impl.backward(impl.apply("square", x))
    claim(impl, "A-01", 2 * case["x"], impl.value(impl.grad(x)).data)
    claim(impl, "A-02", (), impl.shape(x))


def leaf(impl: Session, case: Case) -> None:
    claim(impl, "B-01", case["x"], case["x"])
    impl.backward(impl.tensor(case["x"]))


def everything(impl: Session, _case: Case) -> None:
    impl.register_hook(impl.tensor(1.0), behaviour(lambda c, g: c.apply("square", g)))
    claim(impl, "B-02", "a tensor", impl.grad(impl.tensor(math.inf)))


def spec_of(*names: str) -> Spec:
    def card(name: str) -> Clause:
        common: dict[str, Any] = {"requirement": "MUST", "feature": "base", "level": "L0", "source": "here"}
        common |= {"status": "stable", "sentence": "It MUST.", "example": "", "path": "spec/A.md"}
        chapter = name.partition("-")[0]
        return Clause(id=name, chapter=chapter, number=1, title=f"title {name}", line=1, example_line=1, **common)

    features = {"base": Feature("base", "L0", "base")}
    return Spec(Path(), {}, features, {name: card(name) for name in names}, {}, {})


def draws(_offered: Capabilities) -> st.SearchStrategy[Case]:
    return st.sampled_from([1.0, 2.0, 3.0]).map(lambda x: Case(parameters={"x": x}))


TESTS = (
    SuiteTest("test_a.py::squared", squared, ("A-01", "A-02"), draws),
    SuiteTest("test_b.py::leaf", leaf, ("B-01",), draws),
    SuiteTest("test_b.py::everything", everything, ("B-02",), draws),
)
ITEMS = tuple((test.item(clause), clause) for test in TESTS for clause in test.clauses)
SPEC = spec_of("A-01", "A-02", "B-01", "B-02")
RUN = Run("/home/me/squares.py:Squares", 0, "smoke", 8, Selection(clause=("B-01", "A-01")), started="2026-01-01")


def run_rows() -> list[dict[str, Any]]:
    session = Session(Squares())
    offered = Capabilities.of(session.adapter)
    settings = Settings(examples=8)
    return [run_item(test, clause, session, offered, settings) for test in TESTS for clause in test.clauses]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return run_rows()


def record_of(rows: list[dict[str, Any]], run: Run = RUN, **given: Any) -> Record:
    return build_record(SPEC, list(SPEC.clauses), Squares(), run, rows, **given)


def test_a_record_of_real_sessions_is_valid_and_says_what_happened(rows: list[dict[str, Any]]) -> None:
    record = record_of(rows, items=ITEMS)
    assert validate_record(record) == ""
    clauses = {clause["id"]: clause for clause in record["clauses"]}
    assert [clauses[name]["verdict"] for name in sorted(clauses)] == ["failed", "passed", "failed", "failed"]
    failure = clauses["A-01"]["failure"]
    assert failure["replay"] == "gradspec check squares.py:Squares --clause A-01 --seed 0 --profile smoke"
    assert failure["trace"][0] == {
        "act": "tensor",
        "arguments": [failure["case"]["parameters"]["x"]],
        "keywords": {"requires_grad": True},
        "result": "x1",
    }
    assert (failure["kind"], failure["oracle"], failure["other"]) == ("wrong_value", "the table", "it agrees")
    assert Case.from_json(failure["case"])["x"] in (2.0, 3.0)
    assert (record["conforms"], record["complete"], record["exit_status"]) == (False, True, 1)
    (problem,) = record["problems"]
    assert problem.startswith("suite error in test_b.py::everything[B-02]: NotStraight at behaviour.py:")
    assert record["features"]["base"] > 0
    assert [row["item"] for row in record["rows"]] == sorted(item for item, _ in ITEMS)


def test_no_address_and_no_absolute_path_gets_into_a_record(rows: list[dict[str, Any]]) -> None:
    text = json.dumps(record_of(rows, problems=["/srv/x/y.json is full"]), ensure_ascii=False)
    assert "0x7f" in json.dumps(rows)
    assert "/home/" in json.dumps(rows)
    assert "0x7f" not in text
    assert "/home/" not in text
    assert "/srv/" not in text
    assert "<object at 0x…> in engine.py" in text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("at 0xdeadbeef00 and 0x1F", "at 0x… and 0x1F"),
        ('File "/usr/lib/a.py", line 3', 'File "a.py", line 3'),
        ("see https://x.org/a/b and 1/2, a/b", "see https://x.org/a/b and 1/2, a/b"),
        (r"in C:\Users\me\a.py:4", "in a.py:4"),
        ("at ../lib/my-x/a.py:3, error:/opt/x/b.so", "at a.py:3, error:b.so"),
        ("no file '/home/my name/a b.bin'", "no file 'a b.bin'"),
        ("see https://x.org/a/b.py and d(x)/d(y)", "see https://x.org/a/b.py and d(x)/d(y)"),
        ("y" * 2000, "y" * 999 + "…"),
    ],
)
def test_texts_are_made_the_same_everywhere(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    assert clean_text(clean) == clean


def test_the_record_depends_neither_on_order_nor_on_workers_nor_on_time(rows: list[dict[str, Any]]) -> None:
    first = record_of(rows, items=ITEMS, notes=["b", "a"])
    for seed in range(4):
        again = copy.deepcopy(run_rows() if seed == 0 else rows)
        again = (again[seed:] + again[:seed])[:: 1 if seed % 2 else -1]
        for row in again:
            row["seconds"] += seed
        run = Run(**vars(RUN) | {"workers": seed, "seconds": float(seed), "started": "later"})
        other = record_of(again, run, items=ITEMS[::-1], notes=["a", "b"])
        assert same_apart_from_time(first, other)
    assert first["time"] != other["time"]
    assert not same_apart_from_time(first, first | {"seed": 1})


def test_reasons_that_differ_by_an_address_are_counted_together(rows: list[dict[str, Any]]) -> None:
    discards = {"building square: at 0x7f0000001": 3, "building square: at 0x7f0000002": 5}
    blank = {"examples": 0, "assertions": 0, "failure": None, "discards": discards}
    record = record_of([rows[0] | blank, *rows[1:]])
    reason = "building square: at 0x…"
    assert record["rows"][0]["discards"] == record["clauses"][0]["discards"] == {reason: 8}
    assert record["clauses"][0]["reason"] == f"every example was discarded: {reason} (8)"


def test_a_record_comes_back_as_it_was_written(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    record = record_of(
        rows, qualification=Qualification(failed={"cat": [{"class": "0-d", "expected": "1", "found": "2"}]})
    )
    path = tmp_path / "record.json"
    path.write_text("old")
    write_record(path, record)
    assert read_record(path) == record
    assert path.read_text().endswith("}\n")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "place", [(), ("adapter",), ("clauses", 0), ("clauses", 0, "failure"), ("rows", 0), ("totals",), ("time",)]
)
def test_the_schema_refuses_keys_that_it_does_not_know(rows: list[dict[str, Any]], place: tuple[Any, ...]) -> None:
    record = copy.deepcopy(record_of(rows))
    part: Any = record
    for key in place:
        part = part[key]
    part["surprise"] = 1
    assert "surprise" in validate_record(record)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("clauses", 0, "verdict"), "fine"),
        (("clauses", 0, "failure", "case"), {"program": {}}),
        (("clauses", 0, "failure", "case"), {"parameters": {"x": {"float": "huge"}}}),
        (("clauses", 0, "failure", "trace", 0), {"act": "tensor", "arguments": [{"ref": "x1", "late": "x2"}]}),
        (("clauses", 0, "failure", "trace", 0), {"act": "tensor", "arguments": [{"thing": 1}]}),
        (("clauses", 0, "failure", "trace", 0), {"act": "tensor"}),
        (("rows", 0, "discards"), {"kink": 0}),
        (("rows", 0, "lost"), "gone"),
        (("exit_status",), 3),
        (("totals", "by_verdict", "passed"), -1),
        (("qualification", "failed"), {"cat": []}),
    ],
)
def test_the_schema_refuses_what_is_wrong_inside(
    rows: list[dict[str, Any]], place: tuple[Any, ...], wrong: Any
) -> None:
    record = copy.deepcopy(record_of(rows))
    *path, last = place
    part: Any = record
    for key in path:
        part = part[key]
    part[last] = wrong
    assert validate_record(record) != ""


def test_an_interrupted_record_never_looks_whole(rows: list[dict[str, Any]]) -> None:
    record = record_of(rows[1:2], Run("squares", 0, "smoke", 8, interrupted=True), items=ITEMS)
    assert (record["complete"], record["exit_status"], record["conforms"]) == (False, 130, False)
    assert record["problems"] == []
    assert [clause["verdict"] for clause in record["clauses"]].count("not_exercised") == 3
    assert validate_record(record) == ""


def test_a_lost_item_makes_the_record_say_that_it_may_come_out_otherwise(rows: list[dict[str, Any]]) -> None:
    lost = Lost(*ITEMS[0], "crashed", "the worker died in /usr/lib/x.so", case={"parameters": {"x": 1}})
    record = record_of(rows[1:], items=ITEMS, lost=[lost])
    assert record["deterministic"] is False
    assert record["clauses"][0]["verdict"] == "crashed"
    assert record["clauses"][0]["failure"]["message"] == "the worker died in x.so"
    assert record["rows"][0]["lost"] == "crashed"
    assert validate_record(record) == ""


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("torch", "torch"),
        ("package.module:attribute", "package.module:attribute"),
        ("/home/me/a.py", "a.py"),
        ("../a.py:Mine", "a.py:Mine"),
        (r"C:\me\a.py:Mine", "a.py:Mine"),
        ("stdio:/opt/x/bin/run --lib /opt/x/lib", "stdio:run --lib lib"),
        ("stdio:run 'a", "stdio:run ''\"'\"'a'"),
    ],
)
def test_arguments_are_recorded_without_folders(argument: str, shown: str) -> None:
    assert recorded_argument(argument) == shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "record.json:1: the file is not JSON"),
        ("[]", "the file is no record of gradspec"),
        ('{"schema": "gradspec-record/2"}', "has version 2, this gradspec reads up to 1"),
        ('{"schema": "gradspec-record/1"}', "the record is malformed"),
        ('{"schema": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "the file is not JSON"),
        (b"\xff\xfe", "the file is not JSON"),
        (None, "the record does not exist"),
    ],
)
def test_what_is_no_record_gets_one_clear_line(tmp_path: Path, text: str | bytes | None, words: str) -> None:
    path = tmp_path / "record.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GradspecError) as caught:
        read_record(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_cannot_be_written_leaves_nothing(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(GradspecError, match="cannot be written"):
        write_record(tmp_path / "none" / "r.json", record_of(rows))
    (tmp_path / "folder").mkdir()
    with pytest.raises(GradspecError, match="cannot be written"):
        write_record(tmp_path / "folder", record_of(rows))
    with pytest.raises(GradspecError, match="fault of gradspec"):
        write_record(tmp_path / "r.json", {"schema": "gradspec-record/1"})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def doubled(c: Any, g: Any) -> Any:
    c.record("seen", g)
    return c.apply("mul", g, 2.0)


def test_every_composite_of_the_wire_agrees_with_its_schema() -> None:
    program = Program(
        (Input((2,), (1.0, math.inf), requires_grad=True),), (Step("square", (0,)),), (Root(1, (1j, 2.0)),)
    )
    case = Case(program, (("step", 1, None),), {"x": (1.5, math.nan), "y": 1j})
    assert first_violation("case", case.to_json()) is None
    value = Value((2,), "complex128", [1j, complex(math.nan, 0)])
    hook = behaviour(doubled)
    for item in (program, value, hook, {"a": (1, None)}, -math.inf, True, "text", object(), [0] * 10_001):
        assert first_violation("trace", encode(item), "item") is None, item
    for wrong in ({"ref": 1}, {"float": "1"}, {}, {"value": {"shape": [1], "dtype": "x"}}, "y" * 301):
        assert first_violation("trace", wrong, "item") is not None, wrong
    both = {"act": "grad", "arguments": [], "returned": 1, "raised": {"kinds": [], "type": "E", "text": ""}}
    assert first_violation("trace", [both]) is not None
    assert first_violation("trace", [{"act": "grad", "arguments": [], "returned": {"none": True}}]) is None
