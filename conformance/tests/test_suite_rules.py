"""House rules of the suite's tests, over their syntax trees; each rule is shown a text that breaks it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gradspec.suite
import pytest
from gradspec.adapter import ACTS
from gradspec.suite.support import suite_tests

LINTS: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("lints.py")))
SUITE = Path(gradspec.suite.__file__).parent
TESTS = sorted(SUITE.glob("test_*.py"))
EVERYTHING = LINTS["drawing_files"](SUITE.parent)
OF_TESTS = ("docstrings", "lengths", "decorators", "statements", "ids", "twins")
OF_ALL = ("closures", "identities")


def breaches(rule: str, text: str) -> list[str]:
    found: list[str] = LINTS[rule](text)
    return found


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", OF_TESTS)
def test_tests_keep_the_rules(rule: str, path: Path) -> None:
    assert breaches(rule, path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: f"{path.parent.name}.{path.stem}")
@pytest.mark.parametrize("rule", OF_ALL)
def test_the_suite_keeps_the_rules(rule: str, path: Path) -> None:
    assert breaches(rule, path.read_text("utf-8")) == []


def test_every_test_is_seen() -> None:
    seen = {f"{path.name}::{test.name}" for path in TESTS for test in LINTS["suite_functions"](path.read_text("utf-8"))}
    assert seen == {test.name for test in suite_tests()}
    assert len(seen) > 30


GOOD = '''
@clause("RETAIN-01", "RETAIN-03")
@given(graphs(saves=True))
def test_good(impl, case):
    """One pass is refused, and the other is not."""
    run = build(impl, case)
    with refused(impl, "RETAIN-01", "graph_freed"):
        run.backward()
    with twin(impl, "RETAIN-01"):
        run.backward()
    slots_follow(impl, case, keep="RETAIN-03")
    impl.register_hook(run.root, scale(2.0))
    impl.backward(run.root, tensor(impl, ones(impl.shape(run.root))))
'''
SECOND = "\n    with refused(impl, 'RETAIN-03', 'graph_freed'):\n        run.backward()"
BAD = [
    ("docstrings", '    """One pass is refused, and the other is not."""\n', ""),
    ("docstrings", "is not.", "is not. So it is."),
    ("docstrings", "is not.", "is not"),
    ("docstrings", "is not.", "is not,\n    or is it."),
    ("lengths", "\n    run = build(impl, case)", 17 * "\n    run = build(impl, case)"),
    ("decorators", "@given(graphs(saves=True))\n", ""),
    ("decorators", '@clause("RETAIN-01", "RETAIN-03")\n@given(graphs(saves=True))', '@given(x)\n@clause("RETAIN-01")'),
    ("decorators", '@clause("RETAIN-01", "RETAIN-03")', "@clause(NAME)"),
    ("decorators", '@clause("RETAIN-01", "RETAIN-03")', "@clause()"),
    ("decorators", '"RETAIN-01", "RETAIN-03"', '"Retain-1"'),
    ("decorators", "@given(graphs", "@slow\n@given(graphs"),
    ("statements", "    run = build(impl, case)", "    try:\n        run = 1\n    finally:\n        pass"),
    ("statements", "run = build(impl, case)", "print(impl)"),
    ("statements", "run = build(impl, case)", "global run"),
    ("statements", "    run = build(impl, case)", "    def build(x):\n        return x"),
    ("ids", '"RETAIN-01", "RETAIN-03"', '"RETAIN-01"'),
    ("ids", '"RETAIN-01", "RETAIN-03"', '"RETAIN-01", "RETAIN-03", "RETAIN-04"'),
    ("twins", 'twin(impl, "RETAIN-01")', 'twin(impl, "RETAIN-03")'),
    ("twins", "    with twin", "    with reported"),
    ("twins", 'twin(impl, "RETAIN-01")', 'twin(impl, "RETAIN-02")'),
    ("twins", "\n    run = build(impl, case)", SECOND),
    ("twins", 'twin(impl, "RETAIN-01")', "twin(impl, clause)"),
    ("closures", "scale(2.0)", "lambda g: 2 * g"),
    ("closures", "scale(2.0)", "test_good"),
    (
        "closures",
        "    impl.register_hook(run.root, scale(2.0))",
        "    f = lambda g: g\n    impl.register_hook(x, hook=[f])",
    ),
    ("identities", "run = build(impl, case)", "run = impl.name"),
    ("identities", "run = build(impl, case)", "run = self.impl.version()"),
    ("identities", "run = build(impl, case)", "run = run.session.adapter.distribution"),
    ("identities", "run = build(impl, case)", "run = getattr(impl, 'name')"),
    ("identities", "run = build(impl, case)", "run = isinstance(impl, Torch)"),
]


@pytest.mark.parametrize("rule", [*OF_TESTS, *OF_ALL])
def test_a_good_test_breaks_no_rule(rule: str) -> None:
    assert breaches(rule, GOOD) == []
    assert breaches(rule, GOOD.replace('"graph_freed")', '"graph_freed", twinned=True)')) == []


@pytest.mark.parametrize(("rule", "old", "new"), BAD)
def test_a_bad_test_is_told(rule: str, old: str, new: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    assert breaches(rule, text)


def test_every_rule_has_a_bad_example() -> None:
    assert {rule for rule, _, _ in BAD} == {*OF_TESTS, *OF_ALL}


def test_a_twin_that_was_seen_before_need_not_follow() -> None:
    text = GOOD.replace('"graph_freed")', '"graph_freed", twinned=True)').replace("with twin", "with reported")
    assert breaches("twins", text) == []
    assert breaches("twins", text.replace("twinned=True", "twinned=False")) != []


def test_a_behaviour_may_be_passed() -> None:
    text = "@behaviour\ndef log(c, g):\n    c.record(g)\nimpl.register_hook(x, log)"
    assert breaches("closures", text) == []
    assert breaches("closures", text.replace("@behaviour\n", "")) != []


def test_facts_of_an_implementation_are_no_acts() -> None:
    assert LINTS["FACTS"].isdisjoint(ACTS)
