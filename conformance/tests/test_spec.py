"""The loader of the cards: what it reads, and that every way to write a card wrong is one line with its place."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gradspec.errors import ERROR_KINDS, GradspecError
from gradspec.spec import (
    Clause,
    Spec,
    check_traceability,
    clauses_table,
    explain,
    load_spec,
    parse_chapter,
    reference_exists,
    spec_root,
)

FEATURES = """[ladder]
L0 = "scalar"
L1 = "array"
L2 = "graph"
L3 = "hooks"
L4 = "modules"
L5 = "training"
[features.scalar]
level = "L0"
summary = "numbers"
[features."graph.retain"]
level = "L2"
summary = "freed graphs"
requires = ["scalar"]
[features.unused]
level = "L3"
summary = "no card names it"
"""

CARD = """# RETAIN · Freed graphs

Words for people.

(RETAIN-01)=
## RETAIN-01 · A second `backward` raises

```{clause}
requirement: MUST
feature: graph.retain
needs: ["op:split", gradients.allow_unused]
verified: "2.13.0"
source: torch.autograd.backward, argument retain_graph
status: stable
reference: engine.py::backward
error: graph_freed
```

After a backward that freed `MUST`,
a second one MUST raise *graph_freed*.

**Why.** It MAY be read, and SHOULD.

```python
assert ag.one == 1
print("refused")
```

```text
refused
```

More prose.
"""

SECOND = """
(RETAIN-02)=
## RETAIN-02 · May pass again

```{clause}
requirement: MAY
feature: scalar
verified: ["2.12.0", "2.13.0"]
source: docs silent
depends: [RETAIN-01]
status: provisional
reference: engine.py::Tape.walk
untested: tried on three operations
```

It MAY pass again.

```python
assert ag
```
"""

DIVERGENCE = """# Divergences

## RETAIN-01 · torch does not

```{divergence}
clause: RETAIN-01
torch: ["2.13.0"]
source: pytorch/pytorch#34082
```

It adds twice.

```python
import torch
```
"""


def write(
    root: Path,
    card: str = CARD,
    *,
    features: str = FEATURES,
    omitted: str = "# Omitted\n\n- RETAIN-09: doubled\n",
    divergences: str = DIVERGENCE,
    name: str = "RETAIN.md",
) -> Path:
    """A whole spec/ with one chapter."""
    files = {name: card, "features.toml": features, "omitted.md": omitted, "divergences.md": divergences}
    for file, text in files.items():
        (root / file).write_text(text, encoding="utf-8")
    (root / "README.md").write_text("## no card at all\n", encoding="utf-8")
    return root


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """A spec of two cards, one divergence, one omitted row."""
    return load_spec(write(tmp_path, CARD + SECOND))


def test_a_card_is_read_whole(spec: Spec) -> None:
    """Every field comes from its place in the file."""
    clause = spec.clauses["RETAIN-01"]
    assert clause == Clause(
        id="RETAIN-01",
        chapter="RETAIN",
        number=1,
        title="A second backward raises",
        requirement="MUST",
        feature="graph.retain",
        level="L2",
        needs=("op:split", "gradients.allow_unused"),
        verified=("2.13.0",),
        source="torch.autograd.backward, argument retain_graph",
        status="stable",
        reference="engine.py::backward",
        error="graph_freed",
        sentence="After a backward that freed MUST, a second one MUST raise graph_freed.",
        example='assert ag.one == 1\nprint("refused")\n',
        example_output="refused\n",
        path="spec/RETAIN.md",
        line=6,
        example_line=25,
        example_output_line=30,
    )
    assert clause.place == "spec/RETAIN.md:6"
    assert CARD.splitlines()[clause.example_line - 1] == "assert ag.one == 1"


def test_the_other_files_are_read(spec: Spec) -> None:
    """Features, omitted rows and divergences, with their lines."""
    assert list(spec.clauses) == ["RETAIN-01", "RETAIN-02"]
    assert spec.clauses["RETAIN-02"].verified == ("2.12.0", "2.13.0")
    assert spec.features["graph.retain"].requires == ("scalar",)
    assert spec.unused_features() == ("unused",)
    assert (dict(spec.omitted), dict(spec.omitted_lines)) == ({"RETAIN-09": "doubled"}, {"RETAIN-09": 3})
    entry = spec.divergences["RETAIN-01"]
    assert (entry.torch, entry.source, entry.text) == (("2.13.0",), "pytorch/pytorch#34082", "It adds twice.")
    assert (entry.program, entry.line, entry.program_line) == ("import torch\n", 3, 14)


def test_the_level_is_the_highest_of_feature_and_needs(tmp_path: Path) -> None:
    """A card of an easy feature that needs a hard one stands where the hard one stands."""
    text = CARD.replace("graph.retain", "scalar").replace('["op:split"', '["graph.retain"')
    assert load_spec(write(tmp_path, text)).clauses["RETAIN-01"].level == "L2"


def test_clauses_are_ordered_by_chapter_and_number(tmp_path: Path) -> None:
    """A card that stands beside the one it was split from is sorted all the same."""
    write(tmp_path, CARD.replace("RETAIN-01", "RETAIN-100") + SECOND.replace("RETAIN-01", "RETAIN-100"), divergences="")
    assert list(load_spec(tmp_path).clauses) == ["RETAIN-02", "RETAIN-100"]


def test_a_spec_is_loaded_once(tmp_path: Path) -> None:
    """The second call gives the first one's object, by whatever spelling of the folder."""
    write(tmp_path)
    assert load_spec(tmp_path) is load_spec(tmp_path / ".." / tmp_path.name)


def test_a_torch_card_and_a_pending_card_need_less(tmp_path: Path) -> None:
    """TORCH holds no requirement word; what waits for a later feature has no place in refgrad yet."""
    text = CARD.replace("requirement: MUST", "requirement: TORCH").replace("one MUST raise", "torch raises")
    pending = SECOND.replace("provisional", "pending\npending_reason: needs hooks").replace("verified", "since")
    pending = pending.replace("reference: engine.py::Tape.walk\n", "").replace('["2.12.0", "2.13.0"]', '"2.13"')
    spec = load_spec(write(tmp_path, text.replace("reference: engine.py::backward\n", "") + pending))
    assert spec.clauses["RETAIN-01"].reference is None
    assert spec.clauses["RETAIN-02"].pending_reason == "needs hooks"
    assert (spec.clauses["RETAIN-02"].since, spec.clauses["RETAIN-02"].verified) == ("2.13", ())


def test_must_not_counts_as_must(tmp_path: Path) -> None:
    """The word before NOT is the requirement."""
    spec = load_spec(write(tmp_path, CARD.replace("one MUST raise", "one **MUST** NOT raise")))
    assert "MUST NOT" in spec.clauses["RETAIN-01"].sentence


def test_a_raise_is_a_claim_too(tmp_path: Path) -> None:
    """`else: raise AssertionError` is how an example says that nothing was refused."""
    text = CARD.replace("assert ag.one == 1", "if not ag: raise AssertionError").replace("```text\nrefused\n```\n", "")
    assert load_spec(write(tmp_path, text)).clauses["RETAIN-01"].example_output is None


# (what is wrong, what to replace in CARD, by what, the line, a part of the message)
MALFORMED = [
    ("heading without dot", "01 · A", "01 - A", 6, "malformed heading"),
    ("heading without title", "01 · A second `backward` raises", "01 ·", 6, "malformed heading"),
    ("one digit", "## RETAIN-01", "## RETAIN-1", 6, "malformed heading"),
    ("three digits", "## RETAIN-01", "## RETAIN-001", 6, "malformed heading"),
    ("no target", "(RETAIN-01)=\n", "", 5, "the paragraph above the heading must be '(RETAIN-01)='"),
    ("other target", "(RETAIN-01)=", "(RETAIN-02)=", 6, "'(RETAIN-01)=' alone, not '(RETAIN-02)='"),
    ("target in prose", "people.\n\n(", "people.\n(", 5, "alone, not 'Words for people. (RETAIN-01)='"),
    ("other chapter", "RETAIN-01", "GRAD-01", 6, "GRAD-01 does not belong into chapter RETAIN"),
    ("no clause fence", "{clause}", "yaml", 6, "needs one {clause} fence right below"),
    ("fence too late", "raises\n\n```{", "raises\n\nProse.\n\n```{", 6, "needs one {clause} fence right below"),
    ("fence above cards", "Words for people.", "```{clause}\n```", 3, "stands above the first"),
    ("unclosed fence", "refused\n```\n\nMore", "refused\n\nMore", 29, "never closed"),
    ("unclosed, ends with a mark", "refused\n```\n\nMore prose.", "refused\n```x", 29, "never closed"),
    ("not YAML", "source: torch", "source: a: torch", 13, "is not YAML: mapping values are not allowed here"),
    ("not a mapping", "```{clause}", "```{clause}\n- x\n```\n\n```yaml", 8, "'key: value' lines"),
    ("empty fence", "```{clause}", "```{clause}\n```\n\n```yaml", 8, "'key: value' lines"),
    ("key twice", "status: stable", "status: stable\nstatus: stable", 15, "the key 'status' is given twice"),
    ("key is a list", "status: stable", "[a]: stable", 14, "a key must be one word"),
    ("cut off by comment", "source: torch", "source: issue #3, torch", 13, "cuts off the value of 'source'"),
    ("unknown key", "status:", "statuz: x\nstatus:", 14, "unknown key 'statuz' (nearest: status)"),
    ("missing key", "status: stable\n", "", 8, "the key 'status' is missing"),
    ("bad requirement", "requirement: MUST", "requirement: HAS", 9, "must be one of MUST, SHOULD, MAY, TORCH"),
    ("bad status", "status: stable", "status: done", 14, "must be one of stable, provisional"),
    ("number for version", '"2.13.0"', "2.13", 12, "verified must be of type string or array; put quotes"),
    ("bad version", '"2.13.0"', '"new"', 12, "verified is 'new': it must be a torch version"),
    ("empty list", "status:", "depends: []\nstatus:", 14, "depends: [] should be non-empty"),
    ("unknown feature", "graph.retain", "graph.retian", 10, "unknown feature 'graph.retian' (nearest: graph.retain)"),
    ("unknown need", '["op:split"', "[scaler", 11, "'scaler' in needs is neither a feature nor a keyword"),
    ("unknown keyword", "gradients.allow_unused", "gradients.seed", 11, "'gradients.seed' in needs is neither"),
    ("unknown operation", "op:split", "op:spilt", 11, "unknown op 'spilt' in needs (nearest: split)"),
    ("unknown dtype", "op:split", "dtype:float65", 11, "unknown dtype 'float65' in needs"),
    ("unknown kind of need", "op:split", "host:x", 11, "must begin with op:, dtype: or rank:"),
    ("rank without number", "op:split", "rank:two", 11, "must give a number"),
    ("unknown error kind", "error: graph_freed", "error: graph_fred", 16, "(nearest: graph_freed"),
    ("error not in sentence", "*graph_freed*", "graph_freed", 19, "must hold the error kind as *graph_freed*"),
    ("pending, no reason", "status: stable", "status: pending", 14, "needs the key 'pending_reason'"),
    ("reason, not pending", "status:", "pending_reason: x\nstatus:", 14, "belongs to status pending"),
    ("no verified", 'verified: "2.13.0"\n', "", 8, "the key 'verified' is missing"),
    ("no reference", "reference: engine.py::backward\n", "", 8, "the key 'reference' is missing"),
    ("bad reference", "engine.py::backward", "engine.py", 15, "it must be FILE.py::FUNCTION"),
    ("MUST untested", "status:", "untested: hard\nstatus:", 14, "a MUST card must have a test"),
    ("depends on itself", "status:", "depends: [RETAIN-01]\nstatus:", 14, "RETAIN-01 names itself in depends"),
    ("implied by itself", "status:", "implied_by: [RETAIN-01]\nstatus:", 14, "names itself in implied_by"),
    ("depends on nothing", "status:", "depends: [RETAIN-07]\nstatus:", 14, "RETAIN-07 in depends, which has no card"),
    ("depends on omitted", "status:", "depends: [RETAIN-09]\nstatus:", 14, "which was omitted"),
    ("implied by nothing", "status:", "implied_by: [A-01]\nstatus:", 14, "A-01 in implied_by, which has no card"),
    ("split from nothing", "status:", "split_from: A-01\nstatus:", 14, "split from A-01, which has no card"),
    ("no word", "one MUST raise", "one raises", 19, "exactly one of MUST, SHOULD, MAY, not none"),
    ("two words", "one MUST raise", "one MUST or MAY raise", 19, "not MUST, MAY"),
    ("other word", "one MUST raise", "one SHOULD raise", 19, "says SHOULD, the fence says requirement MUST"),
    ("word in a TORCH card", "requirement: MUST", "requirement: TORCH", 19, "holds no MUST"),
    ("no sentence", "After a", "- After a", 8, "must be the normative sentence"),
    ("no example", "```python", "```py", 6, "exactly one python fence, its example, not 0"),
    ("two examples", "More prose.", "```python\nag\n```", 33, "exactly one python fence, its example, not 2"),
    ("example in a list", "```python\n", "- x\n\n  ```python\n  ```\n\n```python\n", 26, "inside a list"),
    ("text away from example", "```text", "Prints:\n\n```text", 31, "must follow the example directly"),
    ("syntax error", 'print("refused")', "print(", 26, "the example is not Python"),
    ("no ag", "ag.one", "one", 25, "never uses `ag`"),
    ("imports torch", 'print("', 'import torch.nn; print("', 26, "the example imports torch"),
    ("imports from refgrad", 'print("', 'from refgrad import add; print("', 26, "the example imports refgrad"),
    ("no claim", "assert ag.one == 1\nprint", "ag.one\nprint", 25, "claims nothing"),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"), [row[1:] for row in MALFORMED], ids=[r[0] for r in MALFORMED]
)
def test_a_malformed_card_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    """What is wrong, in which file, in which line."""
    text = CARD.replace(old, new)
    if message.endswith("claims nothing"):
        text = text.replace("refused\n```", "\n```")
    assert text != CARD
    with pytest.raises(GradspecError) as caught:
        load_spec(write(tmp_path, text))
    assert str(caught.value).startswith(f"spec/RETAIN.md:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_duplicate_id_names_both_places(tmp_path: Path) -> None:
    """Two cards with one id."""
    with pytest.raises(GradspecError, match=r"^spec/RETAIN.md:36: RETAIN-01 has a card already, at spec/RETAIN.md:6$"):
        load_spec(
            write(tmp_path, CARD + SECOND.replace("RETAIN-02", "RETAIN-01").replace("depends: [RETAIN-01]\n", ""))
        )


def test_a_circle_of_dependencies_is_shown(tmp_path: Path) -> None:
    """The circle is written out, from the smallest id on, at its `depends`."""
    text = CARD.replace("status:", "depends: [RETAIN-02]\nstatus:") + SECOND
    with pytest.raises(GradspecError) as caught:
        load_spec(write(tmp_path, text))
    wanted = "spec/RETAIN.md:14: depends runs in a circle: RETAIN-01 -> RETAIN-02 -> RETAIN-01"
    assert str(caught.value) == wanted


OTHER_FILES: list[tuple[str, dict[str, str], str, str]] = [
    ("bad level", {"features": FEATURES.replace('"L0"\ns', '"L9"\ns')}, "features.toml:8", "level is 'L9'"),
    ("not TOML", {"features": FEATURES + "x\n[a]\n"}, "features.toml:18", "the file is not TOML"),
    ("no ladder", {"features": FEATURES.replace("[ladder]", "[x]")}, "features.toml", "unknown key 'x'"),
    ("rung missing", {"features": FEATURES.replace("L5", "L6")}, "features.toml:1", "unknown key 'L6'"),
    ("dotted", {"features": FEATURES.replace('"graph.retain"', "unused.b")}, "features.toml:15", "quote a name"),
    ("capitals", {"features": FEATURES.replace(".unused", ".Unused")}, "features.toml", "the name 'Unused' must be"),
    ("requires", {"features": FEATURES.replace('["scalar"]', '["x"]')}, "features.toml:11", "unknown feature 'x'"),
    ("higher", {"features": FEATURES.replace('["scalar"]', '["unused"]')}, "features.toml:11", "a higher level"),
    ("omitted, no reason", {"omitted": "- RETAIN-08\n"}, "omitted.md:1", "malformed entry"),
    ("omitted, no id", {"omitted": "\n- RETAIN: x\n"}, "omitted.md:2", "malformed entry"),
    ("omitted twice", {"omitted": "- A-01: x\n- A-01: y\n"}, "omitted.md:2", "listed already, in line 1"),
    ("unknown", {"divergences": DIVERGENCE.replace("-01", "-07")}, "divergences.md:3", "RETAIN-07 has no card"),
    ("other id", {"divergences": DIVERGENCE.replace(": RETAIN-01", ": A-01")}, "divergences.md:6", "clause A-01"),
    ("no version", {"divergences": DIVERGENCE.replace('"2.13.0"', "")}, "divergences.md:7", "torch: []"),
    ("no fence", {"divergences": DIVERGENCE.replace("{div", "{dif")}, "divergences.md:3", "{divergence} fence"),
    ("no words", {"divergences": DIVERGENCE.replace("It adds twice.", "")}, "divergences.md:3", "say in words"),
    ("no program", {"divergences": DIVERGENCE.replace("python", "sh")}, "divergences.md:3", "one python fence"),
    ("bad program", {"divergences": DIVERGENCE.replace("import torch", "import")}, "divergences.md:14", "not Python"),
    ("twice", {"divergences": DIVERGENCE + DIVERGENCE[15:]}, "divergences.md:16", "an entry already, in line 3"),
    ("mixed case", {"name": "Retain.md"}, "Retain.md", "name a chapter in capitals"),
]


@pytest.mark.parametrize(("files", "place", "message"), [r[1:] for r in OTHER_FILES], ids=[r[0] for r in OTHER_FILES])
def test_the_other_files_are_checked_too(tmp_path: Path, files: dict[str, str], place: str, message: str) -> None:
    """features.toml, omitted.md, divergences.md and the names of files."""
    with pytest.raises(GradspecError) as caught:
        load_spec(write(tmp_path, **files))
    assert str(caught.value).startswith(f"spec/{place}: ")
    assert message in str(caught.value)


def test_a_missing_and_an_unreadable_file_are_named(tmp_path: Path) -> None:
    """No traceback for either."""
    (write(tmp_path) / "omitted.md").unlink()
    with pytest.raises(GradspecError, match=r"^spec/omitted.md: the file is missing$"):
        load_spec(tmp_path)
    (tmp_path / "omitted.md").write_bytes(b"\xff")
    with pytest.raises(GradspecError, match=r"^spec/omitted.md: the file cannot be read as UTF-8"):
        load_spec(tmp_path)


def test_spec_root_prefers_the_packaged_copy(tmp_path: Path) -> None:
    """A wheel has _spec inside the package, a checkout has spec/ two levels above."""
    package = tmp_path / "conformance" / "gradspec"
    package.mkdir(parents=True)
    with pytest.raises(GradspecError, match="install gradspec again"):
        spec_root(package)
    (tmp_path / "spec").mkdir()
    assert spec_root(package) == tmp_path / "spec"
    (package / "_spec").mkdir()
    assert spec_root(package) == package / "_spec"


def test_the_spec_of_this_package_is_found() -> None:
    """Wherever this package was installed from, its own spec has a ladder of six levels and features on it."""
    assert (spec_root() / "features.toml").is_file()
    spec = load_spec()
    assert list(spec.ladder) == ["L0", "L1", "L2", "L3", "L4", "L5"]
    assert spec.features["scalar"].level == "L0"


def test_the_card_shown_to_authors_is_valid(tmp_path: Path) -> None:
    """The example in spec/README.md is what the loader takes."""
    text = (spec_root() / "README.md").read_text(encoding="utf-8")
    (tmp_path / "RETAIN.md").write_text(text.split("````\n")[1], encoding="utf-8")
    (clause,) = parse_chapter(tmp_path / "RETAIN.md", load_spec().features)
    assert (clause.error, clause.example_output) == ("graph_freed", "refused\n")


def test_the_table_is_json(spec: Spec) -> None:
    """Every row survives a round trip, and the divergence shows."""
    rows = clauses_table(spec)
    assert json.loads(json.dumps(rows)) == rows
    assert [(r["id"], r["level"], r["divergence"]) for r in rows] == [
        ("RETAIN-01", "L2", ["2.13.0"]),
        ("RETAIN-02", "L0", []),
    ]


def test_explain_tells_the_whole_card(spec: Spec) -> None:
    """Sentence, level, feature, source, status, example, divergence; small letters will do."""
    text = explain(spec, "retain-01")
    for part in (
        "# RETAIN-01 · A second backward raises",
        spec.clauses["RETAIN-01"].sentence,
        "- level: L2 (graph)",
        "- feature: graph.retain (freed graphs)",
        "- source: torch.autograd.backward, argument retain_graph",
        "- status: stable",
        "assert ag.one == 1",
        "```text\nrefused\n```",
        "**torch 2.13.0 fails this clause** (pytorch/pytorch#34082; spec/divergences.md:3). It adds twice.",
    ):
        assert part in text
    assert "- depends on: RETAIN-01" in spec.explain("RETAIN-02")
    assert "fails" not in spec.explain("RETAIN-02")


def test_explain_of_an_unknown_id_suggests_the_nearest(spec: Spec) -> None:
    """A slip gets the nearest ids, an omitted row its reason."""
    with pytest.raises(GradspecError, match=r"there is no clause 'RETIAN-01' \(nearest: RETAIN-01, RETAIN-02\)"):
        explain(spec, "RETIAN-01")
    with pytest.raises(GradspecError, match=r"RETAIN-09 was omitted \(spec/omitted.md:3\): doubled"):
        explain(spec, "RETAIN-09")


def test_a_traceable_spec_has_no_findings(spec: Spec) -> None:
    """Every card has its test, the error card its error test."""
    spec = replace(spec, omitted={}, omitted_lines={})
    assert check_traceability(spec, {"t.py::a": ("RETAIN-01",)}, {"RETAIN-01"}) == []


A, B = "RETAIN-01", "RETAIN-02"
GOOD: dict[str, tuple[str, ...]] = {"t.py::a": (A,)}
FINDINGS: list[tuple[str, dict[str, tuple[str, ...]], set[str], dict[str, dict[str, Any]], str]] = [
    ("no test", {}, {A}, {}, f"spec/RETAIN.md:6: {A} is MUST and has no test"),
    ("unknown", {**GOOD, "t.py::b": ("RETIAN-01",)}, {A}, {}, "t.py::b: there is no clause 'RETIAN-01' (nearest"),
    ("nothing named", {**GOOD, "t.py::b": ()}, {A}, {}, "t.py::b: the test names no clause"),
    ("neither", GOOD, {A}, {B: {"untested": None}}, f"spec/RETAIN.md:36: {B} is MAY and has neither a test nor"),
    ("both", {"t": (A, B)}, {A}, {}, f"spec/RETAIN.md:36: {B} has a test: take away its line 'untested'"),
    ("no error test", GOOD, set(), {}, f"spec/RETAIN.md:6: {A} has the error kind graph_freed and no test that"),
    ("unknown error test", GOOD, {A, "X-01"}, {}, "an error test: there is no clause 'X-01'"),
]


@pytest.mark.parametrize(
    ("tests", "refused", "changes", "finding"), [r[1:] for r in FINDINGS], ids=[r[0] for r in FINDINGS]
)
def test_an_untraceable_spec_is_told(
    spec: Spec,
    tests: dict[str, tuple[str, ...]],
    refused: set[str],
    changes: dict[str, dict[str, Any]],
    finding: str,
) -> None:
    """Each gap between cards and tests is exactly one line."""
    clauses = {key: replace(clause, **changes.get(key, {})) for key, clause in spec.clauses.items()}
    found = check_traceability(replace(spec, clauses=clauses, omitted={}, omitted_lines={}), tests, refused)
    assert [line.startswith(finding) for line in found] == [True]


def test_an_untested_card_needs_no_error_test(spec: Spec) -> None:
    """Its line says already why there is none."""
    clauses = {B: replace(spec.clauses[B], error="not_leaf")}
    assert check_traceability(replace(spec, clauses=clauses, omitted={}, omitted_lines={}), {}, set()) == []


def test_a_pending_card_needs_no_test_yet(spec: Spec) -> None:
    """It waits for a feature of a later time."""
    pending = {A: replace(spec.clauses[A], status="pending")}
    assert check_traceability(replace(spec, clauses=pending, omitted={}, omitted_lines={}), {}, set()) == []


def chapter(spec: Spec, musts: int, mays: int, untested: int) -> dict[str, Clause]:
    """A chapter of that many cards, all but the first `untested` MAY cards without the line."""
    must, may = spec.clauses[A], spec.clauses[B]
    rows = [replace(must, error=None)] * musts + [may] * untested + [replace(may, untested=None)] * (mays - untested)
    return {f"RETAIN-{n:02d}": replace(row, id=f"RETAIN-{n:02d}", number=n) for n, row in enumerate(rows, 1)}


@pytest.mark.parametrize(("mays", "untested", "fine"), [(3, 1, True), (3, 2, False), (20, 2, True), (20, 3, False)])
def test_one_in_ten_may_stay_untested(spec: Spec, mays: int, untested: int, *, fine: bool) -> None:
    """Of a chapter's MAY and TORCH cards a tenth, and one in any case."""
    clauses = chapter(spec, 0, mays, untested)
    tests = {clause_id: (clause_id,) for clause_id, clause in clauses.items() if not clause.untested}
    found = check_traceability(replace(spec, clauses=clauses, omitted={}, omitted_lines={}), tests, set())
    assert [f"{untested} of the {mays} MAY and TORCH cards" in line for line in found] == ([] if fine else [True])


@pytest.mark.parametrize(("musts", "omitted", "fine"), [(97, 3, True), (96, 3, False), (33, 1, True), (32, 1, False)])
def test_three_in_a_hundred_may_be_omitted(spec: Spec, musts: int, omitted: int, *, fine: bool) -> None:
    """Of a chapter's MUST and SHOULD rows, cards and omitted ones together."""
    clauses = chapter(spec, musts, 0, 0)
    gone = {f"RETAIN-{n}": "doubled" for n in range(500, 500 + omitted)}
    lines = {clause_id: n for n, clause_id in enumerate(gone, 3)}
    tests = {"t": tuple(clauses)}
    found = check_traceability(replace(spec, clauses=clauses, omitted=gone, omitted_lines=lines), tests, set())
    wanted = f"spec/omitted.md:3: {omitted} of the {musts + omitted} MUST and SHOULD rows of RETAIN are omitted"
    assert [line.startswith(wanted) for line in found] == ([] if fine else [True])


def test_an_omitted_row_has_no_card(spec: Spec) -> None:
    """An id is either omitted or a card."""
    both = replace(spec, omitted={A: "doubled"}, omitted_lines={A: 3})
    found = check_traceability(both, GOOD, {A})
    assert found == [f"spec/omitted.md:3: {A} is omitted here and has a card at spec/RETAIN.md:6"]


def test_a_reference_names_a_place_that_exists(tmp_path: Path) -> None:
    """Functions, classes, methods and nested classes, in folders too; names in the text do not count."""
    (tmp_path / "nn").mkdir()
    text = "def walk():\n def step(): ...\nclass Tape:\n class Node: ...\n async def run(self): ...\n# def gone\n"
    (tmp_path / "nn" / "engine.py").write_text(text, encoding="utf-8")
    for good in ("walk", "Tape", "Tape.run", "Tape.Node"):
        assert reference_exists(f"nn/engine.py::{good}", tmp_path)
    for bad in ("nn/engine.py::gone", "nn/engine.py::Tape.walk", "nn/engine.py::walk.step", "engine.py::walk"):
        assert not reference_exists(bad, tmp_path)
    assert not reference_exists("nn/engine.py", tmp_path)


def test_errors_show_their_place_and_survive_pickling() -> None:
    """Workers send them to the controller."""
    error = pickle.loads(pickle.dumps(GradspecError("bad", path=Path("spec") / "A.md", line=3)))  # noqa: S301
    assert (str(error), error.message, error.path, error.line) == ("spec/A.md:3: bad", "bad", "spec/A.md", 3)
    assert str(GradspecError("bad", path="x.py")) == "x.py: bad"
    assert str(GradspecError("bad")) == "bad"
    assert len(set(ERROR_KINDS)) == len(ERROR_KINDS)
