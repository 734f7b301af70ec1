"""VALUE: values of gradients."""

from __future__ import annotations

import numpy as np

from gradspec.programs.forward import evaluate
from gradspec.programs.program import Case
from gradspec.qualify import every_case
from gradspec.session import Session
from gradspec.suite.running import build, judged
from gradspec.suite.support import array, clause, given, holds, show


@clause("VALUE-61")
@given(every_case, at_least=400)
def test_a_declared_operation_computes_value_and_gradient(impl: Session, case: Case) -> None:
    """Every declared operation alone, on every class of operands: its value is NumPy's, its vjp the dual oracle's."""
    run = build(impl, case, charge="VALUE-61")
    number = case.the_program.roots[0].value
    expected, found = evaluate(case.the_program)[number], array(impl, run.root)
    same = found.shape == expected.shape and np.allclose(found, expected, rtol=64 * np.finfo(found.dtype).eps, atol=0)
    name = case.the_program.steps[0].op
    holds(impl, "VALUE-61", same, kind="wrong_value", expected=f"{name} gives {show(expected)}", found=show(found))
    run.backward()
    judged(impl, "VALUE-61", run, run.slots())
