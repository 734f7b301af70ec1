"""The faults and the kill table, without the whole run: `gradspec faults` is that."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import sys
from types import ModuleType
from typing import Any

import gradspec.faults
import pytest
import refgrad
from gradspec.adapters import load_adapter
from gradspec.errors import GradspecError
from gradspec.faults import FAULTS, table
from gradspec.faults.copying import PREFIX, Notes, part, private_copy
from gradspec.faults.registry import REGISTRY
from gradspec.faults.table import Row
from gradspec.spec import Clause, Spec, load_spec
from rich.console import Console


def row(name: str, clauses: tuple[str, ...] = ("A-01",), **given: Any) -> Row:
    return Row(name, f"title of {name}", "from the clause", clauses, judged=21, **given)


def card(name: str, **given: Any) -> Clause:
    chapter, _, number = name.partition("-")
    fields: dict[str, Any] = dict.fromkeys(("title", "feature", "source", "example", "path", "sentence"), name)
    fields |= {"requirement": "MUST", "status": "stable", "level": "L0", "line": 1, "example_line": 1}
    return Clause(**(fields | given), id=name, chapter=chapter, number=int(number))


def spec_of(*cards: Clause) -> Spec:
    return dataclasses.replace(load_spec(), clauses={each.id: each for each in cards})


def insides(module: ModuleType) -> dict[str, dict[str, int]]:
    """What every module and class of a package holds, by identity: a replaced rule shows."""
    parts = {n: m for n, m in sys.modules.items() if n == module.__name__ or n.startswith(f"{module.__name__}.")}
    found = {name: {key: id(value) for key, value in vars(each).items()} for name, each in parts.items()}
    classes = {f"{name}.{key}": value for name, each in parts.items() for key, value in vars(each).items()}
    for name, value in classes.items():
        if isinstance(value, type) and value.__module__.startswith(module.__name__):
            found[name] = {key: id(inner) for key, inner in vars(value).items() if not key.startswith("__")}
    return found | {"rules": {key: id(value) for key, value in refgrad.tape.VJP.items()}}


# --- a copy -------------------------------------------------------------------------------------------------------


def test_a_copy_is_complete_and_imports_nothing_of_the_original() -> None:
    copy = private_copy("complete")
    names = [name for name in sys.modules if name == "refgrad" or name.startswith("refgrad.")]
    mirrored = [name for name in sys.modules if name.startswith(f"{PREFIX}complete")]
    assert sorted(name.replace("refgrad", f"{PREFIX}complete", 1) for name in names) == sorted(mirrored)
    for name in mirrored:
        for value in vars(sys.modules[name]).values():
            owner = getattr(value, "__module__", None) or getattr(value, "__name__", "")
            assert not str(owner).startswith("refgrad"), (name, value)
    assert copy.Tensor is not refgrad.Tensor


def test_what_is_done_to_a_copy_does_not_reach_the_original() -> None:
    copy = private_copy("changed")
    copy.engine.sum_contributions = lambda known, _gradient: known
    copy.set_grad_enabled(False)
    assert refgrad.is_grad_enabled()
    x = refgrad.tensor(3.0, requires_grad=True)
    (x + x).backward()
    assert x.grad is not None
    assert x.grad.item() == 2.0


def test_a_second_copy_of_the_same_name_is_fresh() -> None:
    first = private_copy("twice")
    first.engine.mark = 1
    second = private_copy("twice")
    assert not hasattr(second.engine, "mark")
    assert part(second, "tensor") is sys.modules[f"{PREFIX}twice.tensor"]


def test_notes_tell_tensors_apart_that_are_equal_and_keep_none_alive() -> None:
    notes, first, second = Notes(), refgrad.ones(2), refgrad.ones(2)
    notes.add(first)
    assert first in notes
    assert second not in notes
    assert notes.living()[0] is first
    del first
    assert notes.living() == []


# --- the faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_its_copy_and_nothing_else(name: str) -> None:
    before = insides(refgrad)
    adapter = load_adapter(f"gradspec.faults:{name}")
    assert adapter.name == f"refgrad with fault {name}"
    x = adapter.tensor([2.0], shape=(1,), requires_grad=True)
    assert adapter.value(x).data == [2.0]
    assert insides(refgrad) == before


def test_every_must_has_a_fault_and_every_fault_has_cards() -> None:
    spec = load_spec()
    declared = {clause for fault in FAULTS.values() for clause in fault.clauses}
    assert declared <= set(spec.clauses)
    chapters = ("GRADSLOT", "BACKWARD", "RETAIN", "VALUE")
    assert [c.id for c in table.musts(spec, chapters) if c.id not in declared] == []


def test_faults_are_named_and_told_in_one_line() -> None:
    assert set(FAULTS) == set(REGISTRY)
    for name, fault in FAULTS.items():
        place = fault.clauses[0].replace("-", "_")
        assert name[1:].isdecimal() or name.startswith(f"{place}_"), name
        assert "\n" not in fault.title
        assert fault.title.rstrip(".") == fault.title
        assert fault.source


def test_no_two_faults_do_the_same() -> None:
    titles = [fault.title for fault in FAULTS.values()]
    assert len(set(titles)) == len(titles)


def test_an_unknown_fault_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean"):
        importlib.import_module("gradspec.faults").RETAIN_11_leaf_is_free  # noqa: B018 - the access is the act
    with pytest.raises(GradspecError, match="did you mean RETAIN_11_leaf_is_freed"):
        table.named("RETAIN_11_leaf_is_free")
    assert "H04" in dir(gradspec.faults)


# --- the table ----------------------------------------------------------------------------------------------------


def test_what_follows_from_a_broken_clause_is_found_over_several_steps() -> None:
    spec = spec_of(
        card("A-01", implied_by=("A-04",)),
        card("A-02", depends=("A-01",)),
        card("A-03", depends=("A-02",)),
        card("A-04"),
        card("A-05", depends=("A-06",)),
        card("A-06"),
    )
    assert table.implied(spec, ["A-01"]) == {"A-02", "A-03", "A-04"}
    assert table.implied(spec, ["A-02"]) == {"A-03"}


def test_failures_are_the_fault_s_own_or_implied_or_others() -> None:
    spec = spec_of(card("A-01"), card("A-02", depends=("A-01",)), card("A-03"))
    fault = dataclasses.replace(FAULTS["H04"], clauses=("A-01",))
    split = table.classified(fault, {"A-03": 7, "A-02": 2, "A-01": 1}, spec)
    assert split == {"caught_by": {"A-01": 1}, "implied": {"A-02": 2}, "others": {"A-03": 7}}


def test_survivors_are_those_that_no_clause_of_their_own_noticed() -> None:
    rows = [row("H01", caught_by={"A-01": 3}), row("H02", others={"A-02": 1}), row("H03", error="its process ended")]
    assert table.survivors(rows) == ["H02", "H03"]
    assert table.survivors([row(table.CONTROL, ())]) == []


def test_a_must_is_covered_only_by_a_fault_that_names_it() -> None:
    cards = [
        card("A-01"),
        card("A-02"),
        card("A-03", requirement="SHOULD"),
        card("A-04", status="pending"),
        card("B-01"),
    ]
    rows = [row("H01", caught_by={"A-01": 3}, others={"A-02": 1})]
    assert table.uncovered(spec_of(*cards), rows) == ["A-02"]


@pytest.mark.parametrize(("others", "broad"), [(1, False), (2, False), (3, True)])
def test_a_fault_may_break_a_tenth_of_the_rest(others: int, broad: bool) -> None:
    hit = {f"A-{n:02}": 1 for n in range(2, 2 + others)}
    assert table.too_broad([row("H01", caught_by={"A-01": 1}, others=hit)]) == (["H01"] if broad else [])


def test_the_table_is_read_in_80_columns() -> None:
    rows = [row("H01", caught_by={"A-01": 3}, others={"A-02": 1}, implied={"A-03": 1}), row("RETAIN_01_never_frees")]
    console = Console(width=80, file=io.StringIO())
    console.print(table.render(rows))
    text = console.file.getvalue()  # type: ignore[attr-defined] # it is the text above
    assert max(map(len, text.splitlines())) <= 80
    for part_ in ("H01", "title of H01", "A-01 (3)", "A-02", "implied: 1", "SURVIVED"):
        assert part_ in text, part_


def test_the_summary_counts_faults_and_musts() -> None:
    rows = [row("H01", caught_by={"A-01": 3}), row("H02", ("A-02",)), row(table.CONTROL, ())]
    said = table.summary(spec_of(card("A-01"), card("A-02")), rows)
    assert said == "2 faults, 1 caught, 1 survived; MUST clauses with a killing fault: 1/2"


def test_the_json_holds_every_row() -> None:
    found = json.loads(table.to_json([row("H01", caught_by={"A-01": 3}), row("H02")]))["faults"]
    assert [(each["fault"], each["caught_by"], each["survived"]) for each in found] == [
        ("H01", {"A-01": 3}, False),
        ("H02", {}, True),
    ]


def test_a_fault_is_caught_end_to_end() -> None:
    seen: list[tuple[str, int, int]] = []
    rows = table.kill_table(
        ["RETAIN_10_create_graph_wins"],
        jobs=1,
        examples=10,
        beside=1,
        progress=lambda row, done, total: seen.append((row.fault, done, total)),
    )
    assert seen == [("RETAIN_10_create_graph_wins", 1, 1)]
    assert rows[0].caught_by.keys() == {"RETAIN-10"}
    assert not rows[0].unqualified
    assert not rows[0].error


def test_a_process_that_ends_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_task", dies)
    rows = table.kill_table(["H01", "H04"], jobs=2, examples=1)
    assert [(each.fault, each.survived, each.error) for each in rows] == [
        (name, True, "its process ended with exit status 3") for name in ("H01", "H04")
    ]


def dies(*_: Any) -> None:
    """Stands for an implementation that takes the interpreter down."""
    sys.exit(3)


def test_a_table_that_cannot_be_written_is_one_clear_line(tmp_path: Any) -> None:
    with pytest.raises(GradspecError, match="cannot be written"):
        table._written(tmp_path / "missing" / "table.json", "{}")
