"""The record of a run: one JSON object, equal for any number of workers and any order apart from time and environment.

Texts that came from an implementation are data: cut to a length, without addresses and without absolute paths.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gradspec import __version__
from gradspec.adapter import Adapter
from gradspec.errors import GradspecError
from gradspec.report import first_violation
from gradspec.report.expectations import Entry, Expectations
from gradspec.report.failures import replay_line
from gradspec.report.verdicts import Declarations, Judgement, Lost, judge_run
from gradspec.spec import Spec

Record = dict[str, Any]

VERSION = 1
INTERRUPTED = 130
"""Exit status of a run that was stopped."""

MAX_TEXT = 1000
"""Longest text of an implementation in a record."""

_SCHEMA = re.compile(r"gradspec-record/(\d+)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_QUOTED = re.compile(r"(['\"])(?:/|[A-Za-z]:[\\/])[^'\"\n]*[\\/]([^'\"\\/\n]*)\1")
_SOURCE = re.compile(r"(?<![\w.:/<-])(?:[\w.~-]+/)+([\w.-]+\.(?:py|pyx|so|ya?ml|json|c|cc|cpp|cu|h|rs)\b)")
_PATH = re.compile(
    r"(?<![\w./<])/(?:[^\s/'\":,;()<>]+/)+([^\s/'\":,;()<>]*)|\b[A-Za-z]:\\(?:[^\s\\'\"]+\\)*([^\s\\'\"]*)"
)


@dataclass(frozen=True)
class Selection:
    """What was asked for; None or nothing means everything."""

    level: str | None = None
    requirement: tuple[str, ...] = ()
    feature: tuple[str, ...] = ()
    chapter: tuple[str, ...] = ()
    clause: tuple[str, ...] = ()


@dataclass(frozen=True)
class Qualification:
    """Which operations failed when they were tried alone.

    Attributes:
        void: too few qualified, so that all of them are drawn.
        failed: from the operation to its failures, each with class (ordinary, 0-d, zero-size), expected and found.
        not_offered: from the declared operation that the adapter said not to offer to its words.
    """

    void: bool = False
    failed: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    not_offered: Mapping[str, str] = field(default_factory=dict)


RESULTS = ("wrong", "remark", "ok", "not declared")
"""What a check of the adapter may say; "wrong" alone keeps a run from conforming."""


@dataclass(frozen=True)
class Finding:
    """What one check of the self-test says of an adapter.

    Attributes:
        check: its name. result: one of RESULTS. text: a sentence, "" where everything is right.
    """

    check: str
    result: str
    text: str = ""


@dataclass(frozen=True)
class Run:
    """How a run was asked for and how it went.

    Attributes:
        argument: the adapter as it was asked for; paths in it are cut to file names.
        seed, profile, examples: of the draws. selection: the clauses asked for. strict: SHOULD counts as MUST.
        deterministic: False for a run with a database, a time budget or a timeout; lost items are seen anyway.
        interrupted: the run was stopped before its end.
        shard: the part of the selection that was run, as (2, 3); None for all of it.
        partial: the record is merged from shards of which some are missing or were stopped.
        started: ISO 8601. seconds: how long it took. workers: how many processes ran items, 0 for none but this one.
        served: the version of the Python that served the implementation, "" where it was in those processes.
    """

    argument: str
    seed: int
    profile: str
    examples: int
    selection: Selection = field(default_factory=Selection)
    strict: bool = False
    deterministic: bool = True
    interrupted: bool = False
    shard: tuple[int, int] | None = None
    partial: bool = False
    started: str = ""
    seconds: float = 0.0
    workers: int = 0
    served: str = ""


def build_record(
    spec: Spec,
    selected: Sequence[str],
    adapter: Adapter,
    run: Run,
    rows: Iterable[Mapping[str, Any]],
    *,
    lost: Iterable[Lost] = (),
    items: Iterable[tuple[str, str]] | None = None,
    expectations: Expectations | None = None,
    qualification: Qualification | None = None,
    selftest: Sequence[Finding] = (),
    notes: Iterable[str] = (),
    problems: Iterable[str] = (),
) -> Record:
    """Judge a run and write down all that it says.

    Args:
        spec: the spec.
        selected: the ids of the selected clauses.
        adapter: what was checked.
        run: how it was checked.
        rows: what `engine.run_item` returned, in any order.
        lost: items whose process ended before they did.
        items: the selected (item, clause) pairs, each of which must have reported; None if that is not to be checked.
        expectations: the listed failures.
        qualification: the operations that failed alone.
        selftest: what the checks of the adapter said: what is wrong is a problem, a remark is a note.
        notes: sentences worth telling.
        problems: sentences, each of which makes the run non-conformant.
    """
    rows, expectations = [_clean_row(row) for row in rows], expectations or Expectations()
    lost = [replace(one, reason=clean_text(one.reason)) for one in lost]
    declarations, qualification = Declarations.of(adapter), qualification or Qualification()
    problems = [*problems, *_not_offered(qualification), *_said(selftest, "wrong")]
    told: dict[str, Any] = {"lost": lost, "items": items, "expectations": expectations, "problems": problems}
    told |= {"strict": run.strict, "part": run.shard is not None}
    judgement = judge_run(spec, selected, declarations, rows, interrupted=run.interrupted or run.partial, **told)
    data = {
        **_asked(adapter, declarations, run),
        "shard": None if run.shard is None else {"index": run.shard[0], "of": run.shard[1]},
        "deterministic": run.deterministic and not lost and not any(row.get("lost") for row in rows),
        "expectations": [_entry(entry) for _, entry in sorted(expectations.entries.items())],
        "qualification": _qualification(qualification),
        "selftest": _selftest(selftest),
        "rows": [_row(row) for row in sorted([*rows, *(one.row() for one in lost)], key=_row_order)],
        "notes": sorted({*notes, *_said(selftest, "remark")}),
        **_verdicts(judgement, run),
    }
    record: Record = _clean(data)
    record["time"] = {"started": run.started, "seconds": run.seconds, "items": _seconds(rows)}
    record["environment"] = _environment(run)
    return record


def _asked(adapter: Adapter, declarations: Declarations, run: Run) -> dict[str, Any]:
    return {
        "schema": f"gradspec-record/{VERSION}",
        "gradspec": __version__,
        "adapter": _adapter(adapter, declarations, run),
        "seed": run.seed,
        "profile": run.profile,
        "examples": run.examples,
        "selection": _selection(run.selection),
        "strict": run.strict,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    named = {name: getattr(entry, name) for name in ("clause", "reason", "link", "kind", "place")}
    return named | {"case": entry.case.to_json()}


def _verdicts(judgement: Judgement, run: Run) -> dict[str, Any]:
    status = INTERRUPTED if run.interrupted else int(not judgement.conforms)
    return {
        "clauses": [_clause(clause, run) for clause in judgement.clauses],
        "features": judgement.features,
        "problems": judgement.problems,
        "totals": judgement.totals,
        "conforms": judgement.conforms,
        "complete": judgement.complete,
        "exit_status": status,
    }


def _clause(clause: Mapping[str, Any], run: Run) -> dict[str, Any]:
    failure = clause["failure"]
    if failure is not None:
        replay = replay_line(recorded_argument(run.argument), clause["id"], run.seed, run.profile)
        failure = _failure(failure) | {"item": failure["item"], "replay": replay}
    return dict(clause) | {"failure": failure}


def _failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": failure["kind"],
        "message": failure["message"],
        "expected": failure["expected"],
        "found": failure["found"],
        "oracle": failure.get("oracle", ""),
        "other": failure.get("other", ""),
        "flaky": failure.get("flaky", False),
        "case": failure.get("case"),
        "trace": failure.get("trace", []),
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    pinned = row.get("pinned")
    if pinned is not None:
        shown = None if pinned["failure"] is None else _failure(pinned["failure"])
        pinned = {"failure": shown, "discards": dict(pinned["discards"])}
    return {
        "item": row["item"],
        "clause": row["clause"],
        "examples": row["examples"],
        "assertions": row["assertions"],
        "discards": dict(row["discards"]),
        "expected_hits": row["expected_hits"],
        "pinned": pinned,
        "failure": None if row["failure"] is None else _failure(row["failure"]),
        "lost": row.get("lost"),
    }


def _row_order(row: Mapping[str, Any]) -> tuple[str, str]:
    # an item can stand there twice by a fault: the whole row decides then
    return row["item"], json.dumps({k: v for k, v in row.items() if k != "seconds"}, sort_keys=True, default=str)


def _adapter(adapter: Adapter, declarations: Declarations, run: Run) -> dict[str, Any]:
    return {
        "name": adapter.name,
        "version": declarations.version,
        "distribution": declarations.distribution,
        "argument": recorded_argument(run.argument),
        "features": sorted(declarations.features),
        "operations": sorted(declarations.operations),
        "keywords": sorted(declarations.keywords),
        "dtypes": list(dict.fromkeys(declarations.dtypes)),
        "devices": list(dict.fromkeys(declarations.devices)),
        "max_rank": declarations.max_rank,
    }


def recorded_argument(argument: str) -> str:
    """The argument of `check` without folders: `/home/me/mine.py:Mine` becomes `mine.py:Mine`."""
    scheme, colon, command = argument.partition(":")
    if colon and scheme == "stdio":
        try:
            words = shlex.split(command)
        except ValueError:  # an open quote: the command will not start either
            words = command.split()
        return f"stdio:{shlex.join(_file_name(word) for word in words)}"
    return _file_name(argument)


def _file_name(text: str) -> str:
    return re.split(r"[/\\]", text.rstrip("/\\"))[-1]


def _selection(selection: Selection) -> dict[str, Any]:
    parts = ("requirement", "feature", "chapter", "clause")
    return {"level": selection.level} | {part: sorted(getattr(selection, part)) for part in parts}


def _qualification(qualification: Qualification) -> dict[str, Any]:
    failed = {
        operation: sorted((dict(found) for found in all_found), key=lambda found: found["class"])
        for operation, all_found in sorted(qualification.failed.items())
    }
    absent = dict(sorted(qualification.not_offered.items()))
    return {"void": qualification.void, "failed": failed, "not_offered": absent}


def _not_offered(qualification: Qualification) -> list[str]:
    """An operation that is declared and refused is drawn nowhere, so that nothing else would tell."""
    absent = qualification.not_offered.items()
    return [f"operation {name} is declared and not offered: {text or '(no reason)'}" for name, text in absent]


def _said(findings: Iterable[Finding], result: str) -> list[str]:
    return [f"self-test: {finding.text}" for finding in findings if finding.result == result]


def _selftest(findings: Sequence[Finding]) -> dict[str, Any]:
    """How often each result came, and the sentences."""
    counts = collections.Counter(finding.result for finding in findings)
    told = [asdict(finding) for finding in findings if finding.text and finding.result in ("wrong", "remark")]
    return {"counts": {result: counts[result] for result in RESULTS}, "findings": told}


def _seconds(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return dict(sorted((row["item"], float(row.get("seconds", 0.0))) for row in rows))


def _environment(run: Run) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: importlib.metadata.version(name) for name in ("numpy", "hypothesis", "pytest")},
        "workers": run.workers,
        "cpu_count": os.cpu_count() or 1,
        **({"served": run.served} if run.served else {}),
    }


def _clean_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with clean texts; reasons that only an address told apart are counted together."""
    cleaned: dict[str, Any] = _clean(row)
    cleaned["discards"] = _merged(row["discards"])
    if row.get("pinned") is not None:
        cleaned["pinned"]["discards"] = _merged(row["pinned"]["discards"])
    return cleaned


def _merged(discards: Mapping[str, int]) -> dict[str, int]:
    counts: collections.Counter[str] = collections.Counter()
    for reason, count in discards.items():
        counts[clean_text(reason)] += count
    return dict(sorted(counts.items()))


def _clean(item: Any) -> Any:
    """JSON data without addresses, absolute paths, overlong texts and numbers that JSON cannot write."""
    if isinstance(item, str):
        return clean_text(item)
    if isinstance(item, float) and not math.isfinite(item):
        return {"float": repr(item)}
    if isinstance(item, Mapping):
        return {clean_text(str(key)): value if key == "case" else _clean(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_clean(part) for part in item]
    return item


def clean_text(text: str) -> str:
    """The text without addresses and the folders of paths, at most MAX_TEXT long."""
    text = _ADDRESS.sub("0x…", text)
    text = _QUOTED.sub(r"\1\2\1", text)  # in quotes a path may hold spaces
    text = _SOURCE.sub(r"\1", text)
    text = _PATH.sub(lambda found: found[1] or found[2] or "…", text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


# --- files --------------------------------------------------------------------------------------------------------


def validate_record(record: Any) -> str:
    """What is wrong with a record, in one line; "" where it agrees with its schema."""
    violation = first_violation("record-1", record)
    if violation is None:
        return ""
    place = ".".join(str(part) for part in violation.absolute_path) or "the record"
    return f"{place}: {' '.join(violation.message.split())[:200]}"


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record beside its place, then put it there, so that no half of one can be found.

    What is there already and is no regular file, such as a pipe or /dev/stdout, is written to and stays what it is.

    Raises:
        GradspecError: the place cannot be written, or the record does not agree with its schema (a fault of gradspec).
    """
    target = Path(path)
    wrong = validate_record(record)
    if wrong:
        raise GradspecError(f"this record would not be valid, which is a fault of gradspec: {wrong}", path=target)
    write_text(target, json.dumps(record, sort_keys=True, indent=1, allow_nan=False) + "\n", "record")


def write_text(target: Path, text: str, what: str) -> None:
    """Write a text as `write_record` does; GradspecError, which calls it `what`, where the place cannot be written."""
    beside: str | None = None
    try:
        if is_stream(target):
            with target.open("a", encoding="utf-8") as file:
                file.write(text)
            return
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            beside = file.name
            file.write(text)
        _like_any_file(Path(beside))
        Path(beside).replace(target)
    except OSError as error:
        raise GradspecError(f"the {what} cannot be written: {error.strerror or error}", path=target) from None
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):
                Path(beside).unlink()  # gone already where all went well


def is_stream(path: Path) -> bool:
    """Whether something is there that is written to, not replaced: a device, a pipe, a file behind /dev/stdout."""
    return path.exists() and (not path.is_file() or path.absolute().is_relative_to("/dev"))


def _like_any_file(path: Path) -> None:
    """Temporary files are private; a record has the rights that the user's mask gives."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read and check a record.

    Raises:
        GradspecError: it cannot be read, is no record, or was written by a newer gradspec.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except FileNotFoundError:
        raise GradspecError("the record does not exist", path=file) from None
    except OSError as error:
        raise GradspecError(f"the record cannot be read: {error.strerror or error}", path=file) from None
    except json.JSONDecodeError as error:
        raise GradspecError(f"the file is not JSON: {error.msg}", path=file, line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise GradspecError(f"the file is not JSON: {' '.join(str(error).split())[:200]}", path=file) from None
    version = _SCHEMA.fullmatch(str(data.get("schema"))) if isinstance(data, dict) else None
    if version is None:
        raise GradspecError("the file is no record of gradspec: write one with `gradspec check --json FILE`", path=file)
    if int(version[1]) > VERSION:
        message = f"the record has version {version[1]}, this gradspec reads up to {VERSION}: install a newer one"
        raise GradspecError(message, path=file)
    wrong = validate_record(data)
    if wrong:
        raise GradspecError(f"the record is malformed: {wrong}", path=file)
    record: Record = data
    return record


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def same_apart_from_time(a: Record, b: Record) -> bool:
    """Whether two records say the same, apart from when, how fast and where they were made."""
    apart = ("time", "environment")
    first, second = ({key: value for key, value in record.items() if key not in apart} for record in (a, b))
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
