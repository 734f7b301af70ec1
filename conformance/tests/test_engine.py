"""How one item is run: what its row says of passing, failing, discarded, expected, flaky and badly behaved."""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from gradspec import engine
from gradspec.adapter import Adapter, Unsupported, Value
from gradspec.capabilities import Capabilities
from gradspec.engine import Expected, Settings, SuiteTest, run_item
from gradspec.judge import BuildFailed, Finding, NotJudged
from gradspec.programs.program import Case
from gradspec.session import Misuse, Session
from gradspec.suite.support import holds, refused, twin
from hypothesis import strategies as st

Function = Callable[[Session, Case], None]
OFFERED = Capabilities(frozenset(), frozenset(), (), ("float64",), 0)


class Numbers(Adapter):
    """An implementation whose tensors are numbers and which does what it is told to at each `apply`."""

    def __init__(self, act: Callable[..., Any] = lambda *_: 1.0) -> None:
        super().__init__()
        self.act = act

    def tensor(self, data: Any, **_: Any) -> Any:
        return data

    def value(self, x: Any) -> Value:
        return Value((), "float64", x)

    def apply(self, op: str, *operands: Any, **_: Any) -> Any:
        return self.act(op, *operands)

    def requires_grad(self, x: Any) -> bool:
        return x

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        return frozenset({"graph_freed"}) if isinstance(error, RuntimeError) else frozenset()


def pairs(_offered: Capabilities) -> st.SearchStrategy[Case]:
    small = st.integers(0, 99)
    return st.builds(lambda n, m: Case(parameters={"n": n, "m": m}), small, small)


def suite_test(function: Function, *, name: str = "test_x.py::test_y", **more: Any) -> SuiteTest:
    return SuiteTest(name, function, ("X-01", "X-02"), **({"draws": pairs} | more))


def run(function: Function, adapter: Adapter | None = None, clause: str = "X-01", **more: Any) -> dict[str, Any]:
    """The row of a test; `settings` fields and arguments of `run_item` may be given."""
    settings = Settings(**{key: more.pop(key) for key in ("seed", "examples", "stop_at_first") if key in more})
    test = more.pop("test", suite_test(function))
    row = run_item(test, clause, Session(adapter or Numbers()), OFFERED, settings, **more)
    assert json.loads(json.dumps(row)) == row
    return row


def small(impl: Session, case: Case) -> None:
    """Holds below 10."""
    x = impl.tensor(case["n"])
    holds(impl, "X-01", case["n"] < 10, expected=f"{x} is small", found=case["n"])


def steady(impl: Session, _case: Case) -> None:
    impl.tensor(1.0)
    holds(impl, "X-01", True, expected="", found="")
    holds(impl, "X-02", True, expected="", found="")


# -- outcomes --------------------------------------------------------------------------------------------------------


def test_a_test_that_holds_passes() -> None:
    row = run(steady, examples=30)
    assert row.pop("seconds") >= 0
    assert row == {
        "item": "test_x.py::test_y[X-01]",
        "clause": "X-01",
        "pinned": None,
        "examples": 30,
        "assertions": 30,
        "discards": {},
        "expected_hits": 0,
        "failure": None,
        "lost": None,
    }


def test_a_failure_has_the_smallest_case_and_its_trace() -> None:
    failure = run(small)["failure"]
    assert failure["case"] == {"parameters": {"n": 10, "m": 0}}
    assert (failure["kind"], failure["expected"], failure["found"]) == ("wrong_state", "x1 is small", "10")
    assert failure["message"] == "X-01: expected x1 is small, found 10"
    assert failure["trace"] == [{"act": "tensor", "arguments": [10], "result": "x1"}]
    assert "flaky" not in failure


def test_a_failing_case_is_replayed_alone() -> None:
    failure = run(small)["failure"]
    row = run(small, only=Case.from_json(failure["case"]))
    assert (row["examples"], row["failure"]) == (1, failure)
    assert run(small, only=Case(parameters={"n": 3, "m": 0}))["failure"] is None


@pytest.mark.parametrize(
    ("act", "kind", "found"),
    [
        (lambda *_: 1 / 0, "raised", "raised ZeroDivisionError: division by zero (at act 1, apply)"),
        (lambda *_: sys.exit(2), "raised", "raised SystemExit: 2 (at act 1, apply)"),
        (lambda *_: None, "nonsense", "apply returned None"),
    ],
)
def test_native_failures_are_findings(act: Any, kind: str, found: str) -> None:
    failure = run(lambda impl, _: impl.apply("neg"), Numbers(act))["failure"]
    assert (failure["kind"], failure["expected"], failure["found"]) == (kind, "apply succeeds", found)
    assert failure["case"] == {"parameters": {"n": 0, "m": 0}}


def test_an_error_of_the_suite_is_told_as_one() -> None:
    failure = run(lambda _impl, _case: {}["x"])["failure"]  # type: ignore[arg-type,return-value]
    assert failure["kind"] == "suite_error"
    assert failure["found"].startswith("KeyError at test_engine.py:")
    assert str(Path.cwd()) not in json.dumps(failure)


def test_misuse_of_the_session_ends_the_run() -> None:
    def uses_released(impl: Session, _case: Case) -> None:
        x = impl.tensor(1.0)
        impl.release(x)
        impl.value(x)

    with pytest.raises(Misuse, match="x1 was released"):
        run(uses_released)


def test_an_interrupt_ends_the_run() -> None:
    def interrupted(_impl: Session, _case: Case) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted)


# -- one clause at a time --------------------------------------------------------------------------------------------


def test_findings_on_other_clauses_are_not_raised() -> None:
    def second_fails(impl: Session, _case: Case) -> None:
        holds(impl, "X-02", False, expected="never", found="always")
        holds(impl, "X-01", True, expected="", found="")

    first, second = run(second_fails, examples=5), run(second_fails, clause="X-02", examples=5)
    assert (first["failure"], first["assertions"]) == (None, 5)
    assert second["failure"]["message"] == "X-02: expected never, found always"
    assert second["item"] == "test_x.py::test_y[X-02]"


def test_a_test_that_asserts_nothing_is_counted_so() -> None:
    row = run(lambda impl, _: impl.tensor(1.0), examples=5)
    assert (row["examples"], row["assertions"], row["failure"]) == (5, 0, None)


def freed(op: str, *_: Any) -> float:
    if op == "again":
        raise RuntimeError("the graph was freed")
    return 1.0


def test_a_refusal_without_its_twin_is_an_error_of_the_suite() -> None:
    def refuses(impl: Session, _case: Case) -> None:
        with refused(impl, "X-01", "graph_freed"):
            impl.apply("again")

    failure = run(refuses, Numbers(freed))["failure"]
    assert failure["kind"] == "suite_error"
    assert "the test refuses X-01 without a positive twin" in failure["message"]


def refuses_and_accepts(impl: Session, _case: Case) -> None:
    with refused(impl, "X-01", "graph_freed"):
        impl.apply("again")
    with twin(impl, "X-01"):
        impl.apply("first")


def test_a_refusal_with_its_twin_passes() -> None:
    row = run(refuses_and_accepts, Numbers(freed), examples=4)
    assert (row["failure"], row["assertions"]) == (None, 8)


@pytest.mark.parametrize(
    ("act", "kind", "found"),
    [
        (lambda *_: 1.0, "not_refused", "apply succeeded"),
        (lambda op, *_: 1 / 0 if op == "again" else 1.0, "wrong_error", "ZeroDivisionError: division by zero"),
        (lambda *_: freed("again"), "twin_refused", "apply raised RuntimeError: the graph was freed"),
    ],
)
def test_each_way_to_miss_a_refusal(act: Any, kind: str, found: str) -> None:
    failure = run(refuses_and_accepts, Numbers(act))["failure"]
    assert (failure["kind"], failure["found"]) == (kind, found)


# -- discards --------------------------------------------------------------------------------------------------------


def test_discards_are_counted_by_reason() -> None:
    reasons = [Unsupported("keyword x"), BuildFailed("matmul", "raised ValueError"), NotJudged("kink")]

    def discards(_impl: Session, case: Case) -> None:
        if case["n"] % 4:
            raise reasons[case["n"] % 4 - 1]

    row = run(discards, examples=40)
    assert set(row["discards"]) == {"unsupported: keyword x", "building matmul: raised ValueError", "kink"}
    assert list(row["discards"]) == sorted(row["discards"])
    assert row["examples"] == 40
    assert sum(row["discards"].values()) > 40


def test_a_test_whose_every_case_is_discarded_is_no_failure() -> None:
    row = run(lambda impl, _: impl.retain_grad(impl.tensor(1.0)), examples=10)
    assert (row["examples"], row["failure"], list(row["discards"])) == (
        0,
        None,
        ["unsupported: retain_grad is not offered"],
    )


def test_what_a_strategy_lacks_is_the_reason() -> None:
    def lacks(offered: Capabilities) -> st.SearchStrategy[Case]:
        offered.require("matmul")
        return pairs(offered)

    row = run(steady, test=suite_test(steady, draws=lacks))
    assert (row["examples"], row["discards"]) == (0, {"unsupported: operation matmul": 1})


def test_a_finite_table_is_tried_whatever_the_profile() -> None:
    row = run(steady, test=suite_test(steady, at_least=60), examples=8)
    assert row["examples"] == 60


# -- expectations ----------------------------------------------------------------------------------------------------

PINNED = Case(parameters={"n": 50, "m": 1})


def test_a_failure_of_the_expected_kind_is_swallowed() -> None:
    row = run(small, expected=Expected("wrong_state", PINNED), examples=50)
    assert row["failure"] is None
    assert row["expected_hits"] > 5
    assert row["examples"] == 51
    assert row["pinned"]["failure"]["kind"] == "wrong_state"
    assert row["pinned"]["failure"]["case"] == PINNED.to_json()


def test_a_failure_of_another_kind_is_a_failure() -> None:
    row = run(small, expected=Expected("aliased", PINNED))
    assert row["failure"]["kind"] == "wrong_state"
    assert row["expected_hits"] == 0


def test_another_failure_beside_the_expected_one_is_found() -> None:
    def both(impl: Session, case: Case) -> None:
        small(impl, case)
        impl.judge.report(Finding("X-01", "aliased", "a", "b")) if case["n"] % 2 else None

    row = run(both, expected=Expected("wrong_state", PINNED))
    assert row["failure"]["kind"] == "aliased"


def test_a_pinned_case_that_passes_is_told() -> None:
    row = run(steady, expected=Expected("wrong_state", PINNED), examples=5)
    assert row["pinned"] == {"failure": None, "discards": {}}
    assert (row["examples"], row["assertions"], row["expected_hits"]) == (6, 6, 0)


def test_a_pinned_case_that_is_discarded_is_told() -> None:
    row = run(lambda impl, _: impl.retain_grad(impl.tensor(1.0)), expected=Expected("raised", PINNED), examples=5)
    assert row["pinned"] == {"failure": None, "discards": {"unsupported: retain_grad is not offered": 1}}


# -- how much is run -------------------------------------------------------------------------------------------------


def counted(function: Function) -> tuple[Function, list[Any]]:
    seen: list[Any] = []

    def counting(impl: Session, case: Case) -> None:
        seen.append((case["n"], case["m"]))
        function(impl, case)

    return counting, seen


def test_stopping_at_the_first_failure_shrinks_nothing() -> None:
    function, seen = counted(small)
    failure = run(function, stop_at_first=True)["failure"]
    first = next(at for at, (n, _) in enumerate(seen) if n >= 10)
    assert len(seen) == first + 2  # the last is a replay, to tell a flaky one
    assert failure["case"]["parameters"] == dict(zip("nm", seen[first], strict=True))
    assert "flaky" not in failure


def hard(impl: Session, case: Case) -> None:
    """Fails where shrinking has a long way to go."""
    odd = case["n"] % 3 == 1 and case["m"] % 7 == 3
    holds(impl, "X-01", not (odd and case["n"] > 20), expected="", found=case["n"])


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 8, 13, 21])
def test_shrinking_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(engine, "SHRINK_BUDGET", budget)
    function, seen = counted(hard)
    row = run(function, examples=1000)
    failing = [n % 3 == 1 and m % 7 == 3 and n > 20 for n, m in seen]
    assert len(failing) - failing.index(True) <= budget + 2  # the first failure, and the replay of the smallest
    case = row["failure"]["case"]["parameters"]
    assert (case["n"], case["m"]) in [pair for pair, fails in zip(seen, failing, strict=True) if fails]
    assert "flaky" not in row["failure"]


def rows(**more: Any) -> tuple[dict[str, Any], list[Any]]:
    function, seen = counted(hard)
    row = run(function, test=suite_test(function, name=more.pop("name", "test_x.py::test_y")), **more)
    return {key: value for key, value in row.items() if key not in ("seconds", "item")}, seen


def test_the_same_seed_gives_the_same_row() -> None:
    assert rows(examples=300) == rows(examples=300)
    assert rows(examples=300)[0]["failure"] is not None


@pytest.mark.parametrize("other", [{"seed": 1}, {"name": "test_x.py::test_z"}, {"clause": "X-02"}])
def test_another_seed_or_item_draws_other_cases(other: dict[str, Any]) -> None:
    assert rows(examples=20)[1] != rows(examples=20, **other)[1]


def test_the_hash_of_an_item_is_the_same_everywhere() -> None:
    assert engine.stable_hash("0:test_x.py::test_y[X-01]") == engine.stable_hash("0:test_x.py::test_y[X-01]")
    assert engine.stable_hash("a") == int.from_bytes(bytes.fromhex("ca978112ca1bbdca"), "big")


# -- implementations that do not behave ------------------------------------------------------------------------------


def test_a_flaky_implementation_is_told_as_flaky() -> None:
    calls = itertools.count()

    def flaky(_op: str, x: float) -> float:
        if next(calls) == 3:
            raise RuntimeError("once")
        return x

    failure = run(lambda impl, case: impl.apply("neg", case["n"]), Numbers(flaky))["failure"]
    assert failure["flaky"] is True
    assert failure["found"].startswith("raised RuntimeError: once")


@pytest.mark.parametrize("stop_at_first", [False, True])
def test_a_flaky_failure_is_told_also_where_shrinking_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, stop_at_first: bool
) -> None:
    monkeypatch.setattr(engine, "SHRINK_BUDGET", 1)
    calls = itertools.count()
    act = lambda *_: 1 / (next(calls) != 3)  # noqa: E731 - one line
    row = run(lambda impl, case: impl.apply("neg", case["n"]), Numbers(act), stop_at_first=stop_at_first)
    assert row["failure"]["flaky"] is True


def state() -> dict[str, Any]:
    return {
        "errors": np.geterr(),
        "filters": list(warnings.filters),
        "streams": (sys.stdout, sys.stderr),
        "folder": os.getcwd(),  # noqa: PTH109
        "limit": sys.getrecursionlimit(),
    }


def changes_errors() -> None:
    np.seterr(all="raise")


def changes_filters() -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="all of them")


def changes_streams() -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def changes_folder() -> None:
    os.chdir("/")


def changes_limit() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() + 17)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(
    "change",
    [changes_errors, changes_filters, changes_streams, changes_folder, changes_limit],
    ids=lambda f: f.__name__,
)
def test_what_an_implementation_changes_is_put_back(change: Callable[[], None], raises: bool) -> None:
    before, between = state(), []

    def act(*_: Any) -> float:
        change()
        return 1 / (not raises)

    def function(impl: Session, _case: Case) -> None:
        between.append(np.geterr() | {"out": sys.stdout is None, "filters": list(warnings.filters)})
        impl.apply("neg")

    row = run(function, Numbers(act), examples=3)
    assert state() == before
    assert between.count(between[0]) == len(between) >= 2
    assert (row["failure"] is not None) is raises


def test_a_hypothesis_profile_of_the_user_changes_no_setting() -> None:
    before, current = engine._hypothesis_settings(8, shrinks=True), hypothesis.settings._current_profile
    given: dict[str, Any] = {"deadline": 1, "derandomize": True, "verbosity": hypothesis.Verbosity.debug, "phases": []}
    hypothesis.settings.register_profile("user", max_examples=1, backend="hypothesis-urandom", **given)
    hypothesis.settings.load_profile("user")
    try:
        after = engine._hypothesis_settings(8, shrinks=True)
    finally:
        hypothesis.settings.load_profile(current)
    assert str(after) == str(before)
    assert after.backend == before.backend == "hypothesis"
