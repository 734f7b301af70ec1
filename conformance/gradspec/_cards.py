"""Parses the Markdown and YAML of spec/ into records; `spec.py` puts them together and checks them against each other.

Markdown goes through markdown-it-py, and only headings, fences and the first paragraph after a fence are looked at: the
rest is for people. Everything that is wrong is one GradspecError with file and line.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gradspec.adapter import ACTS
from gradspec.errors import ERROR_KINDS, GradspecError
from gradspec.programs.operations import OPERATIONS

SCHEMAS = Path(__file__).resolve().parent / "schemas"
WORDS = ("MUST", "SHOULD", "MAY")
DTYPES = ("bool", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
# Examples speak to `ag` alone: one that imports an implementation would pass whatever is under test.
FOREIGN = ("torch", "refgrad", "gradspec")
CLAUSE_ID = re.compile(r"[A-Z]+-(0[1-9]|[1-9][0-9]+)")


@dataclass(frozen=True)
class Feature:
    """A feature of features.toml: its level on the ladder, what it means, the features it cannot do without."""

    name: str
    level: str
    summary: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One card. `sentence` and `title` are plain text; `path` is relative to the repository; lines count from 1.

    `level` is the highest level of `feature` and of the features among `needs`. `verified` holds torch versions.
    `line` is that of the heading, `example_line` that of the first line of code, `field_lines` those of the YAML keys.
    `example_output` is None where the example's claim is its asserts alone.
    """

    id: str
    chapter: str
    number: int
    title: str
    requirement: str
    feature: str
    level: str
    source: str
    status: str
    sentence: str
    example: str
    path: str
    line: int
    example_line: int
    needs: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    depends: tuple[str, ...] = ()
    implied_by: tuple[str, ...] = ()
    pending_reason: str | None = None
    reference: str | None = None
    error: str | None = None
    split_from: str | None = None
    untested: str | None = None
    example_output: str | None = None
    example_output_line: int | None = None
    field_lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def place(self) -> str:
        """Where the card stands: `spec/RETAIN.md:12`."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A clause whose sentence torch fails: the versions, the evidence, the smallest program."""

    id: str
    title: str
    torch: tuple[str, ...]
    source: str
    text: str
    program: str
    path: str
    line: int
    program_line: int


# --- text files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A Markdown file: the path to show, its lines and its tokens."""

    path: str
    lines: Sequence[str]
    tokens: Sequence[Token]

    def error(self, message: str, line: int | None = None) -> GradspecError:
        """An error in this file."""
        return GradspecError(message, path=self.path, line=line)


@dataclass(frozen=True)
class _Section:
    """What stands under one `##` heading; `before` is the text of the paragraph that ends right above it."""

    id: str
    title: str
    line: int
    before: str | None
    tokens: Sequence[Token]


@dataclass(frozen=True)
class _Fields:
    """The checked YAML of a fence, with the line of each key and of the fence."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    line: int


def shown(path: Path) -> str:
    """The path as messages and records show it: the same from a wheel and from a checkout."""
    return f"spec/{path.name}"


def read_text(path: Path) -> str:
    """The text of a file of spec/; GradspecError where it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise GradspecError("the file is missing", path=shown(path)) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise GradspecError(f"the file cannot be read as UTF-8 text: {exc}", path=shown(path)) from None


def read_markdown(path: Path) -> Source:
    """A Markdown file of spec/, in which every fence is closed."""
    text = read_text(path)
    source = Source(shown(path), text.split("\n"), MarkdownIt("commonmark").parse(text))
    for token in source.tokens:
        if token.type == "fence":
            start, end = span(token)
            closing = source.lines[end - 1].strip(" \t>") if end - start > 1 else ""
            if not closing.startswith(token.markup) or closing.strip(token.markup[0]):
                raise source.error("the fence that opens here is never closed", start + 1)
    return source


def span(token: Token) -> tuple[int, int]:
    """First line (from 0) and the line after the last one of a block token."""
    assert token.map is not None, "block tokens of markdown-it-py carry their lines"
    return token.map[0], token.map[1]


def plain(inline: Token) -> str:
    """The text of an inline token without its markup."""
    breaks = ("softbreak", "hardbreak")
    return " ".join("".join(" " if c.type in breaks else c.content for c in inline.children or ()).split())


def _sections(source: Source) -> list[_Section]:
    """The `##` sections. A paragraph `(ID)=` right above a heading belongs to it, not to the section before."""
    tokens = source.tokens
    starts = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == "h2" and t.level == 0]
    before: list[str | None] = []
    for start in starts:
        last = tokens[start - 2] if start > 2 and tokens[start - 1].type == "paragraph_close" else None
        text = " ".join(last.content.split()) if last else ""
        before.append(text if text.endswith(")=") else None)
    sections = []
    for n, start in enumerate(starts):
        end = len(tokens) if n + 1 == len(starts) else starts[n + 1] - (3 if before[n + 1] else 0)
        line = span(tokens[start])[0] + 1
        clause_id, sep, title = plain(tokens[start + 1]).partition(" · ")
        if not sep or not CLAUSE_ID.fullmatch(clause_id) or not title.strip():
            raise source.error("malformed heading: write '## RETAIN-01 · Title', the number with two digits", line)
        sections.append(_Section(clause_id, title.strip(), line, before[n], tokens[start + 3 : end]))
    opening = tokens[: starts[0]] if starts else tokens
    for token in opening:
        if token.type == "fence" and token.info.strip().startswith("{"):
            raise source.error("this fence stands above the first '## ' heading", span(token)[0] + 1)
    return sections


def _fences(source: Source, section: _Section, info: str) -> list[int]:
    """Positions in the section of the fences with that info string; each must stand at the left margin."""
    found = [i for i, t in enumerate(section.tokens) if t.type == "fence" and t.info.strip() == info]
    for i in found:
        if section.tokens[i].level:
            line = span(section.tokens[i])[0] + 1
            raise source.error(f"the {info} fence stands inside a list or quotation: move it to the left margin", line)
    return found


# --- YAML fences --------------------------------------------------------------------------------------------------


@cache
def load_schema(file: str) -> dict[str, Any]:
    """A JSON Schema of the package."""
    schema: dict[str, Any] = json.loads((SCHEMAS / file).read_text(encoding="utf-8"))
    return schema


def violations(data: object, schema: Mapping[str, Any]) -> list[ValidationError]:
    """Everything in `data` that the schema does not allow."""
    return list(Draft202012Validator(schema).iter_errors(data))


def wording(error: ValidationError) -> str:
    """One sentence for a violation of a schema, in the words of those who write cards."""
    rule: Any = error.schema
    limit: Any = error.validator_value
    instance: Any = error.instance
    name = ".".join(str(part) for part in error.absolute_path if isinstance(part, str))
    if error.validator == "additionalProperties":
        known = sorted(rule["properties"])
        unknown = sorted(str(key) for key in instance if key not in known)
        return f"unknown key {unknown[0]!r}{f' in {name}' if name else ''}{nearest(unknown[0], known)}"
    if error.validator == "required":
        missing = next(key for key in limit if key not in instance)
        return f"the key {missing!r} is missing{f' in {name}' if name else ''}"
    if error.validator == "enum":
        return f"{name} is {instance!r}: it must be one of {', '.join(limit)}"
    if error.validator == "type":
        hint = "; put quotes around it" if isinstance(instance, float | int) else ""
        return f"{name} must be of type {limit if isinstance(limit, str) else ' or '.join(limit)}{hint}"
    wanted = rule.get("description")
    if "propertyNames" in error.absolute_schema_path:
        return f"the name {instance!r} must be {wanted}"
    return f"{name} is {instance!r}: it must be {wanted}" if wanted else f"{name}: {error.message}"


def _parse_fields(source: Source, fence: Token, definition: str) -> _Fields:
    first = span(fence)[0] + 2
    try:
        node = yaml.compose(fence.content, Loader=yaml.SafeLoader)
        lines = _key_lines(source, fence, node)
        values = yaml.safe_load(fence.content)
    except yaml.MarkedYAMLError as exc:
        line = first + (exc.problem_mark.line if exc.problem_mark else 0)
        hint = "quote a value that holds ': ', '#' or starts with a sign"
        raise source.error(f"the fence is not YAML: {exc.problem} ({hint})", line) from None
    except (yaml.YAMLError, ValueError) as exc:
        raise source.error(f"the fence is not YAML: {' '.join(str(exc).split())}", first) from None
    schema = load_schema("clause.schema.json")
    found = [
        (_violation_line(error, lines, first - 1), wording(error))
        for error in violations(values, {"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})
    ]
    if found:
        line, message = min(found)
        raise source.error(message, line)
    return _Fields(values, lines, first - 1)


def _violation_line(error: ValidationError, lines: Mapping[str, int], default: int) -> int:
    rule: Any = error.schema
    if error.validator == "additionalProperties":
        return min(line for key, line in lines.items() if key not in rule["properties"])
    return lines.get(str(error.absolute_path[0]), default) if error.absolute_path else default


def _key_lines(source: Source, fence: Token, node: yaml.Node | None) -> dict[str, int]:
    """The line of each key; refuses what YAML would swallow: a key given twice, a value cut off by a comment."""
    first = span(fence)[0] + 2
    if not isinstance(node, yaml.MappingNode):
        raise source.error("the fence must hold 'key: value' lines", first - 1)
    lines: dict[str, int] = {}
    content = fence.content.splitlines()
    for key, value in node.value:
        line = first + key.start_mark.line
        if not isinstance(key, yaml.ScalarNode):
            raise source.error("a key must be one word", line)
        if key.value in lines:
            raise source.error(f"the key {key.value!r} is given twice", line)
        lines[key.value] = line
        end = value.end_mark
        if end.line < len(content) and content[end.line][end.column :].lstrip().startswith("#"):
            raise source.error(f"' #' starts a comment and cuts off the value of {key.value!r}: quote it", line)
    return lines


# --- cards --------------------------------------------------------------------------------------------------------


def parse_chapter(path: Path, features: Mapping[str, Feature]) -> list[Clause]:
    """The cards of one chapter file, each checked for itself (not against other cards).

    Args:
        path: the file; its stem is the chapter's mnemonic.
        features: the features of features.toml by name.

    Raises:
        GradspecError: a card is malformed; the message names file and line.
    """
    source = read_markdown(path)
    cards = []
    for section in _sections(source):
        if section.id.split("-")[0] != path.stem:
            raise source.error(f"{section.id} does not belong into chapter {path.stem}", section.line)
        if section.before != f"({section.id})=":
            found = f", not '{section.before}'" if section.before else ""
            message = f"the paragraph above the heading must be '({section.id})=' alone{found}"
            raise source.error(message, section.line)
        cards.append(_card(source, section, features))
    return cards


def _card(source: Source, section: _Section, features: Mapping[str, Feature]) -> Clause:
    places = _fences(source, section, "{clause}")
    if len(places) != 1 or places[0] != 0:
        raise source.error(f"{section.id} needs one {{clause}} fence right below its heading", section.line)
    fields = _parse_fields(source, section.tokens[0], "clause")
    values = fields.values
    _check_fields(source, section, fields, features)
    sentence = _sentence(source, section, fields)
    needs = tuple(values.get("needs", ()))
    verified = values.get("verified", ())
    chapter, number = section.id.split("-")
    card = Clause(
        id=section.id,
        chapter=chapter,
        number=int(number),
        title=section.title,
        requirement=values["requirement"],
        feature=values["feature"],
        level=max(features[name].level for name in (values["feature"], *needs) if name in features),
        source=values["source"],
        status=values["status"],
        sentence=sentence,
        example="",
        path=source.path,
        line=section.line,
        example_line=0,
        needs=needs,
        verified=(verified,) if isinstance(verified, str) else tuple(verified),
        depends=tuple(values.get("depends", ())),
        implied_by=tuple(values.get("implied_by", ())),
        field_lines=MappingProxyType(dict(fields.lines)),
        **{
            key: values.get(key)
            for key in ("since", "until", "pending_reason", "reference", "error", "split_from", "untested")
        },
    )
    return _with_example(source, section, card)


def _check_fields(source: Source, section: _Section, fields: _Fields, features: Mapping[str, Feature]) -> None:
    """What a schema cannot say: keys that depend on one another, and names that are defined elsewhere."""
    values = fields.values

    def error(key: str, message: str) -> GradspecError:
        return source.error(message, fields.lines.get(key, fields.line))

    if values["feature"] not in features:
        raise error("feature", f"unknown feature {values['feature']!r}{nearest(values['feature'], features)}")
    for need in values.get("needs", ()):
        if problem := _bad_need(need, features):
            raise error("needs", problem)
    pending = values["status"] == "pending"
    if pending and "pending_reason" not in values:
        raise error("status", "a pending card needs the key 'pending_reason': which later feature it waits for")
    if not pending and "pending_reason" in values:
        raise error("pending_reason", f"pending_reason belongs to status pending, not to {values['status']}")
    if not pending and "verified" not in values:
        raise error("verified", "the key 'verified' is missing: the torch versions the card was run on")
    if not pending and values["requirement"] != "TORCH" and "reference" not in values:
        raise error("reference", "the key 'reference' is missing: the place in refgrad, such as engine.py::backward")
    if "untested" in values and values["requirement"] not in ("MAY", "TORCH"):
        raise error("untested", f"a {values['requirement']} card must have a test: 'untested' is for MAY and TORCH")
    if values.get("error", ERROR_KINDS[0]) not in ERROR_KINDS:
        raise error("error", f"unknown error kind {values['error']!r}{nearest(values['error'], ERROR_KINDS)}")
    for key in ("depends", "implied_by"):
        if section.id in values.get(key, ()):
            raise error(key, f"{section.id} names itself in {key}")


def _bad_need(need: str, features: Mapping[str, Feature]) -> str | None:
    kind, colon, name = need.partition(":")
    if not colon:
        act, _, keyword = need.partition(".")
        if need in features or (act in ACTS and keyword in ACTS[act].defaults):
            return None
        return f"{need!r} in needs is neither a feature nor a keyword of the contract{nearest(need, features)}"
    if kind == "rank":
        return None if name.isdigit() else f"{need!r} in needs must give a number, such as rank:2"
    known: Iterable[str] | None = {"op": OPERATIONS, "dtype": DTYPES}.get(kind)
    if known is None:
        return f"{need!r} in needs must begin with op:, dtype: or rank:"
    return None if name in known else f"unknown {kind} {name!r} in needs{nearest(name, known)}"


def _sentence(source: Source, section: _Section, fields: _Fields) -> str:
    """The normative sentence, after its requirement word and its error kind have been checked."""
    tokens = section.tokens
    if len(tokens) < 3 or tokens[1].type != "paragraph_open":
        raise source.error("the first thing below the {clause} fence must be the normative sentence", fields.line)
    inline, line = tokens[2], span(tokens[1])[0] + 1
    text = [child for child in inline.children or () if child.type == "text"]
    letters = "".join(c if c.isalnum() else " " for child in text for c in f" {child.content} ")
    words = [word for word in letters.split() if word in WORDS]
    requirement, error = fields.values["requirement"], fields.values.get("error")
    if requirement == "TORCH" and words:
        raise source.error(f"the sentence of a TORCH card says 'torch ...' and holds no {words[0]}", line)
    if requirement != "TORCH" and len(words) != 1:
        found = ", ".join(words) or "none"
        raise source.error(f"the sentence must hold exactly one of MUST, SHOULD, MAY, not {found}", line)
    if requirement != "TORCH" and words[0] != requirement:
        raise source.error(f"the sentence says {words[0]}, the fence says requirement {requirement}", line)
    if error is not None and error not in _emphasised(inline):
        raise source.error(f"the sentence must hold the error kind as *{error}*", line)
    return plain(inline)


def _emphasised(inline: Token) -> set[str]:
    children = inline.children or []
    return {b.content for a, b in pairwise(children) if a.type == "em_open"}


def _with_example(source: Source, section: _Section, card: Clause) -> Clause:
    places = _fences(source, section, "python")
    outputs = _fences(source, section, "text")
    if len(places) != 1:
        line = span(section.tokens[places[1]])[0] + 1 if places else section.line
        raise source.error(f"{card.id} must have exactly one python fence, its example, not {len(places)}", line)
    fence = section.tokens[places[0]]
    for place in outputs:
        if place != places[0] + 1:
            line = span(section.tokens[place])[0] + 1
            raise source.error("a text fence (the lines printed) must follow the example directly", line)
    output = section.tokens[outputs[0]] if outputs else None
    line = span(fence)[0] + 2
    tree = _compiled(source, fence)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "ag" not in names:
        raise source.error("the example never uses `ag`, the namespace of the implementation", line)
    for module, at in _imports(tree):
        if module in FOREIGN:
            raise source.error(f"the example imports {module}: it must use `ag` alone", line - 1 + at)
    if not any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree)) and not (
        output and output.content.strip()
    ):
        raise source.error("the example claims nothing: it has no assert and no text fence with printed lines", line)
    return replace(
        card,
        example=fence.content,
        example_line=line,
        example_output=output.content if output else None,
        example_output_line=span(output)[0] + 2 if output else None,
    )


def _compiled(source: Source, fence: Token) -> ast.Module:
    line = span(fence)[0] + 2
    try:
        return ast.parse(fence.content)
    except SyntaxError as exc:
        raise source.error(f"the example is not Python: {exc.msg}", line - 1 + (exc.lineno or 1)) from None


def _imports(tree: ast.Module) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name.split(".")[0], node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(((node.module or "").split(".")[0], node.lineno))
    return found


def parse_divergences(path: Path) -> list[Divergence]:
    """The entries of divergences.md, each checked for itself."""
    source = read_markdown(path)
    return [_divergence(source, section) for section in _sections(source)]


def _divergence(source: Source, section: _Section) -> Divergence:
    places = _fences(source, section, "{divergence}")
    if len(places) != 1 or places[0] != 0:
        raise source.error(f"{section.id} needs one {{divergence}} fence right below its heading", section.line)
    fields = _parse_fields(source, section.tokens[0], "divergence")
    if fields.values["clause"] != section.id:
        message = f"the heading says {section.id}, the fence says clause {fields.values['clause']}"
        raise source.error(message, fields.lines["clause"])
    programs = _fences(source, section, "python")
    if len(programs) != 1:
        raise source.error(f"{section.id} must have exactly one python fence, not {len(programs)}", section.line)
    if section.tokens[1].type != "paragraph_open":
        raise source.error(f"{section.id} must say in words what torch does, below the fence", section.line)
    program = section.tokens[programs[0]]
    _compiled(source, program)
    return Divergence(
        id=section.id,
        title=section.title,
        torch=tuple(fields.values["torch"]),
        source=fields.values["source"],
        text=plain(section.tokens[2]),
        program=program.content,
        path=source.path,
        line=section.line,
        program_line=span(program)[0] + 2,
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: " (nearest: a, b)", or nothing."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f" (nearest: {', '.join(close)})" if close else ""
