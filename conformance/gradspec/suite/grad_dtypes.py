"""The dtype that a slot must have: programs in one of two dtypes, some leaves of which want the other in `.grad`."""

from __future__ import annotations

from collections.abc import Mapping

from gradspec.programs import editing
from gradspec.programs.program import Case
from gradspec.session import Handle, Session
from gradspec.suite.running import Run, build
from gradspec.suite.support import holds, may_refuse

_OTHER = {"float32": "float64", "float64": "float32"}


def build_in(impl: Session, case: Case) -> tuple[Run, dict[int, str]]:
    """A build in the dtype `case["own"]`, and for each leaf a dtype: the other one for `case["chosen"]`."""
    own = case["own"]
    run = build(impl, editing.in_dtype(case.the_program, own))
    return run, {n: _OTHER[own] if n in case["chosen"] else own for n in run.program.leaves}


def own_at_first(impl: Session, clause: str, run: Run, own: str) -> None:
    """The grad_dtype of every leaf, none of which was set, is the dtype `own` of the leaves."""
    for leaf in run.leaves:
        found = impl.grad_dtype(leaf)
        holds(impl, clause, found == own, expected=f"{leaf}.grad_dtype is {own}: it was not set", found=found)


def filled_in(impl: Session, clause: str, run: Run, dtypes: Mapping[int, str]) -> None:
    """Filled slots have these dtypes."""
    for number, wanted in dtypes.items():
        slot = impl.grad(run.handles[number])
        if slot is not None:
            found = impl.dtype(slot)
            holds(impl, clause, found == wanted, expected=f"{run.handles[number]}.grad is {wanted}", found=found)


def read(impl: Session, x: Handle) -> str:
    """The grad_dtype of a tensor, "refused" where it has none since it is no leaf."""
    with may_refuse(impl, "not_leaf") as reading:
        found = impl.grad_dtype(x)
    return "refused" if reading.error else found
