"""Engines that offer little: what they do not declare is never asked of them, and what they declare is judged."""

from typing import Any

import pytest
from gradspec.adapters.refgrad import Refgrad
from gradspec.capabilities import Capabilities
from gradspec.engine import Settings, run_item
from gradspec.qualify import qualify
from gradspec.report.verdicts import Declarations, missing
from gradspec.session import Session
from gradspec.spec import load_spec
from gradspec.suite.support import suite_tests

SPEC = load_spec()


class Scalar(Refgrad):
    """A scalar engine: numbers, five operations, backward without arguments."""

    features = frozenset({"scalar"})
    operations = frozenset({"add", "mul", "neg", "pow", "relu"})
    keywords = frozenset()
    max_rank = 0
    dtypes = ("float64",)

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
        assert gradient is None, "no seed is offered"
        assert not keywords
        root.backward()


class Seedless(Refgrad):
    """An array engine whose backward takes no seed, and in which everything is tracked."""

    features = Refgrad.features - {"seed", "frozen", "complex"}
    dtypes = ("float64", "int64", "bool")
    operations = Refgrad.operations - {"complex", "real", "imag", "conj"}

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
        assert gradient is None, "no seed is offered"
        super().backward(root, **keywords)


class SinglePrecision(Refgrad):
    """An engine with float32 only."""

    dtypes = ("float32", "int64", "bool")
    operations = Refgrad.operations - {"complex", "real", "imag", "conj"}
    features = Refgrad.features - {"complex"}


ENGINES = (Scalar, Seedless, SinglePrecision)


def judged_clauses(engine: type[Refgrad]) -> list[Any]:
    declared = Declarations.of(engine())
    cards = [SPEC.clause(name) for name in sorted({n for test in suite_tests() for n in test.clauses})]
    return [card.id for card in cards if card.status != "pending" and not missing(card, declared)]


@pytest.mark.parametrize(
    ("engine", "clause_id"), [(engine, clause_id) for engine in ENGINES for clause_id in judged_clauses(engine)]
)
def test_what_is_declared_is_judged_and_holds(engine: type[Refgrad], clause_id: str) -> None:
    session = Session(engine())
    offered = Capabilities.of(session.adapter)
    tests = [test for test in suite_tests() if clause_id in test.clauses]
    rows = [run_item(test, clause_id, session, offered, Settings(examples=8)) for test in tests]
    for row in rows:
        assert row["failure"] is None, f"{row['failure']['expected']}: {row['failure']['found']}"
    lacking = any(reason.startswith("unsupported") for row in rows for reason in row["discards"])
    assert lacking or any(row["assertions"] for row in rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_operation_of_a_small_engine_qualifies(engine: type[Refgrad]) -> None:
    session = Session(engine())
    assert qualify(session, Capabilities.of(session.adapter)).failed == {}


def test_a_scalar_engine_is_judged_on_the_lowest_level() -> None:
    levels = {SPEC.clause(clause_id).level for clause_id in judged_clauses(Scalar)}
    assert levels == {"L0"}
    assert len(judged_clauses(Scalar)) >= 14
