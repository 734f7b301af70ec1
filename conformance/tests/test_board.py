"""The board: progress and the finished record, in 80 columns and without colour."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from gradspec.adapter import Adapter
from gradspec.programs.program import Case, Input, Program, Root, Step
from gradspec.report.board import Board, make_console, plain, show_record
from gradspec.report.expectations import Entry, Expectations
from gradspec.report.failures import failure_lines, program_lines, replay_line
from gradspec.report.record import Qualification, Record, Run, build_record
from gradspec.report.verdicts import Lost
from gradspec.spec import Clause, Feature, Spec

SQUARE = Program(
    (Input((2,), (1.0, 2.0), requires_grad=True),),
    (Step("mul", (0, 0)), Step("sum", (1,), (("dim", None), ("keepdim", False)))),
    (Root(1, (1.0, -0.5)), Root(2)),
)
CASE = Case(SQUARE, (("backward", 0),), {"times": 2})


class Mine(Adapter):
    name = "mine"
    features = frozenset({"base"})

    def version(self) -> str:
        return "1.2 [bold]\x1b[31m"


def card(name: str, **given: Any) -> Clause:
    common: dict[str, Any] = {"requirement": "MUST", "feature": "base", "level": "L0", "source": "here"}
    common |= {"status": "stable", "sentence": f"The sentence of {name} MUST hold.", "example": "", "path": "spec/A.md"}
    common |= {"id": name, "chapter": name.partition("-")[0], "number": 1, "title": f"title {name}", "line": 1}
    return Clause(**common | {"example_line": 1} | given)


CARDS = (
    card("A-01"),
    card("A-02", depends=("A-01",)),
    card("A-03", requirement="SHOULD"),
    card("A-04", status="pending", pending_reason="hooks"),
    card("B-01", feature="other"),
    card("B-02"),
    card("B-03"),
    card("B-04", status="disputed"),
    card("B-05", depends=("A-02",)),
)
FEATURES = {name: Feature(name, "L0", name) for name in ("base", "other")}
SPEC = Spec(Path(), {}, FEATURES, {c.id: c for c in CARDS}, {}, {})
LISTED = Expectations({"B-02": Entry("B-02", "known", "https://x.org", "wrong_value", Case(), "mine.yaml:3")})


def row(name: str, **given: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"examples": 8, "assertions": 8, "discards": {}, "expected_hits": 0, "pinned": None}
    return {"item": f"t[{name}]", "clause": name, "failure": None, "seconds": 0.1} | fields | given


def failure(**given: Any) -> dict[str, Any]:
    fields = {"kind": "wrong_value", "message": "m", "expected": "[2.0, 4.0]", "found": "[red]evil[/red]\x1b[2J\nline"}
    return (
        fields
        | {"case": CASE.to_json(), "trace": [], "oracle": "the dual oracle", "other": "differences agree"}
        | given
    )


def rows() -> list[dict[str, Any]]:
    failed = [row(name, failure=failure()) for name in ("A-01", "A-02", "B-05")]
    pinned = {"failure": failure(), "discards": {}}
    return [*failed, row("A-03"), row("B-02", pinned=pinned), row("B-03"), row("B-04", failure=failure())]


def record_of(some: list[dict[str, Any]], **given: Any) -> Record:
    run = given.pop("run", Run("mine", 3, "default", 100))
    names = given.pop("names", list(SPEC.clauses))
    return build_record(SPEC, names, Mine(), run, some, expectations=LISTED, **given)


def shown(record: Record, width: int = 80, how: str = "all") -> str:
    stream = io.StringIO()
    show_record(record, SPEC, make_console(stream, width), how)
    return stream.getvalue()


def test_a_failed_run_is_told_in_80_columns_without_colour() -> None:
    text = shown(record_of(rows(), notes=["odd"], problems=["the disk is full"]))
    lines = text.splitlines()
    assert lines[0] == "mine 1.2 [bold] [31m: 7 / 9 clauses declared, does not conform"
    last = "mine 1.2 [bold] [31m does not conform: 3 MUST clauses failed, 1 problem. Exit status 1."
    assert " ".join(text.split()).endswith(last)
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in text
    for part in ("expected failures (1): B-02", "pending (1): A-04", "disputed (1): B-04", "note: odd"):
        assert part in lines
    assert "unsupported (1): feature other (1)" in lines
    assert "problem: the disk is full" in lines


def test_a_failure_is_told_with_all_that_is_known_and_what_follows_from_it() -> None:
    text = shown(record_of(rows()))
    block = text[text.index("FAILED A-01") : text.index("expected failures")]
    assert block.splitlines() == [
        "FAILED A-01 · title A-01 (MUST, L0)",
        "  The sentence of A-01 MUST hold.",
        "    x1 = tensor([1.0, 2.0], requires_grad); y1 = mul(x1, x1)",
        "    y2 = sum(y1, dim=None, keepdim=False); root y1, seed [1.0, -0.5]; root y2",
        "    backward(0); with times = 2",
        "  expected: [2.0, 4.0]",
        "  found:    [red]evil[/red] [2J line",
        "  judged by the dual oracle; differences agree",
        "  replay:   gradspec check mine --clause A-01 --seed 3",
        "  also fails: A-02, B-05",
        "",
    ]
    assert "FAILED A-02" not in text


def test_long_texts_go_on_with_an_indent() -> None:
    text = shown(record_of([row("A-01", failure=failure(expected="word " * 30))], names=["A-01"]))
    (first, second, third) = text[text.index("  expected:") : text.index("  found:")].splitlines()
    assert first.startswith("  expected: word word")
    assert second.startswith("    word word")
    assert max(len(line) for line in (first, second, third)) <= 80


def test_the_table_counts_by_chapter() -> None:
    cells = [line.split() for line in shown(record_of(rows())).splitlines()]
    assert ["chapter", "passed", "failed", "expected", "unsupported", "other", "declared/total"] in cells
    assert ["A", "1", "2", "0", "0", "1", "3/4"] in cells
    assert ["B", "1", "1", "1", "1", "1", "4/5"] in cells
    assert ["all", "2", "3", "1", "1", "2", "7/9"] in cells


def test_a_run_that_conforms_ends_with_that_word() -> None:
    text = shown(
        record_of([row("A-01"), row("B-02", pinned={"failure": failure(), "discards": {}})], names=["A-01", "B-02"])
    )
    assert "2 / 2 clauses declared, conforms\n" in text
    assert "conforms to what it declares (2 of 2 clauses), with 1 listed failure. Exit" in " ".join(text.split())
    assert text.rstrip().endswith("status 0.")
    assert "FAILED" not in text


def test_errors_of_a_run_are_told_like_failures() -> None:
    passing = row("B-02", pinned={"failure": None, "discards": {}})
    silent = row("A-03", assertions=0)
    lost = Lost("t[A-01]", "A-01", "crashed", "signal 11")
    text = shown(record_of([passing, silent], names=["A-01", "A-03", "B-02"], lost=[lost]))
    assert "CRASHED A-01 · title A-01 (MUST, L0)" in text
    assert "(the case is not known)" in text
    assert "NOT EXERCISED A-03" in text
    assert "8 examples ran and none came to an assertion" in text
    assert "UNEXPECTED PASS B-02" in text
    reasons = "1 MUST clause failed, 1 clause passed unexpectedly, 1 clause not exercised. Exit status 1."
    assert " ".join(text.split()).endswith(reasons)


def test_an_interrupted_run_says_so() -> None:
    record = record_of([row("A-01")], run=Run("mine", 0, "default", 100, interrupted=True))
    text = " ".join(shown(record).split())
    assert "not reached (6): A-02, A-03, B-02, B-03, B-04, B-05" in text
    assert "NOT EXERCISED" not in text
    assert "does not conform (incomplete)" in text
    assert text.endswith("Interrupted: 1 of 7 declared clauses were judged, the record is incomplete. Exit status 130.")


def test_operations_that_fail_alone_are_named() -> None:
    failed = {"cat": [{"class": "0-d", "expected": "1", "found": "2"}]}
    text = shown(record_of(rows(), qualification=Qualification(void=True, failed=failed)))
    assert "operations that fail alone (1): cat" in text
    assert "qualification is void" in text


def test_progress_is_plain_lines_where_nothing_can_be_redrawn() -> None:
    names = [f"A-{n:02}" for n in range(1, 51)]
    spec = Spec(Path(), {}, FEATURES, {name: card(name) for name in names}, {}, {})
    stream = io.StringIO()
    items = [(f"{test}[{name}]", name) for name in names for test in ("t", "u")]
    with Board("mine 1", items, spec, make_console(stream, 80)) as board:
        for item, name in items:
            board.done(row(name, item=item, failure=failure() if item == "u[A-02]" else None))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("mine 1: 5/50 clauses, 1 failed, 4 passed; A, 0 s, about ")
    assert lines[-1] == "mine 1: 50/50 clauses, 1 failed, 49 passed; A, 0 s"


def test_an_item_that_reports_twice_counts_once() -> None:
    with Board("mine", [("t[A-01]", "A-01"), ("u[A-01]", "A-01")], SPEC, make_console(io.StringIO())) as board:
        board.done(row("A-01"))
        board.done(row("A-01"))
        assert board.status().plain.startswith("mine: 0/1 clauses; A, ")
        board.done(row("A-01", item="u[A-01]"))
        assert board.status().plain.startswith("mine: 1/1 clauses, 1 passed; A, ")


def test_a_long_replay_line_stays_one_line() -> None:
    run = Run(f"stdio:run {'x' * 80}", 0, "default", 100)
    lines = shown(record_of([row("A-01", failure=failure())], names=["A-01"], run=run)).splitlines()
    assert f"  replay:   gradspec check 'stdio:run {'x' * 80}' --clause A-01 --seed 0" in lines


def test_progress_knows_listed_failures_and_lost_items() -> None:
    stream = io.StringIO()
    names = ("A-01", "A-03", "B-02")
    with Board("mine", [(f"t[{n}]", n) for n in names], SPEC, make_console(stream), LISTED) as board:
        board.done(row("B-02", pinned={"failure": failure(), "discards": {}}))
        board.lost("t[A-01]", "timed_out")
        board.lost("never selected", "crashed")
        board.done(row("A-03"))
    assert "3/3 clauses, 1 timed out, 1 expected, 1 passed; A" in stream.getvalue()


def test_a_terminal_is_redrawn_and_left_clean() -> None:
    stream = io.StringIO()
    console = make_console(stream, 80)
    console._force_terminal = True
    console.is_interactive = True
    with Board("mine", [("t[A-01]", "A-01")], SPEC, console) as board:
        board.done(row("A-01"))
    assert "1/1 clauses, 1 passed" in stream.getvalue()
    assert stream.getvalue().rstrip("\n").endswith("\x1b[2K")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_log_in_ascii_does_not_end_the_run(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_record(record_of(rows()), SPEC, make_console(stream, 80))
    stream.flush()
    assert b"FAILED A-01" in stream.buffer.getvalue()


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = make_console(stream := io.StringIO())
    console.print("x", style="bold red")
    assert (console.is_interactive, stream.getvalue()) == (False, "x\n")
    assert plain("a\x07b\u202ec\nd[bold]") == "a b c d[bold]"


def test_only_failures_or_only_the_last_sentence_are_shown() -> None:
    record = record_of(rows(), notes=["odd"], problems=["the disk is full"])
    failures, quiet = shown(record, how="failures"), " ".join(shown(record, how="quiet").split())
    assert failures.startswith("FAILED A-01 · title A-01 (MUST, L0)\n")
    assert "problem: the disk is full\n" in failures
    for left_out in ("declared/total", "pending (1)", "note: odd"):
        assert left_out not in failures
    assert " ".join(failures.split()).endswith(quiet)
    assert quiet == "mine 1.2 [bold] [31m does not conform: 3 MUST clauses failed, 1 problem. Exit status 1."


def test_many_reasons_of_what_is_unsupported_are_folded() -> None:
    many = [card(f"C-{n:02}", feature=f"f{n // 2}") for n in range(1, 17)]
    features = {f"f{n}": Feature(f"f{n}", "L0", "") for n in range(9)} | FEATURES
    spec = Spec(Path(), {}, features, {c.id: c for c in (card("A-01"), *many)}, {}, {})
    record = build_record(spec, list(spec.clauses), Mine(), Run("mine", 3, "default", 100), [row("A-01")])
    text = " ".join(shown(record).split())
    told = ", ".join(f"feature f{n} (2)" for n in range(1, 7))
    assert f"unsupported (16): {told}, and 3 more reasons (4)" in text


def test_a_dumb_terminal_has_neither_colour_nor_redrawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with Board("mine", [("t[A-01]", "A-01")], SPEC, make_console(stream, 80)) as board:
        board.done(row("A-01"))
    assert stream.getvalue() == "mine: 1/1 clauses, 1 passed; A, 0 s\n"


def test_programs_are_short_lines() -> None:
    assert program_lines(CASE) == [
        "x1 = tensor([1.0, 2.0], requires_grad); y1 = mul(x1, x1); y2 = sum(y1, dim=None, keepdim=False)",
        "root y1, seed [1.0, -0.5]; root y2; backward(0); with times = 2",
    ]
    assert program_lines(Case(SQUARE)) == [
        "x1 = tensor([1.0, 2.0], requires_grad)",
        "y1 = mul(x1, x1)",
        "y2 = sum(y1, dim=None, keepdim=False)",
        "root y1, seed [1.0, -0.5]",
        "root y2",
    ]
    assert program_lines(Case()) == []
    assert program_lines(Case(commands=(("zero_grad",), ("assign", 1, None)))) == ["zero_grad()", "assign(1, None)"]


def test_shapes_types_and_several_results_can_be_read() -> None:
    inputs = (Input((0, 3), ()), Input((), (1 + 2j,), "complex128"), Input((2, 2), (1.0, math.nan, 3.0, 4.0)))
    split = Step("split", (2,), (("dim", 0), ("split_size", 1)))
    assert program_lines(Case(Program(inputs, (split,), (Root(4),)).check())) == [
        "x1 = tensor([] of shape [0, 3])",
        "x2 = tensor((1+2j), complex128)",
        "x3 = tensor([[1.0, nan], [3.0, 4.0]])",
        "y1, y2 = split(x3, dim=0, split_size=1)",
        "root y2",
    ]


def test_long_programs_keep_their_end_and_say_what_is_left_out() -> None:
    steps = tuple(Step("exp", (n,)) for n in range(60))
    lines = program_lines(Case(Program((Input((), (1.0,)),), steps, (Root(60),))), width=40)
    assert len(lines) == 6
    assert all(len(line) <= 40 for line in lines)
    assert lines[-1].endswith("root y60")
    told = sum(line.count(" = ") + line.count("root") for line in lines)
    assert lines[-2] == f"… {62 - told} more statements"
    (wide,) = program_lines(Case(Program((Input((100,), (1.0,) * 100),))), width=30)
    assert wide == "x1 = tensor([1.0, 1.0, 1.0, 1…"


def test_a_case_that_cannot_be_read_does_not_stop_the_report() -> None:
    entry = {"failure": failure(case={"program": 3}, replay="again", flaky=True)}
    lines = failure_lines(entry, "")
    assert lines[0].startswith("  (the case cannot be shown: ")
    assert "flaky: the same case passed when it was run again" in lines


def test_the_replay_line_can_be_pasted() -> None:
    assert replay_line("torch", "A-01", 0) == "gradspec check torch --clause A-01 --seed 0"
    assert replay_line("stdio:run x", "A-01", 7, "deep") == (
        "gradspec check 'stdio:run x' --clause A-01 --seed 7 --profile deep"
    )
