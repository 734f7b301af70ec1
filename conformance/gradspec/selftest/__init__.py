"""Checks of an adapter: can the suite believe what it says?"""

from __future__ import annotations

from gradspec.adapter import Adapter
from gradspec.capabilities import Capabilities
from gradspec.report.record import Finding, Qualification
from gradspec.selftest import offers, refusals, values  # noqa: F401 - they enter their checks
from gradspec.selftest.checks import CHECKS, Subject, run_check

__all__ = ["CHECKS", "Finding", "Subject", "miscalled", "run_check", "selftest"]


def selftest(adapter: Adapter, offered: Capabilities | None = None) -> list[Finding]:
    """What all checks say of an adapter, in this process; `probe.examine` runs them in one that may die of it.

    Args:
        adapter: the adapter.
        offered: what it declares, less the operations that do not work by themselves; by default all of it.
    """
    subject = Subject(adapter, offered)
    return [finding for one in CHECKS.values() for finding in run_check(subject, one)]


def miscalled(qualification: Qualification) -> list[Finding]:
    """Operations that never work since their call does not fit: more often the adapter's fault than the engine's."""
    found = []
    for name, misfits in qualification.failed.items():
        texts = [misfit["found"] for misfit in misfits]
        if all(text.startswith("raised TypeError: ") for text in texts):
            text = f"the operation {name} {texts[0]}, on all its operands: let `apply` take the attributes that"
            text += " programs/operations.py lists, by these names, and map them to the implementation's"
            found.append(Finding(f"the operation {name} is called as it is declared", "wrong", text))
    return found
