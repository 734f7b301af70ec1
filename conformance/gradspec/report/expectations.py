"""Expectation files: the clauses that an implementation is known to fail, why, and in which way.

    gradspec-expectations: 1
    extends: [shipped:torch]        # or other files, relative to this one
    entries:
      - clause: RETAIN-01
        reason: the graph is never freed
        link: https://example.org/issues/1
        kind: not_refused
        case: {program: {inputs: [...], steps: [...], roots: [...]}}

An entry of a file takes the place of one for the same clause in a file that it extends. Whatever is wrong with a file
is one GradspecError with file and line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from jsonschema.exceptions import ValidationError

from gradspec._cards import nearest, wording
from gradspec.errors import GradspecError
from gradspec.programs.program import Case, MalformedCase
from gradspec.report import first_violation
from gradspec.spec import Spec

if TYPE_CHECKING:
    from gradspec.engine import Expected

SHIPPED = Path(__file__).resolve().parents[1] / "adapters" / "expectations"
_SHIPPED = "shipped:"


@dataclass(frozen=True)
class Entry:
    """One listed failure.

    Attributes:
        clause: its id. reason, link: why it fails, and where that is told.
        kind: the kind of the failure, as findings name it. case: the pinned case, which is replayed first.
        place: file name and line, for messages and records.
    """

    clause: str
    reason: str
    link: str
    kind: str
    case: Case
    place: str


@dataclass(frozen=True)
class Expectations:
    """The listed failures by clause id."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def expected(self, clause: str) -> Expected | None:
        """What `engine.run_item` takes for this clause, None where nothing is listed."""
        # imported here: the plug-in loads this module before any item needs NumPy and Hypothesis
        from gradspec.engine import Expected  # noqa: PLC0415

        entry = self.entries.get(clause)
        return None if entry is None else Expected(entry.kind, entry.case)


def load_expectations(path: str | os.PathLike[str] | None, adapter_name: str, spec: Spec) -> Expectations:
    """Read an expectation file with all that it extends.

    Args:
        path: the file, or "shipped:NAME"; None for the one that is shipped with the adapter, if any.
        adapter_name: the name of the adapter.
        spec: the spec, whose ids the entries must name.

    Raises:
        GradspecError: a file is missing or malformed, names an unknown clause, lists one twice, or extends itself.
    """
    if path is None:
        file = SHIPPED / f"{adapter_name}.yaml"
        return Expectations(_load(file, f"{_SHIPPED}{adapter_name}", spec, ())) if file.is_file() else Expectations()
    file, shown = _located(str(path), Path())
    return Expectations(_load(file, shown, spec, ()))


def check_divergences(spec: Spec, expectations_of_torch: Expectations) -> list[str]:
    """Whether divergences.md and torch's expectation file belong to each other: one line for each that is alone."""
    entries, divergences = expectations_of_torch.entries, spec.divergences
    findings = [
        f"{entry.place}: {name} is {spec.clauses[name].requirement} and has no entry in spec/divergences.md"
        for name, entry in sorted(entries.items())
        if spec.clauses[name].requirement in ("MUST", "SHOULD") and name not in divergences
    ]
    findings += [
        f"{entry.path}:{entry.line}: {name} has no entry in torch's expectation file"
        for name, entry in sorted(divergences.items())
        if name not in entries
    ]
    return findings


def _located(name: str, folder: Path) -> tuple[Path, str]:
    """The file that is meant, and how to show it."""
    if not name.startswith(_SHIPPED):
        return folder / name, str(folder / name)
    file = SHIPPED / f"{name.removeprefix(_SHIPPED)}.yaml"
    if not file.is_file():
        known = sorted(f"{_SHIPPED}{found.stem}" for found in SHIPPED.glob("*.yaml"))
        raise GradspecError(f"no expectation file is called {name!r}; shipped are {', '.join(known)}")
    return file, name


def _load(file: Path, shown: str, spec: Spec, above: tuple[Path, ...]) -> dict[str, Entry]:
    source = _Source.read(file, shown)
    resolved = file.resolve()
    here = (*above, resolved)
    entries: dict[str, Entry] = {}
    for at, name in enumerate(source.data.get("extends", ())):
        line = source.line("extends", at)
        try:
            other, other_shown = _located(name, file.parent)
        except GradspecError as error:
            raise GradspecError(error.message, path=shown, line=line) from None
        if other.resolve() in here:
            raise GradspecError(f"extends {name!r}, which extends this file again", path=shown, line=line)
        if not other.is_file():
            raise GradspecError(f"extends {name!r}, which does not exist", path=shown, line=line)
        entries |= _load(other, other_shown, spec, here)
    return entries | _own_entries(source, spec)


def _own_entries(source: _Source, spec: Spec) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for at, data in enumerate(source.data["entries"]):
        name = data["clause"]
        line = source.line("entries", at, "clause")
        if name not in spec.clauses:
            raise source.error(f"there is no clause {name!r}{nearest(name, spec.clauses)}", line)
        if name in entries:
            raise source.error(f"{name} has an entry already, at {entries[name].place}", line)
        try:
            case = Case.from_json(data["case"])
        except MalformedCase as error:
            raise source.error(
                f"the case of {name} is malformed: {error}", source.line("entries", at, "case")
            ) from None
        place = f"{Path(source.shown).name}:{line}"
        entries[name] = Entry(name, data["reason"], data["link"], data["kind"], case, place)
    return entries


@dataclass(frozen=True)
class _Source:
    """A file that was read and agrees with the schema, and the nodes that know its lines."""

    shown: str
    data: Any
    root: yaml.Node

    @classmethod
    def read(cls, file: Path, shown: str) -> _Source:
        try:
            text = file.read_text(encoding="utf-8")
            alias = next((e for e in yaml.parse(text, Loader=yaml.SafeLoader) if isinstance(e, yaml.AliasEvent)), None)
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            data = yaml.safe_load(text)
        except FileNotFoundError:
            raise GradspecError("the expectation file does not exist", path=shown) from None
        except (OSError, UnicodeDecodeError) as error:
            raise GradspecError(f"the expectation file cannot be read: {_one_line(error)}", path=shown) from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            raise GradspecError(f"the file is not YAML: {error.problem}", path=shown, line=line) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise GradspecError(f"the file is not YAML: {_one_line(error)}", path=shown) from None
        if alias is not None:  # could be recursive, or grow without bound
            message = f"aliases such as *{alias.anchor} are not allowed: write the value out"
            line = alias.start_mark.line + 1 if alias.start_mark else None
            raise GradspecError(message, path=shown, line=line)
        if not isinstance(root, yaml.MappingNode):
            raise GradspecError("the file must hold a mapping with gradspec-expectations: 1 and entries", path=shown)
        source = cls(shown, data, root)
        source.check()
        return source

    def check(self) -> None:
        """Agree with the schema, and give no key twice."""
        repeated = next(_repeated(self.root), None)
        if repeated is not None:
            raise self.error(f"the key {repeated.value!r} is given twice", repeated.start_mark.line + 1)
        version = self.data.get("gradspec-expectations")
        if isinstance(version, int) and version > 1:
            raise self.error(
                f"the file has version {version} of the format, this gradspec reads 1: install a newer one", 1
            )
        violation = first_violation("expectations-1", self.data)
        if violation is not None:
            path = [*violation.absolute_path, *_unknown_keys(violation)]
            malformed = "case" in path[2:3]
            message = f"malformed case: {violation.message}" if malformed else wording(violation)
            raise self.error(_one_line(message), self.line(*path))

    def error(self, message: str, line: int) -> GradspecError:
        """An error in this file."""
        return GradspecError(message, path=self.shown, line=line)

    def line(self, *path: str | int) -> int:
        """The line, from 1, where the item at `path` stands, or the last part of the path that exists."""
        node, found = self.root, 1
        for part in path:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
                found = node.start_mark.line + 1
            elif isinstance(node, yaml.MappingNode):
                pair = next(((key, value) for key, value in node.value if key.value == part), None)
                if pair is None:
                    break
                found, node = pair[0].start_mark.line + 1, pair[1]
        return found


def _repeated(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """The keys that a mapping gives twice: YAML would keep the last one without a word."""
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            yield from _repeated(part)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield key
                seen.add(key.value)
            yield from _repeated(value)


def _unknown_keys(violation: ValidationError) -> list[str]:
    if violation.validator != "additionalProperties":
        return []
    rule, found = cast("Any", violation.schema), cast("Any", violation.instance)
    return sorted(str(key) for key in found if key not in rule["properties"])[:1]


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
