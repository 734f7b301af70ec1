"""Shards put together: the record that one run of the whole selection would have made.

Nothing of what the shards concluded is taken over: clauses, consequences, features, problems and totals are judged anew
from all their rows, by the functions that judge a run. So a shard that comes from another run, or that this version of
the suite would judge otherwise, cannot slip in: it is judged again by itself first and must come out as it is.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradspec import __version__
from gradspec.declared import Declared
from gradspec.errors import GradspecError
from gradspec.options import part_of, select
from gradspec.programs.program import Case, MalformedCase
from gradspec.report.expectations import Entry, Expectations
from gradspec.report.record import (
    INTERRUPTED,
    Qualification,
    Record,
    Run,
    Selection,
    build_record,
    read_record,
    same_apart_from_time,
)
from gradspec.spec import Spec, load_spec
from gradspec.suite.support import suite_tests

_JUDGED = frozenset({"clauses", "rows", "features", "notes", "problems", "totals", "conforms", "complete"}) | {
    "shard",
    "deterministic",
    "qualification",
    "exit_status",
    "time",
    "environment",
}
"""What differs from shard to shard; everything else in a record must be the same in all of them."""

_SHOWN = 3
"""So many shards are named in a sentence, the others are counted."""


@dataclass(frozen=True)
class _Shard:
    """A record of a part, and the file that it came from."""

    name: str
    record: Record

    @property
    def index(self) -> int:
        return int(self.record["shard"]["index"])

    @property
    def of(self) -> int:
        return int(self.record["shard"]["of"])

    @property
    def shown(self) -> str:
        return f"{self.index}/{self.of}"

    @property
    def interrupted(self) -> bool:
        return bool(self.record["exit_status"] == INTERRUPTED)


def merge_files(paths: Sequence[str | os.PathLike[str]]) -> Record:
    """Put the records of shards together.

    Args:
        paths: the files, in any order.

    Returns:
        The record of the whole selection. Where shards are missing or were interrupted it is incomplete, names them
        among its problems and has the exit status 1.

    Raises:
        GradspecError: a file cannot be read or is no shard, or the files are not shards of one run.
    """
    names = [os.fspath(path) for path in paths]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise GradspecError("the file is named twice: name each shard once", path=twice)
    return merge({name: read_record(name) for name in names}, load_spec())


def merge(records: Mapping[str, Record], spec: Spec) -> Record:
    """The same for records in memory, by the names that messages call them by."""
    shards = [_Shard(name, record) for name, record in records.items()]
    if not shards:
        raise GradspecError("no shard was named: nothing can be merged")
    for shard in shards:
        _check_shard(shard)
        _check_same_run(shards[0], shard)
    shards.sort(key=lambda shard: shard.index)
    _check_once(shards)
    whole = _selected(spec, shards[0])
    for shard in shards:
        _check_clauses(shard, whole)
    qualification = _qualification(shards)
    own = [problem for shard in shards for problem in _own_problems(spec, shard)]
    missing = _unfinished(shards)
    problems = [*missing, *(own if not missing else _every([s.record["problems"] for s in shards]))]
    run = _run(shards, shard=None, interrupted=False, partial=bool(missing))
    return _judged(spec, whole, shards, run, qualification, problems)


# --- what does not belong together --------------------------------------------------------------------------------


def _check_shard(shard: _Shard) -> None:
    """It is a shard, and this version of the suite made it."""
    if shard.record["shard"] is None:
        raise GradspecError("the record is no shard: make shards with `gradspec check --shard I/N`", path=shard.name)
    if shard.index > shard.of:
        raise GradspecError(f"the record is malformed: there is no shard {shard.shown}", path=shard.name)
    version = shard.record["gradspec"]
    if version != __version__:
        message = f"the shard was made by gradspec {version}, this is {__version__}: merge with the one that made it"
        raise GradspecError(message, path=shard.name)


def _check_same_run(first: _Shard, other: _Shard) -> None:
    """Everything that was asked for, and the implementation, is the same."""
    if first.of != other.of:
        message = f"shard {other.shown} does not go with shard {first.shown} in {first.name}: merge shards of one run"
        raise GradspecError(message, path=other.name)
    for key in sorted((first.record.keys() | other.record.keys()) - _JUDGED):
        place, a, b = _difference(key, first.record.get(key), other.record.get(key))
        if place:
            message = f"{place} is {b} here and {a} in {first.name}: merge shards of one run"
            raise GradspecError(message, path=other.name)


def _difference(place: str, a: Any, b: Any) -> tuple[str, str, str]:
    """The first place at which two values differ, and what stands there; "" where they are the same."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            found = _difference(f"{place}.{key}", a.get(key), b.get(key))
            if found[0]:
                return found
        return "", "", ""
    return ("", "", "") if a == b else (place, _short(a), _short(b))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def _check_once(shards: Sequence[_Shard]) -> None:
    for first, second in itertools.pairwise(shards):
        if first.index == second.index:
            message = f"shard {second.shown} stands in {first.name} too: name each shard once"
            raise GradspecError(message, path=second.name)


def _selected(spec: Spec, shard: _Shard) -> tuple[str, ...]:
    """The clauses of the whole run; none where the spec has nothing of what was selected."""
    try:
        return select(spec, _selection(shard.record))
    except GradspecError:
        return ()


def _check_clauses(shard: _Shard, whole: tuple[str, ...]) -> None:
    """The shard has the clauses that fall to it: those of another spec do not, and no clause is in two shards."""
    found = {clause["id"] for clause in shard.record["clauses"]}
    strange = sorted(found.symmetric_difference(part_of(whole, (shard.index, shard.of))))
    if strange:
        what = "holds" if strange[0] in found else "lacks"
        raise GradspecError(
            f"shard {shard.shown} {what} {strange[0]}, unlike this version of the suite: make the shard again",
            path=shard.name,
        )


def _own_problems(spec: Spec, shard: _Shard) -> list[str]:
    """The problems that came with the rows and do not follow from them; GradspecError where the verdicts do not."""
    record, selected = shard.record, [clause["id"] for clause in shard.record["clauses"]]
    run = _run([shard], shard=(shard.index, shard.of), interrupted=shard.interrupted, partial=False)
    qualification = _read_qualification(record)
    again = _judged(spec, selected, [shard], run, qualification, record["problems"])
    if not same_apart_from_time(again, record):
        message = "the verdicts of the shard do not follow from its rows: make the shard again"
        raise GradspecError(message, path=shard.name)
    following = _judged(spec, selected, [shard], run, qualification, [])["problems"]
    return [problem for problem in record["problems"] if problem not in following]


def _qualification(shards: Sequence[_Shard]) -> Qualification:
    """That of the shards that ran an example: the others did not try the operations."""
    tried = [shard for shard in shards if any(r["examples"] and not r["lost"] for r in shard.record["rows"])]
    for shard in tried[1:]:
        a, b = (one.record["qualification"] for one in (tried[0], shard))
        place, _, _ = _difference("qualification", a, b)
        if place:
            message = f"other operations work alone than in {tried[0].name} ({place}): merge shards of one run"
            raise GradspecError(message, path=shard.name)
    found = [shard for shard in shards if shard.record["qualification"] != _qualified_nothing()]
    return _read_qualification((*tried, *found, *shards)[0].record)


def _qualified_nothing() -> dict[str, Any]:
    return {"void": False, "failed": {}, "not_offered": {}}


def _read_qualification(record: Record) -> Qualification:
    return Qualification(**record["qualification"])


# --- the whole ----------------------------------------------------------------------------------------------------


def _judged(
    spec: Spec,
    selected: Sequence[str],
    shards: Sequence[_Shard],
    run: Run,
    qualification: Qualification,
    problems: Iterable[str],
) -> Record:
    """The record that a run with the rows of all these shards makes."""
    first = shards[0].record
    record = build_record(
        spec,
        selected,
        Declared(first["adapter"]),
        run,
        [row for shard in shards for row in shard.record["rows"]],
        items=[item for shard in shards for item in _items(shard)],
        expectations=_expectations(shards[0]),
        qualification=qualification,
        notes=_every([shard.record["notes"] for shard in shards]),
        problems=problems,
    )
    record |= {key: value for key, value in first.items() if key not in _JUDGED}
    record["deterministic"] = all(shard.record["deterministic"] for shard in shards)
    record["time"] = _time([shard.record["time"] for shard in shards])
    record["environment"] = _environment([shard.record["environment"] for shard in shards])
    return record


def _run(shards: Sequence[_Shard], *, shard: tuple[int, int] | None, interrupted: bool, partial: bool) -> Run:
    first = shards[0].record
    asked = {name: first[name] for name in ("seed", "profile", "examples", "strict")}
    return Run(
        first["adapter"]["argument"],
        selection=_selection(first),
        interrupted=interrupted,
        shard=shard,
        partial=partial,
        **asked,
    )


def _selection(record: Record) -> Selection:
    words = record["selection"]
    return Selection(words["level"], *(tuple(words[name]) for name in ("requirement", "feature", "chapter", "clause")))


def _items(shard: _Shard) -> list[tuple[str, str]]:
    """What had to report: all that did in a complete shard, else all that the suite has for its clauses."""
    if shard.record["complete"]:
        return [(row["item"], row["clause"]) for row in shard.record["rows"]]
    mine = {clause["id"] for clause in shard.record["clauses"] if clause["status"] != "pending"}
    return [(test.item(clause), clause) for test in suite_tests() for clause in test.clauses if clause in mine]


def _expectations(shard: _Shard) -> Expectations:
    try:
        entries = [data | {"case": Case.from_json(data["case"])} for data in shard.record["expectations"]]
    except MalformedCase as error:
        raise GradspecError(f"the record is malformed: expectations: {error}", path=shard.name) from None
    return Expectations({data["clause"]: Entry(**data) for data in entries})


def _unfinished(shards: Sequence[_Shard]) -> list[str]:
    """A sentence for the shards that are not there, and one for those that were stopped."""
    of, here = shards[0].of, {shard.index for shard in shards}
    absent = [f"{index}/{of}" for index in range(1, of + 1) if index not in here]
    stopped = [shard.shown for shard in shards if shard.interrupted]
    told = ((absent, "missing"), (stopped, "not whole: the run was interrupted"))
    return [f"{_listed(names)} {what}; run what is left and merge again" for names, what in told if names]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{'shard' if len(names) == 1 else 'shards'} {', '.join(names[:_SHOWN])}{more} {_verb(names)}"


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _every(parts: Iterable[Iterable[str]]) -> list[str]:
    return sorted({text for part in parts for text in part})


def _time(times: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first start, and the seconds of all shards together, wherever they ran."""
    items = {item: seconds for time in times for item, seconds in time["items"].items()}
    seconds = round(sum(time["seconds"] for time in times), 3)
    return {"started": min(time["started"] for time in times), "seconds": seconds, "items": dict(sorted(items.items()))}


def _environment(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the shards ran on: a text that differs is given for each, numbers of processors are the largest."""
    merged: dict[str, Any] = {}
    for key in environments[0]:
        values: list[Any] = [environment.get(key) for environment in environments]
        if key == "workers":
            merged[key] = sum(values)
        elif all(isinstance(value, str) for value in values):
            merged[key] = ", ".join(sorted(set(values)))
        else:
            merged[key] = max(values) if all(isinstance(value, int) for value in values) else values[0]
    return merged
