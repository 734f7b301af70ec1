"""Expectation files: what is read, and the line of everything that is wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gradspec.errors import GradspecError
from gradspec.programs.program import Case
from gradspec.report import expectations
from gradspec.report.expectations import Entry, Expectations, check_divergences, load_expectations
from gradspec.spec import Spec

HEAD = "gradspec-expectations: 1\n"
GOOD = """\
    entries:
      - clause: A-01
        reason: known since long
        link: https://example.org/1
        kind: wrong_value
        case: {parameters: {size: 3}}
    """


def a_spec(**requirements: str) -> Spec:
    names = {"A-01": "MUST", "A-02": "SHOULD", "B-01": "TORCH"}
    clauses = {name: SimpleNamespace(requirement=word) for name, word in names.items()}
    return cast("Spec", SimpleNamespace(clauses=clauses, divergences=requirements))


def write(folder: Path, text: str, name: str = "mine.yaml", head: str = HEAD) -> Path:
    path = folder / name
    path.write_text(head + textwrap.dedent(text), encoding="utf-8")
    return path


def load(path: Path | str) -> Expectations:
    return load_expectations(path, "mine", a_spec())


def entry(name: str, reason: str = "r") -> str:
    return f"- {{clause: {name}, reason: {reason}, link: 'https://x.org', kind: raised, case: {{}}}}\n"


def test_an_entry_is_read_with_its_place_and_given_to_the_engine(tmp_path: Path) -> None:
    found = load(write(tmp_path, GOOD))
    case = Case(parameters={"size": 3})
    place = "mine.yaml:3"
    assert found.entries == {
        "A-01": Entry("A-01", "known since long", "https://example.org/1", "wrong_value", case, place)
    }
    expected = found.expected("A-01")
    assert expected is not None
    assert (expected.kind, expected.case) == ("wrong_value", case)
    assert found.expected("A-02") is None


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("clause: A-01", "clause: A-10", 3, "there is no clause 'A-10' (nearest: "),
        ("clause: A-01", "clause: a1", 3, "must be a clause id"),
        ("reason: known since long", "reasons: known", 4, "unknown key 'reasons'"),
        ("reason: known since long", "reason: ''", 4, "text that is not empty"),
        ("link: https://example.org/1", "link: see there", 5, "an address"),
        ("kind: wrong_value", "kind: Wrong", 6, "kind is 'Wrong': it must be one of wrong_value, "),
        ("kind: wrong_value", "kind: suite_error", 6, "kind is 'suite_error': it must be one of"),
        ("kind: wrong_value", "kind: slow", 6, "it must be one of"),
        ("kind: wrong_value", "kind: 3", 6, "kind must be of type string"),
        ("{parameters: {size: 3}}", "{parameter: {size: 3}}", 7, "malformed case"),
        ("{parameters: {size: 3}}", "[1]", 7, "malformed case"),
        ("{parameters: {size: 3}}", "{program: {inputs: [{shape: [2], values: [1]}]}}", 7, "1 values for shape (2,)"),
        ("reason: known since long", "kind: raised", 6, "the key 'kind' is given twice"),
        ("reason: known since long", "reason: *a", 4, "alias"),
        ("reason: known since long", "reason: 'open", 4, "not YAML"),
        ("entries:", "entry:", 2, "unknown key 'entry' (nearest: entries)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(GradspecError) as caught:
        load(path)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    place = caught.value.line
    assert place == line or (words == "not YAML" and place is not None), text


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("gradspec-expectations: 2\n", "reads 1: install a newer one"),
        ("gradspec-expectations: one\n", "must be 1"),
        ("", "missing"),
        ("- a\n", "mapping"),
    ],
)
def test_the_head_says_the_version_of_the_format(tmp_path: Path, head: str, words: str) -> None:
    body = "" if head.startswith("-") else "entries: []\n"
    with pytest.raises(GradspecError, match=words):
        load(write(tmp_path, body, head=head))


def test_a_clause_may_be_listed_once(tmp_path: Path) -> None:
    path = write(tmp_path, "entries:\n" + entry("A-01") + entry("A-02") + entry("A-01"))
    with pytest.raises(GradspecError, match=r"mine.yaml:5: A-01 has an entry already, at mine.yaml:3"):
        load(path)


def test_a_later_file_takes_the_place_of_an_entry_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "entries:\n" + entry("A-01", "old") + entry("A-02", "old"), "sub/base.yaml")
    path = write(tmp_path, "extends: [sub/base.yaml]\nentries:\n" + entry("A-02", "new"))
    found = load(path).entries
    assert {name: (e.reason, e.place) for name, e in found.items()} == {
        "A-01": ("old", "base.yaml:3"),
        "A-02": ("new", "mine.yaml:4"),
    }


def test_files_cannot_extend_each_other_in_a_circle_nor_files_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, "extends: [b.yaml]\nentries: []\n", "a.yaml")
    write(tmp_path, "entries: []\nextends: [a.yaml]\n", "b.yaml")
    with pytest.raises(GradspecError, match=r"b.yaml:3: extends 'a.yaml', which extends this file again"):
        load(tmp_path / "a.yaml")
    with pytest.raises(GradspecError, match=r"c.yaml:2: extends 'none.yaml', which does not exist"):
        load(write(tmp_path, "extends: [none.yaml]\nentries: []\n", "c.yaml"))
    with pytest.raises(GradspecError, match=r"d.yaml:2: no expectation file is called 'shipped:none'"):
        load(write(tmp_path, "extends: ['shipped:none']\nentries: []\n", "d.yaml"))
    with pytest.raises(GradspecError, match=r"none.yaml: the expectation file does not exist"):
        load(tmp_path / "none.yaml")


def test_the_shipped_file_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "entries:\n" + entry("A-01"))
    monkeypatch.setattr(expectations, "SHIPPED", tmp_path)
    assert load_expectations(None, "mine", a_spec()).entries["A-01"].place == "shipped:mine:3"
    assert load_expectations("shipped:mine", "other", a_spec()).entries.keys() == {"A-01"}
    assert load_expectations(None, "other", a_spec()).entries == {}


@pytest.mark.parametrize("name", ["torch", "refgrad"])
def test_shipped_files_can_be_read(name: str) -> None:
    from gradspec.spec import load_spec  # noqa: PLC0415 - a card being written must not break the tests above

    assert (expectations.SHIPPED / f"{name}.yaml").is_file()
    assert isinstance(load_expectations(None, name, load_spec()), Expectations)


def test_divergences_and_expectations_of_torch_name_each_other() -> None:
    def one(name: str) -> Any:
        return Entry(name, "r", "https://x.org", "raised", Case(), "torch.yaml:3")

    there = {"A-02": SimpleNamespace(path="spec/divergences.md", line=9)}
    spec = a_spec(**cast("Any", there))
    listed = Expectations({name: one(name) for name in ("A-01", "B-01")})
    assert check_divergences(spec, listed) == [
        "torch.yaml:3: A-01 is MUST and has no entry in spec/divergences.md",
        "spec/divergences.md:9: A-02 has no entry in torch's expectation file",
    ]
    assert check_divergences(spec, Expectations({"A-02": one("A-02"), "B-01": one("B-01")})) == []
