"""Findings: what an assertion of the suite reports, and the judge that collects them for one clause."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

from gradspec.wire import bounded


class NotJudged(Exception):
    """The oracle refuses the case (a kink), so that the example says nothing; the text is the reason."""


class BuildFailed(Exception):
    """An operation failed while a program was built: charged to the operation, the example is discarded."""

    def __init__(self, op: str, why: str) -> None:
        self.op = op
        super().__init__(f"building {op}: {why}")


class Finding(AssertionError):
    """A clause was seen to be broken.

    Attributes:
        clause: its id. kind: what sort of failure: wrong_value, not_refused, wrong_error, twin_refused, wrong_state,
            aliased, alive, raised, nonsense.
        expected, found: short texts, numbers as literals.
        oracle: who says what was expected. other: what the second oracle says, where it was asked.
    """

    def __init__(self, clause: str, kind: str, expected: str, found: str, oracle: str = "", other: str = "") -> None:
        self.clause, self.kind, self.oracle, self.other = clause, kind, oracle, other
        self.expected, self.found = bounded(expected), bounded(found)
        super().__init__(f"{clause}: expected {self.expected}, found {self.found}")

    def to_json(self) -> dict[str, Any]:
        """The finding as part of a row."""
        data = {"kind": self.kind, "message": str(self), "expected": self.expected, "found": self.found}
        if self.oracle:
            data["oracle"] = self.oracle
        if self.other:
            data["other"] = self.other
        return data


@dataclass
class Judge:
    """Collects what one example says about one clause.

    A test that names several clauses runs once for each: only a finding on the judged clause is raised, so that a
    failure of one never hides another.
    """

    clause: str
    assertions: int = 0

    def __post_init__(self) -> None:
        self._open: collections.Counter[str] = collections.Counter()

    def asserted(self, clause: str) -> None:
        """Count one executed assertion."""
        self.assertions += clause == self.clause

    def report(self, finding: Finding) -> None:
        """Raise the finding if it is about the judged clause."""
        if finding.clause == self.clause:
            raise finding

    def refused(self, clause: str) -> None:
        """A refusal was seen: its positive twin is owed."""
        self._open[clause] += 1

    def twin(self, clause: str) -> None:
        """The positive twin of a refusal succeeded."""
        self._open[clause] = 0

    def close(self) -> None:
        """End of the example. An error test without its positive twin is a fault of the suite."""
        owed = [clause for clause, count in self._open.items() if count]
        if owed:
            raise AssertionError(f"the test refuses {owed[0]} without a positive twin")
