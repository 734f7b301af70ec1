"""What a fault is, and the decorator that enters one into the table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gradspec.adapters.refgrad import Refgrad
from gradspec.faults.copying import private_copy

REGISTRY: dict[str, Fault] = {}
"""Every fault by its name; the modules of this package fill it when they are imported."""

Change = Callable[[Any], None]


@dataclass(frozen=True)
class Fault:
    """A deliberately wrong implementation: refgrad with one rule replaced.

    Attributes:
        name: the name in `gradspec.faults`, such as "H04".
        clauses: the ids of the clauses that it breaks, at least one of which must notice.
        title: what the developer got wrong, in one line.
        source: the report of the real bug, or "from the clause".
        change: replaces the rule in a private copy of refgrad.
    """

    name: str
    clauses: tuple[str, ...]
    title: str
    source: str
    change: Change

    @property
    def chapter(self) -> str:
        """The chapter of the first clause."""
        return self.clauses[0].partition("-")[0] if self.clauses else ""

    @property
    def chapters(self) -> tuple[str, ...]:
        """The chapters of all its clauses, in their order."""
        return tuple(dict.fromkeys(clause.partition("-")[0] for clause in self.clauses))

    @functools.cached_property
    def namespace(self) -> ModuleType:
        """The private copy of refgrad with the fault in it, made once in a process."""
        copy = private_copy(self.name)
        self.change(copy)
        return copy

    def adapter(self) -> Refgrad:
        """The contract over the faulty copy: what `gradspec.faults:NAME` leads to."""
        return Faulty(self)


class Faulty(Refgrad):
    """A fault as an implementation. Args: fault: the fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.namespace)
        self.name = f"refgrad with fault {fault.name}"  # type: ignore[misc] # a constant of a class elsewhere


def fault(
    name: str, *, clauses: Sequence[str], title: str, source: str = "from the clause"
) -> Callable[[Change], Change]:
    """Enter the decorated function, which changes a private copy of refgrad, as a fault.

    Args:
        name: an identifier that no other fault has.
        clauses: the ids of the clauses that it breaks.
        title: what the developer got wrong.
        source: the report of the real bug.
    """

    def enter(change: Change) -> Change:
        assert name.isidentifier(), f"{name!r} cannot be written as gradspec.faults:{name}"
        assert name not in REGISTRY, f"there are two faults called {name}"
        assert clauses, f"{name} breaks no clause"
        REGISTRY[name] = Fault(name, tuple(clauses), title, source, change)
        return change

    return enter
