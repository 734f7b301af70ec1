"""From rows to verdicts: every verdict, chains of consequences, problems, totals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from gradspec.programs.program import Case
from gradspec.report.expectations import Entry, Expectations
from gradspec.report.verdicts import FAILURES, VERDICTS, Declarations, Judgement, Lost, judge_run, missing, outcome
from gradspec.spec import Clause, Feature, Spec

OFFERED = Declarations(
    features=frozenset({"base", "more"}),
    operations=frozenset({"mul"}),
    keywords=frozenset({"backward.inputs"}),
    dtypes=("float64",),
    devices=("cpu",),
    max_rank=1,
    distribution="mine",
)


def card(name: str, **given: Any) -> Clause:
    chapter, _, number = name.partition("-")
    fields: dict[str, Any] = {
        "id": name,
        "chapter": chapter,
        "number": int(number),
        "title": f"title of {name}",
        "requirement": "MUST",
        "feature": "base",
        "level": "L0",
        "source": "here",
        "status": "stable",
        "sentence": f"{name} MUST hold.",
        "example": "",
        "path": "spec/A.md",
        "line": 1,
        "example_line": 1,
    }
    return Clause(**fields | given)


def spec_of(*cards: Clause) -> Spec:
    features = {name: Feature(name, "L0", name) for name in ("base", "more", "other")}
    return Spec(root=None, ladder={}, features=features, clauses={c.id: c for c in cards}, omitted={}, divergences={})  # type: ignore[arg-type] # has no files


def row(name: str, test: str = "t", **given: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"examples": 8, "assertions": 8, "discards": {}, "expected_hits": 0, "pinned": None}
    return {"item": f"{test}[{name}]", "clause": name, "failure": None, "seconds": 0.1} | fields | given


def failure(kind: str = "wrong_value") -> dict[str, Any]:
    return {"kind": kind, "message": f"it is {kind}", "expected": "1", "found": "2", "case": {}, "trace": []}


def failed(name: str, kind: str = "wrong_value", **given: Any) -> dict[str, Any]:
    return row(name, failure=failure(kind), **given)


def listed(name: str = "A-01", kind: str = "wrong_value") -> Expectations:
    return Expectations({name: Entry(name, "known", "https://x.org", kind, Case(), "mine.yaml:4")})


def judged(*rows: dict[str, Any], cards: tuple[Clause, ...] = (card("A-01"),), **given: Any) -> Judgement:
    return judge_run(spec_of(*cards), [c.id for c in cards], OFFERED, rows, **given)


def verdict(*rows: dict[str, Any], **given: Any) -> tuple[str, str]:
    (clause,) = judged(*rows, **given).clauses
    return clause["verdict"], clause["reason"]


PINNED = {"failure": failure(), "discards": {}}
PINNED_PASSES: dict[str, Any] = {"failure": None, "discards": {}}
EVERY_VERDICT: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("passed", [row("A-01")], {}),
    ("failed", [failed("A-01")], {}),
    ("failed", [failed("A-01", assertions=0)], {}),
    ("crashed", [], {"lost": [Lost("t[A-01]", "A-01", "crashed", "signal 11")]}),
    ("timed_out", [], {"lost": [Lost("t[A-01]", "A-01", "timed_out", "no answer in 60 s")]}),
    ("not_exercised", [], {}),
    ("not_exercised", [row("A-01", examples=0, assertions=0, discards={"kink": 8})], {}),
    ("not_exercised", [row("A-01", assertions=0)], {}),
    ("not_exercised", [row("A-01", examples=0, assertions=0, discards={"kink": 1, "unsupported: x": 1})], {}),
    ("unsupported", [row("A-01", examples=0, assertions=0, discards={"unsupported: x": 1})], {}),
    ("unsupported", [row("A-01")], {"cards": (card("A-01", feature="other"),)}),
    ("unsupported", [failed("A-01")], {"cards": (card("A-01", requirement="TORCH"),)}),
    ("expected", [row("A-01", pinned=PINNED)], {"expectations": listed()}),
    ("expected", [row("A-01", pinned=PINNED_PASSES, expected_hits=2)], {"expectations": listed()}),
    ("unexpected_pass", [row("A-01", pinned=PINNED_PASSES)], {"expectations": listed()}),
    ("failed", [row("A-01", pinned=PINNED)], {"expectations": listed(kind="raised")}),
    ("failed", [failed("A-01", "raised", pinned=PINNED)], {"expectations": listed()}),
    ("disputed", [row("A-01")], {"cards": (card("A-01", status="disputed"),)}),
    ("disputed", [failed("A-01")], {"cards": (card("A-01", status="disputed"),)}),
    ("pending", [], {"cards": (card("A-01", status="pending", pending_reason="hooks"),)}),
    ("untested", [], {"cards": (card("A-01", requirement="MAY", untested="no way"),)}),
]


@pytest.mark.parametrize(("expected", "rows", "given"), EVERY_VERDICT)
def test_every_verdict(expected: str, rows: list[dict[str, Any]], given: dict[str, Any]) -> None:
    assert verdict(*rows, **given)[0] == expected


def test_the_table_above_reaches_every_verdict() -> None:
    assert {entry[0] for entry in EVERY_VERDICT} == set(VERDICTS)


def test_reasons_name_what_happened() -> None:
    nothing: dict[str, Any] = {"examples": 0, "assertions": 0}
    assert verdict(row("A-01", **nothing, discards={"kink": 2, "building mul: no": 6}))[1] == (
        "every example was discarded: building mul: no (6), kink (2)"
    )
    assert verdict(row("A-01", **nothing, discards={"unsupported: operation cat": 1}))[1] == "operation cat"
    assert verdict(row("A-01", assertions=0))[1] == "8 examples ran and none came to an assertion"
    assert verdict(row("A-01", **nothing))[1] == "no example was drawn"
    assert verdict(failed("A-01", "raised"), expectations=listed())[1] == "raised, listed as failing with wrong_value"
    disputed = (card("A-01", status="disputed"),)
    assert verdict(failed("A-01"), cards=disputed)[1] == "failed: wrong_value"
    assert verdict(row("A-01", pinned=PINNED), expectations=listed())[1] == "known"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"feature": "other"}, "feature other"),
        ({"needs": ("more", "other")}, "feature other"),
        ({"needs": ("backward.inputs", "backward.retain_graph")}, "keyword backward.retain_graph"),
        ({"needs": ("op:mul", "op:cat")}, "operation cat"),
        ({"needs": ("dtype:float64", "dtype:float32")}, "dtype float32"),
        ({"needs": ("rank:1",)}, ""),
        ({"needs": ("rank:2",)}, "rank 2 (the highest is 1)"),
        ({"requirement": "TORCH"}, "a detail of torch itself"),
        ({"since": "9.0.0"}, ""),
    ],
)
def test_missing_names_what_is_not_declared(given: dict[str, Any], words: str) -> None:
    assert missing(card("A-01", **given), OFFERED) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"requirement": "TORCH", "verified": ("2.9.0", "2.13.0")}, ""),
        ({"requirement": "TORCH", "verified": ("2.9.0",)}, "verified on torch 2.9.0 only"),
        ({"since": "2.9.0", "until": "2.13.0"}, ""),
        ({"since": "2.14.0"}, "torch 2.14.0 or later"),
        ({"until": "2.9"}, "torch 2.9 or earlier"),
    ],
)
def test_clauses_that_hold_at_some_versions_of_torch(given: dict[str, Any], words: str) -> None:
    torch = Declarations(OFFERED.features, frozenset(), frozenset(), (), (), 1, "torch", "2.13.0+cpu")
    assert missing(card("A-01", **given), torch) == words


def test_of_several_rows_the_worst_decides_in_any_order() -> None:
    unsupported = row("A-01", "c", examples=0, assertions=0, discards={"unsupported: x": 1})
    rows = [row("A-01", "a"), failed("A-01", test="b"), failed("A-01", "raised", test="d"), unsupported]
    found = [judged(*order).clauses for order in itertools.permutations(rows)]
    assert all(clauses == found[0] for clauses in found)
    assert (found[0][0]["verdict"], found[0][0]["failure"]["item"]) == ("failed", "b[A-01]")
    assert (found[0][0]["examples"], found[0][0]["discards"]) == (24, {"unsupported: x": 1})
    assert verdict(row("A-01", "a"), unsupported) == ("passed", "c[A-01]: unsupported: x")
    assert verdict(row("A-01", "a"), row("A-01", "b", assertions=0))[0] == "not_exercised"


def test_a_pinned_case_speaks_for_one_test_of_its_clause() -> None:
    stranger = row("A-01", "b", pinned={"failure": failure("suite_error"), "discards": {}})
    passing = row("A-01", "c", pinned=PINNED_PASSES)
    assert verdict(row("A-01", "a", pinned=PINNED), stranger, passing, expectations=listed())[0] == "expected"
    assert verdict(stranger, passing, expectations=listed())[0] == "unexpected_pass"
    drawn = failed("A-01", "suite_error", test="b", pinned=PINNED)
    assert verdict(row("A-01", "a", pinned=PINNED), drawn, expectations=listed())[0] == "failed"


@pytest.mark.parametrize("given", [{}, {"requirement": "SHOULD"}, {"status": "disputed"}])
def test_a_fault_of_the_suite_is_a_problem_whatever_the_requirement(given: dict[str, Any]) -> None:
    cards = (card("A-01", **given), card("B-01"))
    found = judged(failed("A-01", "suite_error"), row("B-01"), cards=cards)
    assert (found.problems, found.conforms) == (["suite error in t[A-01]: it is suite_error"], False)


def test_a_pinned_case_that_no_test_can_run_is_a_problem_at_its_place() -> None:
    cards = (card("A-01", requirement="SHOULD"), card("B-01"))
    stranger = row("A-01", pinned={"failure": failure("suite_error"), "discards": {}})
    found = judged(stranger, row("B-01"), cards=cards, expectations=listed())
    said = "mine.yaml:4: the pinned case of A-01 cannot be run: it is suite_error"
    assert (found.problems, found.conforms) == ([said], False)
    hits, passes = stranger | {"expected_hits": 2}, row("A-01", "u", pinned=PINNED_PASSES)
    assert said in judged(hits, passes, cards=cards, expectations=listed()).problems
    reads = row("A-01", "u", pinned=PINNED)
    found = judged(stranger, reads, row("B-01"), cards=cards, expectations=listed())
    assert (found.problems, found.conforms) == ([], True)


def test_a_run_that_judged_nothing_does_not_conform() -> None:
    cards = (card("A-01", feature="other"), card("A-02", status="pending", pending_reason="later"))
    found = judged(cards=cards)
    assert (found.problems, found.conforms) == (["no selected clause could be judged"], False)
    assert judged(cards=cards, interrupted=True).problems == []


def test_consequences_follow_the_chain_and_keep_the_verdict() -> None:
    cards = (
        card("A-01"),
        card("A-02", depends=("A-01",)),
        card("A-03", depends=("A-02",)),
        card("A-04", depends=("A-03",)),
        card("A-05", depends=("A-02",)),
    )
    found = judged(failed("A-01"), row("A-02"), failed("A-03"), failed("A-04"), row("A-05"), cards=cards)
    chains = {clause["id"]: clause["consequence_of"] for clause in found.clauses}
    assert chains == {"A-01": [], "A-02": [], "A-03": ["A-01"], "A-04": ["A-01", "A-03"], "A-05": []}
    assert [c["verdict"] for c in found.clauses] == ["failed", "passed", "failed", "failed", "passed"]


def test_an_expected_failure_hides_no_other() -> None:
    cards = (card("A-01"), card("A-02", depends=("A-01",)))
    found = judged(row("A-01", pinned=PINNED), failed("A-02"), cards=cards, expectations=listed())
    assert found.clauses[1]["consequence_of"] == []
    assert not found.conforms


@pytest.mark.parametrize(
    ("given", "conforms", "strictly"),
    [
        ({}, False, False),
        ({"status": "provisional"}, False, False),
        ({"requirement": "SHOULD"}, True, False),
        ({"requirement": "MAY"}, True, True),
        ({"status": "disputed"}, True, True),
        ({"feature": "other"}, True, True),
    ],
)
def test_which_failures_break_conformance(given: dict[str, Any], conforms: bool, strictly: bool) -> None:
    cards = (card("A-01", **given), card("B-01"))
    for strict, expected in ((False, conforms), (True, strictly)):
        assert judged(failed("A-01"), row("B-01"), cards=cards, strict=strict).conforms is expected


def test_errors_of_the_run_break_conformance_whatever_the_requirement() -> None:
    def conforms(first: dict[str, Any], **given: Any) -> bool:
        found = judged(first, row("B-01"), cards=(card("A-01", requirement="MAY"), card("B-01")), **given)
        assert found.problems == given.get("problems", [])
        return found.conforms

    assert conforms(row("A-01"))
    assert not conforms(row("A-01", assertions=0))
    assert not conforms(row("A-01", pinned=PINNED_PASSES), expectations=listed())
    assert not conforms(row("A-01"), problems=["the disk is full"])
    assert not conforms(row("A-01"), interrupted=True)
    assert conforms(row("A-01", pinned=PINNED), expectations=listed())


def test_an_entry_for_an_unsupported_clause_is_a_problem_for_an_unselected_one_it_is_not() -> None:
    cards = (card("A-01", feature="other"), card("B-01"))
    found = judged(row("B-01"), cards=cards, expectations=listed())
    assert found.problems == [
        "mine.yaml:4: unmatched expectation: A-01 is unsupported here (feature other); take the entry away"
    ]
    assert not found.conforms
    alone = judge_run(spec_of(*cards), ["B-01"], OFFERED, [row("B-01")], expectations=listed())
    assert (alone.problems, alone.conforms) == ([], True)


def test_selected_and_reported_items_must_be_the_same() -> None:
    pairs = [("t[A-01]", "A-01"), ("u[A-01]", "A-01")]
    absent = judged(row("A-01"), items=pairs)
    assert absent.problems == ["u[A-01] was selected and did not report: the record is not whole"]
    strange = judged(row("A-01"), row("A-01", "v"), items=pairs[:1])
    assert strange.problems == ["v[A-01] was reported without being selected: the record is not whole"]
    twice = judged(row("A-01"), row("A-01"), items=pairs[:1])
    assert twice.problems == ["t[A-01] was reported twice: the record is not whole"]
    assert [absent.complete, strange.complete, twice.complete] == [False, False, False]
    stopped = judged(row("A-01"), items=pairs, interrupted=True)
    assert (stopped.problems, stopped.complete) == ([], False)
    lost = judged(row("A-01"), items=pairs, lost=[Lost("u[A-01]", "A-01", "crashed", "signal 11")])
    assert (lost.problems, lost.complete) == ([], True)


def test_a_declared_feature_without_an_assertion_is_a_problem_where_all_its_clauses_were_selected() -> None:
    more = card("A-02", feature="more", needs=("op:cat",))
    cards = (card("A-01"), more, card("A-03", feature="more", status="pending", pending_reason="later"))
    found = judged(row("A-01"), cards=cards)
    assert found.features == {"base": 8, "more": 0}
    (problem,) = found.problems
    assert "the feature more is declared and no assertion" in problem
    some = judge_run(spec_of(*cards, card("A-04", needs=("more",))), [c.id for c in cards], OFFERED, [row("A-01")])
    assert some.problems == []
    torch_only = (card("A-01"), card("A-02", feature="more", requirement="TORCH"))
    assert judged(row("A-01"), cards=torch_only).problems == []


def test_totals_have_denominators() -> None:
    cards = (card("A-01"), card("A-02", requirement="MAY", feature="other"), card("B-01"))
    found = judged(row("A-01"), failed("B-01"), cards=cards).totals
    assert (found["declared"], found["total"]) == (2, 3)
    assert {k: v for k, v in found["by_verdict"].items() if v} == {"passed": 1, "failed": 1, "unsupported": 1}
    assert (found["by_chapter"]["A"]["declared"], found["by_chapter"]["A"]["total"]) == (1, 2)
    assert found["by_requirement"]["MUST"]["by_verdict"]["failed"] == 1
    assert sum(bucket["total"] for bucket in found["by_requirement"].values()) == found["total"]


def test_the_judgement_does_not_depend_on_the_order_of_the_rows() -> None:
    cards = tuple(card(f"A-{n:02}", depends=(f"A-{n - 1:02}",) if n > 1 else ()) for n in range(1, 9))
    rows = [failed(c.id) if c.number % 3 else row(c.id) for c in cards]
    orders = (rows, rows[::-1], rows[3:] + rows[:3], rows[1::2] + rows[::2])
    found = [judged(*order, cards=cards) for order in orders]
    assert all(one == found[0] for one in found)


def test_one_row_has_an_outcome_of_its_own() -> None:
    assert outcome(row("A-01")) == ("passed", "")
    assert outcome(failed("A-01")) == ("failed", "wrong_value")
    assert outcome(Lost("t", "A-01", "crashed", "signal 11").row()) == ("crashed", "signal 11")
    assert set(VERDICTS) > FAILURES
