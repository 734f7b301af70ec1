"""Deliberately wrong implementations: each is refgrad with one rule replaced, and names the clauses that must notice.

They test the suite. `gradspec.faults:H04` can be checked like any implementation; `gradspec faults` runs them all and
prints which clause caught each (`table.py`).

Names that begin with H stand for bugs that real libraries shipped; the others are the clause that they break, and how.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gradspec.faults import backward, edges, gradslot, passes, receivers, retain, untouched, value  # noqa: F401 - they enter their faults
from gradspec.faults.registry import REGISTRY, Fault

if TYPE_CHECKING:
    from gradspec.adapter import Adapter

__all__ = ["FAULTS", "Fault"]

_CHAPTERS = ("GRADSLOT", "BACKWARD", "RETAIN", "VALUE")

FAULTS: Mapping[str, Fault] = MappingProxyType(
    dict(sorted(REGISTRY.items(), key=lambda item: (_CHAPTERS.index(item[1].chapter), item[1].clauses[0], item[0])))
)
"""Every fault by its name, in the order of the clauses."""


def __getattr__(name: str) -> Callable[[], Adapter]:
    """The factory of the adapter with this fault: `gradspec.faults:H04` leads here."""
    if name in FAULTS:
        return FAULTS[name].adapter
    near = difflib.get_close_matches(name, FAULTS, n=2)
    raise AttributeError(f"there is no fault {name!r}" + (f", did you mean {' or '.join(near)}?" if near else ""))


def __dir__() -> list[str]:
    return sorted({*globals(), *FAULTS})
