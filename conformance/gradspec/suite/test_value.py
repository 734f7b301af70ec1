"""VALUE: values of gradients."""

from __future__ import annotations

from gradspec.programs.program import Case
from gradspec.qualify import every_case
from gradspec.session import Session
from gradspec.suite.running import build, judged, right_value
from gradspec.suite.support import clause, given, holds, show


@clause("VALUE-61")
@given(every_case, at_least=400)
def test_a_declared_operation_computes_value_and_gradient(impl: Session, case: Case) -> None:
    """Every declared operation alone, on every class of operands: its value is NumPy's, its vjp the dual oracle's."""
    run = build(impl, case, charge="VALUE-61")
    same, expected, found = right_value(run)
    name = case.the_program.steps[0].op
    holds(impl, "VALUE-61", same, kind="wrong_value", expected=f"{name} gives {show(expected)}", found=show(found))
    run.backward()
    judged(impl, "VALUE-61", run, run.slots())
