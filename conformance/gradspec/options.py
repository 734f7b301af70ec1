"""What a run was asked for, checked: the same for the plug-in and for `gradspec check`."""

from __future__ import annotations

import difflib
import json
import math
import os
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradspec.engine import EXAMPLES, stable_hash
from gradspec.errors import GradspecError
from gradspec.programs.program import Case, MalformedCase
from gradspec.report.record import Selection
from gradspec.spec import Spec, load_spec

REQUIREMENTS = ("MUST", "SHOULD", "MAY", "TORCH")
LARGEST_SEED = 2**63 - 1
TIMEOUT = 30.0
"""Seconds that one example may take: a thousand times what the slowest needs."""


@dataclass(frozen=True)
class Options:
    """A run as asked for.

    Attributes:
        adapter: as the user wrote it. spec: the spec.
        selection: the words of the selection. selected: the ids that it selects, in the order of the spec.
        seed, profile, strict: as in `gradspec check`.
        expect: a file of expectations; None takes the one that is shipped for the implementation, if any.
        case_file, case: run the one case in this file only.
        shard: the part of the selection that is run, as (2, 3) for the second of three.
        python: the interpreter that the implementation is served from; None for the one that runs the suite.
        timeout: seconds that one example may take; 0 for no limit.
        memory: MiB that a process may use; 0 for no limit, None for its share of the machine.
    """

    adapter: str
    spec: Spec
    selection: Selection
    selected: tuple[str, ...]
    seed: int = 0
    profile: str = "default"
    strict: bool = False
    expect: str | None = None
    case_file: str | None = None
    case: Case | None = None
    shard: tuple[int, int] | None = None
    python: str | None = None
    timeout: float = 0.0
    memory: int | None = None


def resolve(
    adapter: str,
    *,
    level: str | None = None,
    requirement: Iterable[str] = (),
    feature: Iterable[str] = (),
    chapter: Iterable[str] = (),
    clause: Iterable[str] = (),
    seed: int | str = 0,
    profile: str = "default",
    strict: bool = False,
    expect: str | os.PathLike[str] | None = None,
    case: str | os.PathLike[str] | None = None,
    shard: str | None = None,
    python: str | None = None,
    timeout: float | str = 0.0,
    memory: int | str | None = None,
) -> Options:
    """Check every option and select the clauses.

    Raises:
        GradspecError: an option names something that does not exist; the message names the nearest that does.
    """
    spec = load_spec()
    selection = Selection(
        level=None if level is None else one_of("level", level.upper(), spec.ladder),
        requirement=tuple(one_of("requirement", r.upper(), REQUIREMENTS) for r in requirement),
        feature=tuple(one_of("feature", f, spec.features) for f in feature),
        chapter=tuple(one_of("chapter", c.upper(), spec.chapters()) for c in chapter),
        clause=tuple(spec.clause(c).id for c in clause),
    )
    one_of("profile", profile, EXAMPLES)
    if case is not None and len(selection.clause) != 1:
        raise GradspecError("a case is replayed for one clause: name it, as --clause RETAIN-01 --case FILE")
    part = None if shard is None else read_shard(shard)
    return Options(
        adapter,
        spec,
        selection,
        part_of(select(spec, selection), part),
        seed=number_of(seed),
        profile=profile,
        strict=strict,
        expect=None if expect is None else os.fspath(expect),
        case_file=None if case is None else os.fspath(case),
        case=None if case is None else read_case(Path(case)),
        shard=part,
        python=python,
        timeout=_limit("timeout", timeout, "seconds"),
        memory=None if memory is None else int(_limit("memory", memory, "MiB")),
    )


def select(spec: Spec, selection: Selection) -> tuple[str, ...]:
    """The ids of the clauses that satisfy every part of the selection; GradspecError where there is none."""
    chosen = tuple(
        clause.id
        for clause in spec.clauses.values()
        if (selection.level is None or clause.level <= selection.level)
        and (not selection.requirement or clause.requirement in selection.requirement)
        and (not selection.feature or {clause.feature, *clause.needs}.intersection(selection.feature))
        and (not selection.chapter or clause.chapter in selection.chapter)
        and (not selection.clause or clause.id in selection.clause)
    )
    if not chosen:
        raise GradspecError("no clause satisfies the whole selection: leave one of its options out")
    return chosen


def read_shard(text: str) -> tuple[int, int]:
    """The part that "2/3" names; GradspecError where it names none."""
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text.strip())
    if found is None or int(found[1]) > int(found[2]):
        raise GradspecError(f"--shard {text}: write I/N with I from 1 to N, such as 2/3")
    return int(found[1]), int(found[2])


def part_of(selected: tuple[str, ...], shard: tuple[int, int] | None) -> tuple[str, ...]:
    """The clauses of one shard: by a hash of the id, so that a clause never moves when others come or go."""
    if shard is None:
        return selected
    number, of = shard
    return tuple(clause for clause in selected if stable_hash(clause) % of == number - 1)


def _limit(name: str, given: float | str, unit: str) -> float:
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise GradspecError(f"--{name} {given}: write a number of {unit}, or 0 for no limit")
    return number


def number_of(seed: int | str) -> int:
    """The seed as a number; "random" draws one."""
    if seed == "random":
        return random.SystemRandom().randrange(2**32)
    try:
        number = int(seed)
    except ValueError:
        raise GradspecError(f"the seed {seed!r} is neither a number nor the word random") from None
    if not 0 <= number <= LARGEST_SEED:
        raise GradspecError(f"the seed {seed} is not between 0 and {LARGEST_SEED}")
    return number


def read_case(path: Path) -> Case:
    """The case in a file of JSON; GradspecError where the file holds none."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GradspecError(f"the case cannot be read: {error.strerror}", path=path) from None
    except ValueError as error:
        raise GradspecError(f"the case is not JSON: {error}", path=path) from None
    try:
        return Case.from_json(data)
    except MalformedCase as error:
        raise GradspecError(str(error), path=path) from None


def one_of(what: str, given: str, known: Iterable[str] | Mapping[str, Any]) -> str:
    """The name that was given, if it is known; GradspecError with the nearest ones where it is not."""
    names = list(known)
    if given in names:
        return given
    close = difflib.get_close_matches(given, names, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names) or 'none'}"
    raise GradspecError(f"there is no {what} {given!r}: {hint}")
