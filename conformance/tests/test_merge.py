"""Shards: what falls to which, and that merged shards are the record of one run; whatever does not belong together."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gradspec import cli
from gradspec.adapter import Adapter
from gradspec.engine import stable_hash
from gradspec.errors import GradspecError
from gradspec.options import part_of, read_shard, resolve
from gradspec.programs.program import Case
from gradspec.report.board import make_console, show_record
from gradspec.report.expectations import Entry, Expectations
from gradspec.report.merge import merge, merge_files
from gradspec.report.record import (
    Qualification,
    Record,
    Run,
    Selection,
    build_record,
    read_record,
    same_apart_from_time,
    validate_record,
    write_record,
)
from gradspec.report.verdicts import NOTHING_JUDGED, STOPPED, Declarations, missing
from gradspec.spec import load_spec
from gradspec.suite.support import suite_tests

SPEC = load_spec()
ITEMS = sorted((test.item(clause), clause) for test in suite_tests() for clause in test.clauses)


class Mine(Adapter):
    name = "mine"
    features = frozenset(
        name for _, clause in ITEMS for name in (SPEC.clauses[clause].feature, *SPEC.clauses[clause].needs)
    ).intersection(SPEC.features)
    operations = frozenset({"mul", "sum"})
    max_rank = 3

    def version(self) -> str:
        return "1.2"


OFFERED = Declarations.of(Mine())


def row(item: str, clause: str, **given: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"discards": {}, "expected_hits": 0, "pinned": None, "failure": None}
    return {"item": item, "clause": clause, "examples": 8, "assertions": 9, "seconds": 0.5} | empty | given


def failure(kind: str = "wrong_value") -> dict[str, Any]:
    case = {"parameters": {"x": 1}}
    return {"kind": kind, "message": "at 0x7f0000001", "expected": "1", "found": "2", "case": case, "trace": []}


def record_of(
    part: str | None = None, *, failing: Iterable[str] = (), without: Iterable[str] = (), **given: Any
) -> Record:
    """The record of a run, or of a part of it: every item passes but those of the clauses named as failing."""
    adapter, selection = given.pop("adapter", Mine()), given.pop("selection", Selection())
    options = resolve("mine", shard=part, **vars(selection))
    run = Run("/home/me/mine.py", 3, "smoke", 8, selection, started="later", workers=2, shard=options.shard)
    run = replace(run, **given.pop("run", {}))
    mine = [(item, name) for item, name in ITEMS if name in options.selected and SPEC.clauses[name].status != "pending"]
    rows = [row(*pair, failure=failure() if pair[1] in failing else None) for pair in mine if pair[1] not in without]
    return build_record(SPEC, options.selected, adapter, run, given.pop("rows", rows), items=mine, **given)


def shards(of: int = 3, **given: Any) -> dict[str, Record]:
    """All parts of a run, the last first, by the names of files."""
    return {f"s{n}.json": record_of(f"{n}/{of}", **copy.deepcopy(given)) for n in range(of, 0, -1)}


# --- what falls to which ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (text, f"--shard {text}: write I/N")
        for text in ("0/3", "5/4", "a/b", "1/0", "1", "-1/3", "1/2/3", "1/1000000", "")
    ],
)
def test_what_names_no_shard_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(GradspecError) as caught:
        resolve("refgrad", shard=text)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_shards_are_read() -> None:
    assert [read_shard(text) for text in ("1/1", " 2/3 ", "999999/999999")] == [(1, 1), (2, 3), (999999, 999999)]


def test_the_hash_of_an_id_never_changes() -> None:
    assert stable_hash("") == 0xE3B0C44298FC1C14  # the first bytes of SHA-256 of nothing
    assert [stable_hash(name) % 3 for name in ("RETAIN-01", "BACKWARD-20", "GRADSLOT-12")] == [2, 0, 0]


def test_every_clause_falls_to_one_shard_wherever_the_others_are() -> None:
    whole = tuple(SPEC.clauses)
    for of in (1, 2, 3, 7, 500):
        parts = [part_of(whole, (n, of)) for n in range(1, of + 1)]
        assert sorted(name for part in parts for name in part) == sorted(whole)
        assert [part_of(whole[::2], (n, of)) for n in range(1, of + 1)] == [
            tuple(name for name in part if name in whole[::2]) for part in parts
        ]
    assert part_of(whole, None) == whole


def test_an_empty_shard_is_no_problem_and_a_whole_run_without_a_verdict_is_one() -> None:
    selection = Selection(clause=("RETAIN-01",))
    parts = shards(selection=selection)
    empty = [part for part in parts.values() if not part["clauses"]]
    assert [(p["conforms"], p["complete"], p["exit_status"], p["problems"]) for p in empty] == [(True, True, 0, [])] * 2
    assert all(validate_record(part) == "" for part in parts.values())
    nothing = Mine()
    nothing.features = frozenset()
    assert record_of(adapter=nothing, selection=selection)["problems"] == [NOTHING_JUDGED]
    assert merge(shards(adapter=nothing, selection=selection), SPEC)["problems"] == [NOTHING_JUDGED]


# --- the whole ----------------------------------------------------------------------------------------------------


def test_merged_shards_are_the_record_of_one_run() -> None:
    given = {"failing": ("RETAIN-03", "BACKWARD-20", "GRADSLOT-12"), "notes": ["odd"]}
    whole = record_of(**given)
    for of in (1, 2, 3, 40):
        merged = merge(shards(of, **given), SPEC)
        assert same_apart_from_time(merged, whole)
        assert validate_record(merged) == ""
        assert merged["time"]["items"] == whole["time"]["items"]
        assert merged["environment"] == whole["environment"] | {"workers": 2 * of}


def test_a_consequence_is_found_across_shards() -> None:
    (first, second) = next(
        (card.id, other)
        for card in SPEC.clauses.values()
        for other in card.depends
        if not missing(card, OFFERED) and stable_hash(card.id) % 2 != stable_hash(other) % 2
    )
    parts = shards(2, failing=(first, second))
    assert all(not clause["consequence_of"] for part in parts.values() for clause in part["clauses"])
    found = {clause["id"]: clause["consequence_of"] for clause in merge(parts, SPEC)["clauses"]}
    assert second in found[first]


def test_a_feature_that_no_shard_proves_is_a_problem_of_the_whole() -> None:
    name = next(f for f in SPEC.features if len(_judging(f)) > 1)
    parts = shards(2, without=_judging(name))
    whole = record_of(without=_judging(name))
    problem = f"the feature {name} is declared and no assertion of a clause that names it was executed"
    assert problem in whole["problems"]
    assert same_apart_from_time(merge(parts, SPEC), whole)
    one = _judging(name)[0]
    proved = merge(shards(2, without=[c for c in _judging(name) if c != one]), SPEC)
    assert problem not in proved["problems"]


def _judging(feature: str) -> list[str]:
    cards = [c for c in SPEC.clauses.values() if feature in (c.feature, *c.needs) and not missing(c, OFFERED)]
    return [card.id for card in cards if card.status != "pending"]


def test_what_came_with_the_rows_is_kept() -> None:
    tried = Qualification(
        failed={"mul": [{"class": "0-d", "expected": "1", "found": "2"}]}, not_offered={"sum": "at 0x7f0000001"}
    )
    torch = next(card.id for card in SPEC.clauses.values() if card.requirement == "TORCH")  # unsupported here
    entry = Entry(torch, "known", "https://x.org", "raised", Case(parameters={"x": 1}), "mine.yaml:4")
    given: dict[str, Any] = {"qualification": tried, "expectations": Expectations({torch: entry})}
    given |= {
        "problems": ["t[RETAIN-01]: teardown failed in /srv/x.py"],
        "run": {"deterministic": False, "strict": True},
    }
    whole, merged = record_of(**given), merge(shards(**given), SPEC)
    assert same_apart_from_time(merged, whole)
    assert [problem[:18] for problem in whole["problems"]] == [
        "mine.yaml:4: unmat",
        "operation sum is d",
        "t[RETAIN-01]: tear",
    ]
    assert (merged["deterministic"], merged["strict"], merged["conforms"]) == (False, True, False)


def test_a_shard_that_tried_no_operation_says_nothing_of_them() -> None:
    tried = Qualification(failed={"mul": [{"class": "0-d", "expected": "1", "found": "2"}]})
    selection = Selection(clause=("RETAIN-01",))
    parts = shards(selection=selection)
    parts = {
        name: record_of(
            f"{part['shard']['index']}/3", selection=selection, qualification=tried if part["rows"] else None
        )
        for name, part in parts.items()
    }
    assert same_apart_from_time(merge(parts, SPEC), record_of(selection=selection, qualification=tried))


def test_items_that_did_not_report_are_counted_together() -> None:
    lost = ("RETAIN-01", "RETAIN-03", "BACKWARD-20", "GRADSLOT-12")
    whole, merged = record_of(without=lost), merge(shards(without=lost), SPEC)
    assert same_apart_from_time(merged, whole)
    assert "more were selected and did not report: the record is not whole" in merged["problems"][0]
    assert not merged["complete"]


# --- not all of it ------------------------------------------------------------------------------------------------


def test_a_missing_shard_makes_the_record_incomplete_and_is_named() -> None:
    parts = shards(5, failing=["RETAIN-03"])
    for gone in ("s2.json", "s4.json"):
        del parts[gone]
    merged = merge(parts, SPEC)
    assert merged["problems"] == ["shards 2/5, 4/5 are missing; run what is left and merge again"]
    assert (merged["complete"], merged["conforms"], merged["exit_status"]) == (False, False, 1)
    assert validate_record(merged) == ""
    assert merged["totals"]["total"] == len(SPEC.clauses)
    open_ = {clause["id"] for clause in merged["clauses"] if clause["reason"] == STOPPED}
    assert open_
    assert open_ <= {*part_of(tuple(SPEC.clauses), (2, 5)), *part_of(tuple(SPEC.clauses), (4, 5))}


def test_an_interrupted_shard_is_named_and_does_not_interrupt() -> None:
    parts = shards(2)
    parts["s2.json"] = record_of("2/2", without=["RETAIN-01", "RETAIN-03"], run={"interrupted": True})
    merged = merge(parts, SPEC)
    assert merged["problems"] == [
        "shard 2/2 is not whole: the run was interrupted; run what is left and merge again",
    ]
    assert (merged["complete"], merged["exit_status"]) == (False, 1)


# --- what does not belong together --------------------------------------------------------------------------------


class Other(Mine):
    features = Mine.features - {"scalar"}


class Newer(Mine):
    def version(self) -> str:
        return "1.3"


LISTED = Expectations({"RETAIN-01": Entry("RETAIN-01", "r", "https://x.org", "raised", Case(), "mine.yaml:4")})


ALONE = Qualification(failed={"mul": [{"class": "a", "expected": "1", "found": "2"}]})


@pytest.mark.parametrize(
    ("part", "given", "changes", "said"),
    [
        ("2/2", {"run": {"seed": 4}}, {}, "seed is 4 here and 3 in a.json: merge shards of one run"),
        ("2/2", {"run": {"profile": "deep"}}, {}, "profile is 'deep' here"),
        ("2/2", {"run": {"examples": 9}}, {}, "examples is 9 here"),
        ("2/2", {"run": {"strict": True}}, {}, "strict is True here"),
        ("2/2", {"run": {"argument": "x"}}, {}, "adapter.argument is 'x' here and 'mine.py' in a.json"),
        ("2/2", {"adapter": Newer()}, {}, "adapter.version is '1.3' here and '1.2' in a.json"),
        ("2/2", {"adapter": Other()}, {}, "adapter.features is ["),
        ("2/2", {"selection": Selection(level="L2")}, {}, "selection.level is 'L2' here and None in a.json"),
        ("2/2", {"expectations": LISTED}, {}, "expectations is ["),
        ("2/2", {"qualification": ALONE}, {}, "other operations work alone than in a.json (qualification.failed.mul)"),
        ("2/3", {}, {}, "shard 2/3 does not go with shard 1/2 in a.json"),
        ("1/2", {}, {}, "shard 1/2 stands in a.json too: name each shard once"),
        (None, {}, {}, "the record is no shard: make shards with `gradspec check --shard I/N`"),
        ("2/2", {}, {"gradspec": "0.0.1"}, "the shard was made by gradspec 0.0.1, this is "),
        ("2/2", {}, {"shard": {"index": 3, "of": 2}}, "the record is malformed: there is no shard 3/2"),
    ],
)
def test_what_is_of_another_run_is_refused_in_one_sentence(
    part: str | None, given: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    records = {"a.json": record_of("1/2"), "b.json": record_of(part, **copy.deepcopy(given)) | changes}
    with pytest.raises(GradspecError) as caught:
        merge(records, SPEC)
    assert str(caught.value).startswith(f"b.json: {said}")
    assert "\n" not in str(caught.value)


def renamed(record: Record) -> Record:
    record["clauses"][0]["id"] = "RETAIN-99"
    return record


def whitewashed(record: Record) -> Record:
    clause = next(clause for clause in record["clauses"] if clause["verdict"] == "failed")
    clause["verdict"] = "passed"
    return record


def without_a_row(record: Record) -> Record:
    record["rows"].pop()
    return record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, "b.json: shard 2/2 lacks "),
        (whitewashed, "b.json: the verdicts of the shard do not follow from its rows: make the shard again"),
        (without_a_row, "b.json: the verdicts of the shard do not follow from its rows: make the shard again"),
    ],
)
def test_a_shard_that_would_be_judged_otherwise_is_refused(change: Any, said: str) -> None:
    parts = {"a.json": record_of("1/2", failing=SPEC.clauses), "b.json": record_of("2/2", failing=SPEC.clauses)}
    merge(parts, SPEC)
    parts["b.json"] = change(parts["b.json"])
    with pytest.raises(GradspecError, match=said):
        merge(parts, SPEC)


# --- the command --------------------------------------------------------------------------------------------------


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The records of three shards, of which one fails."""
    for name, part in shards(failing=["RETAIN-03"]).items():
        write_record(tmp_path / name, part)
    return sorted(tmp_path.iterdir())


def test_merge_writes_the_record_and_shows_it(
    files: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("merge", *files, "-o", tmp_path / "m.json") == 1
    shown = capfd.readouterr().out
    merged = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    assert same_apart_from_time(merged, record_of(failing=["RETAIN-03"]))
    assert shown.startswith(
        f"mine 1.2: {merged['totals']['declared']} / {len(SPEC.clauses)} clauses declared, does not"
    )
    assert "FAILED RETAIN-03" in shown


def test_merge_says_what_is_missing(files: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("merge", *files[:2], "-o", tmp_path / "m.json") == 1
    shown = " ".join(capfd.readouterr().out.split())
    assert "problem: shard 3/3 is missing; run what is left and merge again" in shown
    assert "mine 1.2: the record is incomplete, " in shown
    assert shown.endswith("declared clauses were judged. Exit status 1.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-o m.json", "Missing argument 'SHARD...'"),
        ("s1.json s2.json", "Missing option '-o'"),
        ("s1.json nosuch.json -o m.json", "nosuch.json: the record does not exist"),
        ("s1.json text -o m.json", "text:1: the file is not JSON"),
        ("s1.json s1.json -o m.json", "s1.json: the file is named twice"),
        ("s1.json s2.json -o s1.json", "-o s1.json is one of the shards: name another file"),
        ("s1.json s2.json -o nosuch/m.json", "the folder nosuch does not exist"),
    ],
)
def test_bad_input_of_merge_is_one_line_and_status_2(
    files: list[Path], arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = files[0].parent
    (folder / "text").write_text("nonsense", encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.chdir(folder)
    assert command("merge", *arguments.split()) == 2
    out, err = capfd.readouterr()
    assert said in err
    assert (out, err.count("\n"), err[:10]) == ("", 1, "gradspec: ")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_shard_says_that_it_is_one(files: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    show_record(json.loads(files[1].read_text(encoding="utf-8")), SPEC, make_console())
    assert capfd.readouterr().out.startswith("mine 1.2, shard 2/3: ")


# --- runs ---------------------------------------------------------------------------------------------------------

EMPTY = ("--clause", "RETAIN-01", "--shard", "1/3")  # it falls to the third


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_a_run_of_an_empty_shard_conforms_and_merges(tmp_path: Path) -> None:
    for n in (1, 2, 3):
        part = (*EMPTY[:3], f"{n}/3", "--profile", "smoke", "--json", f"s{n}.json")
        done = ran(tmp_path, "gradspec", "check", "refgrad", *part)
        assert (done.returncode, done.stderr) == (0, "")
    merged = merge_files([tmp_path / f"s{n}.json" for n in (1, 2, 3)])
    ran(tmp_path, "gradspec", "check", "refgrad", *EMPTY[:2], "--profile", "smoke", "--json", "w.json")
    assert same_apart_from_time(merged, read_record(tmp_path / "w.json"))
    assert [clause["verdict"] for clause in merged["clauses"]] == ["passed"]


def test_an_empty_shard_is_no_error_in_pytest_either(tmp_path: Path) -> None:
    arguments = ("--gradspec-clause=RETAIN-01", "--gradspec-shard=1/3", "--gradspec-record=r.json", "-n", "1")
    done = ran(tmp_path, "pytest", "-q", "--pyargs", "gradspec.suite", "--adapter=refgrad", *arguments)
    assert done.returncode == 0
    assert read_record(tmp_path / "r.json")["clauses"] == []


def test_an_empty_shard_starts_the_implementation_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    done = ran(tmp_path, "gradspec", "check", "broken.py", *EMPTY)
    assert (done.returncode, "ZeroDivisionError" in done.stderr) == (3, True)
