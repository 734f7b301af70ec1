"""Every card of spec/: its example is executed on refgrad and torch, its reference exists, divergences are tied."""

import warnings
from pathlib import Path

import pytest
import refgrad
import torch
from gradspec.adapters import load_adapter
from gradspec.examples import run_example
from gradspec.report.expectations import check_divergences, load_expectations
from gradspec.report.verdicts import Declarations, missing
from gradspec.spec import check_traceability, load_spec, reference_exists
from gradspec.suite.support import suite_tests

SPEC = load_spec()
NAMESPACES = {"refgrad": refgrad, "torch": torch}
DECLARED = {name: Declarations.of(load_adapter(name)) for name in NAMESPACES}
EXPECTED = {name: load_expectations(None, name, SPEC) for name in NAMESPACES}
OFFERED = [
    (name, clause.id) for name in NAMESPACES for clause in SPEC.clauses.values() if not missing(clause, DECLARED[name])
]


@pytest.mark.parametrize(("name", "clause_id"), OFFERED)
def test_the_example_says_what_the_implementation_does(name: str, clause_id: str) -> None:
    """It holds; where the implementation is expected to fail the clause, it must fail too."""
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = run_example(SPEC.clause(clause_id), NAMESPACES[name])
    wanted = "fails" if clause_id in EXPECTED[name].entries else "holds"
    assert outcome.status == wanted, f"{clause_id} on {name}: {outcome.message} (line {outcome.line})"


def test_every_example_runs_somewhere() -> None:
    assert {clause_id for _, clause_id in OFFERED} == set(SPEC.clauses)


@pytest.mark.parametrize("clause_id", [c.id for c in SPEC.clauses.values() if c.reference])
def test_the_reference_of_a_card_exists(clause_id: str) -> None:
    assert reference_exists(SPEC.clause(clause_id).reference, Path(refgrad.__file__).parent)


def test_every_feature_is_named_by_a_card() -> None:
    assert SPEC.unused_features() == ()


def test_tests_and_cards_belong_to_each_other() -> None:
    tests = {test.name: test.clauses for test in suite_tests()}
    errors = {c.id for c in SPEC.clauses.values() if c.error and c.status != "pending"}
    assert check_traceability(SPEC, tests, errors) == []


def test_expectations_of_torch_and_divergences_are_tied() -> None:
    assert check_divergences(SPEC, EXPECTED["torch"]) == []


def test_refgrad_expects_no_failure() -> None:
    assert not EXPECTED["refgrad"].entries


@pytest.mark.parametrize("clause_id", sorted(SPEC.divergences))
def test_the_program_of_a_divergence_shows_it(clause_id: str) -> None:
    exec(compile(SPEC.divergences[clause_id].program, f"spec/divergences.md {clause_id}", "exec"), {})  # noqa: S102
