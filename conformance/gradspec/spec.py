"""Reads spec/: the cards of the chapters, the features, the omitted rows and the divergences.

`load_spec` gives the whole of it, checked; everything that is wrong with a file is one GradspecError with file and
line. How a card is written is told in spec/README.md.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gradspec._cards import (
    CLAUSE_ID,
    Clause,
    Divergence,
    Feature,
    load_schema,
    nearest,
    parse_chapter,
    parse_divergences,
    plain,
    read_markdown,
    read_text,
    shown,
    span,
    violations,
    wording,
)
from gradspec.errors import GradspecError

__all__ = [
    "Clause",
    "Divergence",
    "Feature",
    "Spec",
    "check_traceability",
    "clauses_table",
    "explain",
    "load_spec",
    "parse_chapter",
    "reference_exists",
    "spec_root",
]

PACKAGE = Path(__file__).resolve().parent
# Other files of spec/ are in small letters and hold no cards; this is the one exception in capitals.
NOT_A_CHAPTER = "README"
_TOML_LINE = re.compile(r"at line (\d+)")


@dataclass(frozen=True)
class Spec:
    """The whole of spec/. Clauses are ordered by chapter and number."""

    root: Path
    ladder: Mapping[str, str]
    features: Mapping[str, Feature]
    clauses: Mapping[str, Clause]
    omitted: Mapping[str, str]
    divergences: Mapping[str, Divergence]
    omitted_lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def clause(self, clause_id: str) -> Clause:
        """The card of that id (small letters will do).

        Raises:
            GradspecError: there is none; the message says whether it was omitted, or names the nearest ids.
        """
        found = self.clauses.get(clause_id) or self.clauses.get(clause_id.upper())
        if found is None:
            raise GradspecError(_unknown_id(clause_id, self))
        return found

    def explain(self, clause_id: str) -> str:
        """The text of one card, see `explain`."""
        return explain(self, clause_id)

    def chapters(self) -> tuple[str, ...]:
        """The chapters that have cards, in alphabetical order."""
        return tuple(dict.fromkeys(clause.chapter for clause in self.clauses.values()))

    def unused_features(self) -> tuple[str, ...]:
        """Features of features.toml that no card names, in the order of the file. A finished spec has none."""
        named = {name for clause in self.clauses.values() for name in (clause.feature, *clause.needs)}
        return tuple(name for name in self.features if name not in named)


def spec_root(package: Path = PACKAGE) -> Path:
    """The folder spec/: `_spec` inside the package (a wheel), else spec/ two levels above it (a checkout).

    Raises:
        GradspecError: neither exists.
    """
    for candidate in (package / "_spec", package.parents[1] / "spec"):
        if candidate.is_dir():
            return candidate
    raise GradspecError("the folder spec/ was not found beside the package gradspec: install gradspec again")


def load_spec(root: Path | None = None) -> Spec:
    """Read and check all of spec/; cached per folder.

    Args:
        root: the folder; by default `spec_root()`.

    Raises:
        GradspecError: something in it is wrong; the message names file and line.
    """
    return _load((root or spec_root()).resolve())


@cache
def _load(root: Path) -> Spec:
    ladder, features = _read_features(root / "features.toml")
    clauses: dict[str, Clause] = {}
    for path in _chapter_files(root):
        for clause in parse_chapter(path, features):
            if clause.id in clauses:
                raise _at(clause, f"{clause.id} has a card already, at {clauses[clause.id].place}")
            clauses[clause.id] = clause
    clauses = dict(sorted(clauses.items(), key=lambda item: (item[1].chapter, item[1].number)))
    omitted, lines = _read_omitted(root / "omitted.md")
    _check_references(clauses, omitted)
    divergences = _read_divergences(root / "divergences.md", clauses)
    frozen = MappingProxyType
    return Spec(root, ladder, features, frozen(clauses), frozen(omitted), frozen(divergences), frozen(lines))


def _chapter_files(root: Path) -> list[Path]:
    found = []
    for path in sorted(root.glob("*.md")):
        if not (path.stem.isupper() or path.stem.islower()):
            raise GradspecError(
                "name a chapter in capitals (RETAIN.md) and any other file in small letters", path=shown(path)
            )
        if path.stem.isupper() and path.stem != NOT_A_CHAPTER:
            found.append(path)
    return found


def _at(clause: Clause, message: str, key: str | None = None) -> GradspecError:
    """An error at a card, or at one of its keys."""
    return GradspecError(message, path=clause.path, line=clause.field_lines.get(key or "", clause.line))


def _check_references(clauses: Mapping[str, Clause], omitted: Mapping[str, str]) -> None:
    """Every id that a card names has a card, and `depends` has no circle."""
    for clause in clauses.values():
        for key, ids in (("depends", clause.depends), ("implied_by", clause.implied_by)):
            for other in ids:
                if other not in clauses:
                    why = "which was omitted" if other in omitted else f"which has no card{nearest(other, clauses)}"
                    raise _at(clause, f"{clause.id} names {other} in {key}, {why}", key)
        if clause.split_from and clause.split_from not in clauses and clause.split_from not in omitted:
            raise _at(clause, f"{clause.id} is split from {clause.split_from}, which has no card", "split_from")
    try:
        TopologicalSorter({c.id: c.depends for c in clauses.values()}).prepare()
    except CycleError as exc:
        circle: list[str] = exc.args[1][:0:-1]
        start = circle.index(min(circle))
        names = [*circle[start:], *circle[:start], circle[start]]
        raise _at(clauses[names[0]], f"depends runs in a circle: {' -> '.join(names)}", "depends") from None


# --- features, omitted rows, divergences --------------------------------------------------------------------------


def _read_features(path: Path) -> tuple[Mapping[str, str], Mapping[str, Feature]]:
    text = read_text(path)
    lines = [line.strip() for line in text.splitlines()]

    def error(message: str, *headers: str) -> GradspecError:
        line = next((lines.index(header) + 1 for header in headers if header in lines), None)
        return GradspecError(message, path=shown(path), line=line)

    def headers(name: str) -> tuple[str, str]:
        return f"[features.{name}]", f'[features."{name}"]'

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        place = _TOML_LINE.search(str(exc))
        line = int(place[1]) if place else None
        raise GradspecError(f"the file is not TOML: {exc}", path=shown(path), line=line) from None
    for violation in violations(data, load_schema("features.schema.json")):
        where = [str(part) for part in violation.absolute_path]
        nested = violation.validator == "additionalProperties" and len(where) == 2
        hint = '; quote a name that holds a dot: [features."grad.assign"]' if nested else ""
        wanted = headers(where[1]) if len(where) > 1 and where[0] == "features" else (f"[{where[0]}]" if where else "",)
        raise error(wording(violation) + hint, *wanted)
    features = {
        name: Feature(name, entry["level"], entry["summary"], tuple(entry.get("requires", ())))
        for name, entry in data["features"].items()
    }
    for feature in features.values():
        for other in feature.requires:
            if other not in features:
                raise error(
                    f"{feature.name} requires the unknown feature {other!r}{nearest(other, features)}",
                    *headers(feature.name),
                )
            if features[other].level > feature.level:
                raise error(f"{feature.name} requires {other}, of a higher level", *headers(feature.name))
    return MappingProxyType(data["ladder"]), MappingProxyType(features)


def _read_omitted(path: Path) -> tuple[dict[str, str], dict[str, int]]:
    source = read_markdown(path)
    reasons: dict[str, str] = {}
    lines: dict[str, int] = {}
    for i, token in enumerate(source.tokens):
        if token.type != "list_item_open":
            continue
        line = span(token)[0] + 1
        inline = source.tokens[i + 2]
        clause_id, _, reason = (plain(inline) if inline.type == "inline" else "").partition(":")
        if not CLAUSE_ID.fullmatch(clause_id) or not reason.strip():
            raise source.error("malformed entry: write '- RETAIN-01: reason'", line)
        if clause_id in reasons:
            raise source.error(f"{clause_id} is listed already, in line {lines[clause_id]}", line)
        reasons[clause_id], lines[clause_id] = reason.strip(), line
    return reasons, lines


def _read_divergences(path: Path, clauses: Mapping[str, Clause]) -> dict[str, Divergence]:
    entries: dict[str, Divergence] = {}
    for entry in parse_divergences(path):
        problem = None
        if entry.id not in clauses:
            problem = f"{entry.id} has no card{nearest(entry.id, clauses)}"
        elif entry.id in entries:
            problem = f"{entry.id} has an entry already, in line {entries[entry.id].line}"
        if problem:
            raise GradspecError(problem, path=entry.path, line=entry.line)
        entries[entry.id] = entry
    return entries


# --- for the command line -----------------------------------------------------------------------------------------


def _unknown_id(clause_id: str, spec: Spec) -> str:
    wanted = clause_id.upper()
    if wanted in spec.omitted:
        return f"{wanted} was omitted (spec/omitted.md:{spec.omitted_lines[wanted]}): {spec.omitted[wanted]}"
    return f"there is no clause {clause_id!r}{nearest(wanted, spec.clauses)}"


def clauses_table(spec: Spec) -> list[dict[str, Any]]:
    """One row a clause, in the order of the spec, made of JSON values only: what `gradspec clauses --json` prints."""
    return [
        {
            "id": clause.id,
            "chapter": clause.chapter,
            "number": clause.number,
            "title": clause.title,
            "requirement": clause.requirement,
            "level": clause.level,
            "feature": clause.feature,
            "needs": list(clause.needs),
            "status": clause.status,
            "pending_reason": clause.pending_reason,
            "sentence": clause.sentence,
            "error": clause.error,
            "verified": list(clause.verified),
            "since": clause.since,
            "until": clause.until,
            "source": clause.source,
            "depends": list(clause.depends),
            "implied_by": list(clause.implied_by),
            "split_from": clause.split_from,
            "untested": clause.untested,
            "reference": clause.reference,
            "divergence": list(spec.divergences[clause.id].torch) if clause.id in spec.divergences else [],
            "path": clause.path,
            "line": clause.line,
        }
        for clause in spec.clauses.values()
    ]


def explain(spec: Spec, clause_id: str) -> str:
    """The text of one card in Markdown: what it says, where it stands, what it rests on, its example.

    Raises:
        GradspecError: there is no such card; the message says whether it was omitted, or names the nearest ids.
    """
    clause = spec.clause(clause_id)
    rows = {
        "requirement": clause.requirement,
        "level": f"{clause.level} ({spec.ladder[clause.level]})",
        "feature": f"{clause.feature} ({spec.features[clause.feature].summary})",
        "needs": ", ".join(clause.needs),
        "status": clause.status + (f": {clause.pending_reason}" if clause.pending_reason else ""),
        "error": clause.error,
        "source": clause.source,
        "verified on torch": ", ".join(clause.verified),
        "since": clause.since,
        "until": clause.until,
        "depends on": ", ".join(clause.depends),
        "implied by": ", ".join(clause.implied_by),
        "split from": clause.split_from,
        "untested": clause.untested,
        "in refgrad": clause.reference,
        "card": clause.place,
    }
    parts = [f"# {clause.id} · {clause.title}", clause.sentence]
    parts.append("\n".join(f"- {name}: {value}" for name, value in rows.items() if value))
    parts.append(f"Example (`ag` is the implementation):\n\n```python\n{clause.example}```")
    if clause.example_output is not None:
        parts.append(f"It prints:\n\n```text\n{clause.example_output}```")
    entry = spec.divergences.get(clause.id)
    if entry:
        where = f"{entry.path}:{entry.line}"
        parts.append(f"**torch {', '.join(entry.torch)} fails this clause** ({entry.source}; {where}). {entry.text}")
    return "\n\n".join(parts) + "\n"


# --- traceability -------------------------------------------------------------------------------------------------


def check_traceability(spec: Spec, tests: Mapping[str, tuple[str, ...]], refused_ids: Iterable[str]) -> list[str]:
    """Whether cards and tests belong to each other, in both directions.

    Args:
        spec: the spec.
        tests: from a test's id to the ids of the clauses that it tests.
        refused_ids: the ids that some test names as the clause behind an error it asks for.

    Returns:
        One line a finding, in the order of the cards; empty where all is well.
    """
    tested = {clause_id for ids in tests.values() for clause_id in ids}
    refused = set(refused_ids)
    findings = [
        f"{clause.place}: {finding}"
        for clause in spec.clauses.values()
        if clause.status != "pending"
        for finding in _card_findings(clause, tested=clause.id in tested, refused=clause.id in refused)
    ]
    for chapter in spec.chapters():
        findings += _chapter_findings(spec, chapter)
    findings += [
        f"spec/omitted.md:{line}: {clause_id} is omitted here and has a card at {spec.clauses[clause_id].place}"
        for clause_id, line in spec.omitted_lines.items()
        if clause_id in spec.clauses
    ]
    for test, ids in tests.items():
        if not ids:
            findings.append(f"{test}: the test names no clause")
        findings += [f"{test}: {_unknown_id(clause_id, spec)}" for clause_id in ids if clause_id not in spec.clauses]
    findings += [f"an error test: {_unknown_id(i, spec)}" for i in sorted(refused) if i not in spec.clauses]
    return findings


def _card_findings(clause: Clause, *, tested: bool, refused: bool) -> list[str]:
    findings = []
    if not tested and clause.requirement in ("MUST", "SHOULD"):
        findings.append(f"{clause.id} is {clause.requirement} and has no test")
    elif not tested and not clause.untested:
        findings.append(f"{clause.id} is {clause.requirement} and has neither a test nor a line 'untested: reason'")
    if tested and clause.untested:
        findings.append(f"{clause.id} has a test: take away its line 'untested'")
    if clause.error and not refused and not clause.untested:
        findings.append(f"{clause.id} has the error kind {clause.error} and no test that asks for this error")
    return findings


def _chapter_findings(spec: Spec, chapter: str) -> list[str]:
    cards = [clause for clause in spec.clauses.values() if clause.chapter == chapter]
    findings = []
    optional = [clause for clause in cards if clause.requirement in ("MAY", "TORCH")]
    untested = [clause for clause in optional if clause.untested]
    allowed = max(1, len(optional) // 10)
    if len(untested) > allowed:
        findings.append(
            f"{untested[allowed].place}: {len(untested)} of the {len(optional)} MAY and TORCH cards of {chapter} are"
            f" untested; at most {allowed} may be: {', '.join(clause.id for clause in untested)}"
        )
    omitted = [i for i in spec.omitted if i.split("-")[0] == chapter and i not in spec.clauses]
    rows = len(cards) - len(optional) + len(omitted)
    if 100 * len(omitted) > 3 * rows:
        findings.append(
            f"spec/omitted.md:{spec.omitted_lines[omitted[0]]}: {len(omitted)} of the {rows} MUST and SHOULD rows of"
            f" {chapter} are omitted; at most 3 % may be: {', '.join(omitted)}"
        )
    return findings


def reference_exists(reference: str, package_dir: Path) -> bool:
    """Whether `engine.py::backward` or `tensor.py::Tensor.backward` names a function, method or class that exists.

    Args:
        reference: file within the package, `::`, then names joined by dots.
        package_dir: the folder of the package, such as that of refgrad.
    """
    file, _, names = reference.partition("::")
    path = package_dir / file
    if not names or not path.is_file():
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for name in names.split("."):
        found = [
            n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and n.name == name
        ]
        if not found:
            return False
        # An inner function is no place of its own: a name behind a function finds nothing.
        body = found[-1].body if isinstance(found[-1], ast.ClassDef) else []
    return True
