"""BACKWARD: backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradspec.programs.strategies import graphs
from gradspec.suite.running import build, judged
from gradspec.suite.support import clause, given

if TYPE_CHECKING:
    from gradspec.programs.program import Case
    from gradspec.session import Session


@clause("BACKWARD-06")
@given(graphs(seed="explicit"))
def test_a_seed_gives_the_vector_jacobian_product(impl: Session, case: Case) -> None:
    """After backward from a root with seed v the leaves hold the transposed Jacobian times v."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-06", run, run.slots(), both=True)
