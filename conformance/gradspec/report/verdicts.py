"""From the rows of a run to a verdict for each clause, and from the verdicts to the word whether it conforms.

Pure functions: the result depends on the rows as a set, never on their order or on who sent them.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradspec._cards import Clause
from gradspec.adapter import ACTS, Adapter
from gradspec.report.expectations import Entry, Expectations
from gradspec.spec import Spec

Row = Mapping[str, Any]

VERDICTS = (
    "crashed",
    "timed_out",
    "failed",
    "not_exercised",
    "unexpected_pass",
    "expected",
    "passed",
    "unsupported",
    "disputed",
    "pending",
    "untested",
)
"""All verdicts. The first eight can come from a row: of several rows the one named first here decides."""

FAILURES = frozenset({"crashed", "timed_out", "failed"})
"""Verdicts of a clause that was seen to be broken, and of which that was not known before."""

UNDECLARED = frozenset({"unsupported", "pending", "untested"})
"""Verdicts of clauses that nothing is claimed of: they count in the total only."""

STOPPED = "the run was stopped before it"
"""The reason of clauses that an interrupted run did not come to."""

NOTHING_JUDGED = "no selected clause could be judged"
"""The problem of a run that found nothing to say."""

SUITE_ERROR = "suite_error"
"""The kind of a failure that is a fault of the suite or of the case, never of the implementation."""

_UNSUPPORTED = "unsupported: "


@dataclass(frozen=True)
class Declarations:
    """What an implementation declares, as data."""

    features: frozenset[str]
    operations: frozenset[str]
    keywords: frozenset[str]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    max_rank: int
    distribution: str = ""
    version: str = ""

    @classmethod
    def of(cls, adapter: Adapter) -> Declarations:
        """The declarations of an adapter."""
        return cls(
            frozenset(adapter.features),
            frozenset(adapter.operations),
            frozenset(adapter.keywords),
            tuple(adapter.dtypes),
            tuple(adapter.devices),
            adapter.max_rank,
            adapter.distribution,
            adapter.version(),
        )


@dataclass(frozen=True)
class Lost:
    """An item that gave no row: the process died under it, or it did not end in time.

    Attributes:
        item, clause: which. verdict: "crashed" or "timed_out". reason: in words, such as the signal.
        case: the JSON of the case that ran, None where it is not known.
    """

    item: str
    clause: str
    verdict: str
    reason: str
    case: Any = None

    def row(self) -> dict[str, Any]:
        """The item as a row without an example."""
        failure = {
            "kind": self.verdict,
            "message": self.reason,
            "expected": "the example ends",
            "found": self.reason,
            "case": self.case,
            "trace": [],
        }
        empty: dict[str, Any] = {"examples": 0, "assertions": 0, "discards": {}, "expected_hits": 0, "pinned": None}
        return {"item": self.item, "clause": self.clause, "failure": failure, "lost": self.verdict} | empty


@dataclass(frozen=True)
class Judgement:
    """What a run says: see the record for the form of each part."""

    clauses: list[dict[str, Any]]
    features: dict[str, int]
    problems: list[str]
    totals: dict[str, Any]
    conforms: bool
    complete: bool


# --- declared or not ----------------------------------------------------------------------------------------------


def missing(clause: Clause, declarations: Declarations) -> str:
    """What the implementation does not declare of what the clause needs, in words; "" where it declares all of it."""
    if clause.feature not in declarations.features:
        return f"feature {clause.feature}"
    for need in clause.needs:
        if lack := _missing_need(need, declarations):
            return lack
    return _not_for_this_version(clause, declarations)


def _missing_need(need: str, declarations: Declarations) -> str:
    kind, colon, name = need.partition(":")
    if not colon:
        act, _, keyword = need.partition(".")
        word = "keyword" if act in ACTS and keyword in ACTS[act].defaults else "feature"
        return "" if need in declarations.features | declarations.keywords else f"{word} {need}"
    if kind == "rank":
        lacks = int(name) > declarations.max_rank
        return f"rank {name} (the highest is {declarations.max_rank})" if lacks else ""
    if kind == "op":
        return "" if name in declarations.operations else f"operation {name}"
    return "" if name in declarations.dtypes else f"dtype {name}"


def _not_for_this_version(clause: Clause, declarations: Declarations) -> str:
    if declarations.distribution != "torch":
        return "a detail of torch itself" if clause.requirement == "TORCH" else ""
    version = declarations.version.partition("+")[0]
    if clause.requirement == "TORCH" and version not in clause.verified:
        return f"verified on torch {', '.join(clause.verified)} only"
    if clause.since and _numbers(version) < _numbers(clause.since):
        return f"torch {clause.since} or later"
    if clause.until and _numbers(version) > _numbers(clause.until):
        return f"torch {clause.until} or earlier"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


# --- rows ---------------------------------------------------------------------------------------------------------


def outcome(row: Row, kind: str | None = None) -> tuple[str, str]:
    """The verdict of one row and its reason.

    Args:
        row: as `engine.run_item` or `Lost.row` gives it.
        kind: the kind of failure that is listed for the clause, None where none is.
    """
    failure = _failure(row, kind)
    if row.get("lost") and kind != row["lost"]:
        return row["lost"], failure["message"] if failure else ""
    if failure is not None:
        listed = f", listed as failing with {kind}" if kind else ""
        return ("expected", "") if failure["kind"] == kind else ("failed", failure["kind"] + listed)
    if kind is not None and row["expected_hits"]:
        return "expected", "the pinned case passes now; drawn cases still fail in the listed way"
    if not row["assertions"]:
        return _unjudged(row)
    if kind is not None:
        return "unexpected_pass", f"listed as failing with {kind}, and neither the pinned case nor a drawn one fails"
    return "passed", ""


def _failure(row: Row, kind: str | None) -> Mapping[str, Any] | None:
    """The failure to show: one of another kind than the listed one comes first."""
    found: list[Mapping[str, Any]] = [f for f in (row["failure"], _pinned(row)) if f is not None]
    return min(found, key=lambda failure: failure["kind"] == kind, default=None)


def _unjudged(row: Row) -> tuple[str, str]:
    discards: dict[str, int] = dict(row["discards"])
    for reason, count in ((row.get("pinned") or {}).get("discards") or {}).items():
        discards.setdefault(reason, count)
    if discards and not row["examples"] and all(reason.startswith(_UNSUPPORTED) for reason in discards):
        return "unsupported", ", ".join(sorted(reason.removeprefix(_UNSUPPORTED) for reason in discards))
    counted = ", ".join(f"{reason} ({count})" for reason, count in sorted(discards.items()))
    if row["examples"]:
        ran = f"{row['examples']} examples ran and none came to an assertion"
        return "not_exercised", f"{ran}; discarded: {counted}" if counted else ran
    return "not_exercised", f"every example was discarded: {counted}" if counted else "no example was drawn"


@dataclass(frozen=True)
class _Seen:
    """What the rows of one clause say together."""

    verdict: str
    reason: str
    failure: Mapping[str, Any] | None = None
    item: str = ""


def _together(rows: Sequence[Row], entry: Entry | None) -> _Seen:
    """The worst of the rows; the first by item where several are equally bad."""
    kind = entry.kind if entry else None
    seen = []
    for row in sorted(rows, key=lambda row: str(row["item"])):
        verdict, reason = outcome(row, kind)
        seen.append(_Seen(verdict, reason, _failure(row, kind), row["item"]))
    unread = {row["item"] for row in rows if _is_suite_error(_pinned(row))} - {
        row["item"] for row in _stale(rows, kind)
    }
    seen = [one for one in seen if one.item not in unread or not _is_suite_error(one.failure) or _drawn(one, rows)]
    if any(one.verdict == "expected" for one in seen):
        seen = [one for one in seen if one.verdict != "unexpected_pass"]
    worst = min(seen, key=lambda one: VERDICTS.index(one.verdict))
    if worst.verdict == "passed":
        left = [f"{one.item}: unsupported: {one.reason}" for one in seen if one.verdict == "unsupported"]
        return _Seen("passed", "; ".join(left))
    return worst


def _stale(rows: Sequence[Row], kind: str | None) -> list[Row]:
    """The rows whose test cannot run the pinned case and should.

    A pinned case belongs to one test of its clause: it says nothing to the others, which may not even read it. It is
    no other's where no test reads it, or where none fails on it and this one sees the listed failure in drawn cases.
    """
    pinned = [row for row in rows if row.get("pinned") is not None]
    strange = [row for row in pinned if _is_suite_error(_pinned(row))]
    if len(strange) == len(pinned):
        return strange
    failing = any((failure := _pinned(row)) is not None and failure["kind"] == kind for row in pinned)
    return [] if failing else [row for row in strange if row["expected_hits"]]


def _pinned(row: Row) -> Mapping[str, Any] | None:
    """The failure of the pinned case."""
    return (row.get("pinned") or {}).get("failure")


def _drawn(one: _Seen, rows: Sequence[Row]) -> bool:
    """Whether the failure is one of a drawn case."""
    return next(row for row in rows if row["item"] == one.item)["failure"] is not None


def _is_suite_error(failure: Mapping[str, Any] | None) -> bool:
    return failure is not None and failure["kind"] == SUITE_ERROR


# --- clauses ------------------------------------------------------------------------------------------------------


def judge_run(
    spec: Spec,
    selected: Sequence[str],
    declarations: Declarations,
    rows: Iterable[Row],
    *,
    lost: Iterable[Lost] = (),
    items: Iterable[tuple[str, str]] | None = None,
    expectations: Expectations | None = None,
    strict: bool = False,
    interrupted: bool = False,
    part: bool = False,
    problems: Iterable[str] = (),
) -> Judgement:
    """Judge a whole run: its clauses by id, features, problems, totals and the word.

    Args:
        spec: the spec.
        selected: the ids of the selected clauses.
        declarations: what the implementation declares.
        rows: the rows of `engine.run_item`.
        lost: the items that gave none since their process ended.
        items: the selected (item, clause) pairs: each must have reported; None if that is not to be checked.
        expectations: the listed failures.
        strict: SHOULD counts as MUST.
        interrupted: the run was stopped: what is missing is no problem of its own.
        part: the run is one shard of several: that it has nothing to judge is no problem.
        problems: sentences of the caller; each makes the run non-conformant.
    """
    rows = [*rows, *(one.row() for one in lost)]
    by_clause: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        by_clause[row["clause"]].append(row)
    entries = expectations.entries if expectations else {}
    clauses = []
    for name in sorted(set(selected)):
        given, entry = by_clause.get(name, []), entries.get(name)
        seen = _judge_clause(spec.clauses[name], declarations, given, entry, interrupted)
        clauses.append(_clause_entry(spec.clauses[name], seen, given, entry))
    _add_consequences(spec, clauses)
    features = _executed(spec, declarations, clauses)
    found = [*problems, *_unmatched(clauses, entries), *_suite_errors(clauses, by_clause, entries)]
    reported = _not_reported(rows, set(selected), items, interrupted)
    found += reported
    if not interrupted:
        found += _unproved(spec, declarations, features, clauses)
    counts = totals(clauses)
    if not interrupted and not part and not counts["declared"]:
        found.append(NOTHING_JUDGED)
    conforms = not interrupted and not found and not any(_breaks(clause, strict) for clause in clauses)
    complete = not interrupted and not reported
    return Judgement(clauses, features, sorted(set(found)), counts, conforms, complete)


def _judge_clause(
    clause: Clause, declarations: Declarations, rows: Sequence[Row], entry: Entry | None, interrupted: bool
) -> _Seen:
    if clause.status == "pending":
        return _Seen("pending", clause.pending_reason or "")
    if lack := missing(clause, declarations):
        return _Seen("unsupported", lack)
    if rows:
        return _weighed(clause, _together(rows, entry), entry)
    if clause.untested:
        return _Seen("untested", clause.untested)
    return _Seen("not_exercised", STOPPED if interrupted else "no test reported on it")


def _weighed(clause: Clause, seen: _Seen, entry: Entry | None) -> _Seen:
    """What the rows say, in the light of the card and the expectation."""
    if clause.status == "disputed" and seen.verdict != "unsupported":
        return replace(seen, verdict="disputed", reason=": ".join(filter(None, (seen.verdict, seen.reason))))
    if seen.verdict == "expected" and entry is not None:
        return replace(seen, reason="; ".join(filter(None, (entry.reason, seen.reason))))
    return seen


def _clause_entry(clause: Clause, seen: _Seen, rows: Sequence[Row], entry: Entry | None) -> dict[str, Any]:
    discards: collections.Counter[str] = collections.Counter()
    for row in rows:
        discards.update(row["discards"])
    failure = None if seen.failure is None else dict(seen.failure) | {"item": seen.item}
    return {
        "id": clause.id,
        "title": clause.title,
        "chapter": clause.chapter,
        "requirement": clause.requirement,
        "feature": clause.feature,
        "level": clause.level,
        "status": clause.status,
        "verdict": seen.verdict,
        "reason": seen.reason,
        "examples": sum(row["examples"] for row in rows),
        "assertions": sum(row["assertions"] for row in rows),
        "discards": dict(sorted(discards.items())),
        "oracle": (failure or {}).get("oracle", ""),
        "consequence_of": [],
        "expectation": None if entry is None else {"reason": entry.reason, "link": entry.link, "kind": entry.kind},
        "failure": failure,
    }


def _add_consequences(spec: Spec, clauses: Sequence[dict[str, Any]]) -> None:
    failed = {clause["id"] for clause in clauses if clause["verdict"] in FAILURES}
    for clause in clauses:
        if clause["id"] in failed:
            clause["consequence_of"] = sorted(_behind(spec, clause["id"]) & failed)


def _behind(spec: Spec, name: str) -> set[str]:
    """All clauses that the clause depends on, also through clauses that were not selected."""
    seen: set[str] = set()
    open_: list[str] = [name]
    while open_:
        for other in spec.clauses[open_.pop()].depends:
            if other not in seen:
                seen.add(other)
                open_.append(other)
    return seen


def _breaks(clause: Mapping[str, Any], strict: bool) -> bool:
    if clause["verdict"] in ("unexpected_pass", "not_exercised"):
        return True
    counted = ("MUST", "SHOULD") if strict else ("MUST",)
    return clause["verdict"] in FAILURES and clause["requirement"] in counted


# --- problems -----------------------------------------------------------------------------------------------------


def _unmatched(clauses: Sequence[Mapping[str, Any]], entries: Mapping[str, Entry]) -> list[str]:
    found = []
    for clause in clauses:
        entry = entries.get(clause["id"])
        if entry is not None and clause["verdict"] in UNDECLARED:
            why = f"{clause['id']} is {clause['verdict']} here ({clause['reason']})"
            found.append(f"{entry.place}: unmatched expectation: {why}; take the entry away")
    return found


def _suite_errors(
    clauses: Sequence[Mapping[str, Any]], by_clause: Mapping[str, Sequence[Row]], entries: Mapping[str, Entry]
) -> list[str]:
    """What the suite could not judge, also where the requirement lets a failure pass."""
    found = []
    for clause in (clause for clause in clauses if clause["verdict"] not in UNDECLARED):
        name, rows = clause["id"], by_clause.get(clause["id"], [])
        drawn = [(row["item"], row["failure"]) for row in rows if _is_suite_error(row["failure"])]
        found += [f"suite error in {item}: {failure['message']}" for item, failure in drawn]
        if name in entries:
            texts = sorted(f["message"] for row in _stale(rows, entries[name].kind) if (f := _pinned(row)))
            where = f"{entries[name].place}: the pinned case of {name} cannot be run"
            found += [f"{where}: {text}" for text in texts[:1]]
    return found


def _not_reported(
    rows: Sequence[Row], selected: set[str], items: Iterable[tuple[str, str]] | None, interrupted: bool
) -> list[str]:
    """Selected and reported items must be the same."""
    counts = collections.Counter(row["item"] for row in rows)
    twice = sorted(item for item, count in counts.items() if count > 1)
    if items is None:
        strange = sorted({row["item"] for row in rows if row["clause"] not in selected})
        absent: list[str] = []
    else:
        wanted = {item for item, _ in items}
        strange = sorted(set(counts) - wanted)
        absent = [] if interrupted else sorted(wanted - set(counts))
    told = (
        (absent, "selected and did not report"),
        (strange, "reported without being selected"),
        (twice, "reported twice"),
    )
    return [f"{_items(names)} {what}: the record is not whole" for names, what in told if names]


def _items(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    verb = "was" if len(names) == 1 else "were"
    return f"{', '.join(names[:3])}{more} {verb}"


def _named(clause: Clause) -> set[str]:
    return {clause.feature, *clause.needs}


def _executed(spec: Spec, declarations: Declarations, clauses: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """For each declared feature that a selected clause names: the assertions that clauses naming it executed."""
    counts: collections.Counter[str] = collections.Counter()
    for clause in clauses:
        for name in _named(spec.clauses[clause["id"]]) & declarations.features & set(spec.features):
            counts[name] += clause["assertions"]
    return dict(sorted(counts.items()))


def _unproved(
    spec: Spec, declarations: Declarations, features: Mapping[str, int], clauses: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Declared features without an executed assertion, where every clause was selected that could have executed one."""
    selected = {clause["id"] for clause in clauses}
    found = []
    for name in (name for name, count in features.items() if not count):
        judging = [c for c in spec.clauses.values() if name in _named(c) and _can_judge(c, declarations)]
        if judging and all(clause.id in selected for clause in judging):
            found.append(f"the feature {name} is declared and no assertion of a clause that names it was executed")
    return found


def _can_judge(clause: Clause, declarations: Declarations) -> bool:
    return clause.status != "pending" and not clause.untested and not _not_for_this_version(clause, declarations)


# --- totals -------------------------------------------------------------------------------------------------------


@dataclass
class _Bucket:
    declared: int = 0
    total: int = 0
    verdicts: collections.Counter[str] = field(default_factory=collections.Counter)

    def add(self, clause: Mapping[str, Any]) -> None:
        self.declared += clause["verdict"] not in UNDECLARED
        self.total += 1
        self.verdicts[clause["verdict"]] += 1

    def to_json(self) -> dict[str, Any]:
        verdicts = {verdict: self.verdicts[verdict] for verdict in VERDICTS}
        return {"declared": self.declared, "total": self.total, "by_verdict": verdicts}


def totals(clauses: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts with their denominators: of all clauses, by requirement and by chapter."""
    everything = _Bucket()
    by: dict[str, dict[str, _Bucket]] = {"requirement": {}, "chapter": {}}
    for clause in clauses:
        everything.add(clause)
        for key, buckets in by.items():
            buckets.setdefault(clause[key], _Bucket()).add(clause)
    parts = {f"by_{key}": {k: b.to_json() for k, b in sorted(buckets.items())} for key, buckets in by.items()}
    return everything.to_json() | parts
