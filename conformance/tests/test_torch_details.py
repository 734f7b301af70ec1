"""Clauses on details of torch itself have no fault of refgrad: torch with one of them broken is caught by its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from gradspec.adapters.torch import Torch
from gradspec.capabilities import Capabilities
from gradspec.engine import Settings, run_item
from gradspec.session import Session
from gradspec.suite.support import suite_tests

OF_OLD_NAMES = ("BACKWARD-37", "BACKWARD-57", "BACKWARD-58")


class OldSeedsAreSilent(Torch):
    def backward_many(self, roots: Sequence[Any], gradients: Any = None, **keywords: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().backward_many(roots, gradients, **keywords)


class OldSeedsAreDoubled(Torch):
    def backward_many(self, roots: Sequence[Any], gradients: Any = None, **keywords: Any) -> None:
        if gradients is None and "grad_variables" in keywords:
            keywords["grad_variables"] = [2 * seed for seed in keywords["grad_variables"]]
        super().backward_many(roots, gradients, **keywords)


class BothNamesAreTaken(Torch):
    def backward_many(self, roots: Sequence[Any], gradients: Any = None, **keywords: Any) -> None:
        if gradients is not None:
            keywords.pop("grad_variables", None)
        super().backward_many(roots, gradients, **keywords)


class AccumulationIsSilent(Torch):
    def gradients(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **keywords: Any) -> Any:
        keywords.pop("only_inputs", None)
        return super().gradients(outputs, inputs, grad_outputs, **keywords)


class AccumulationHappens(Torch):
    def gradients(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **keywords: Any) -> Any:
        found = super().gradients(outputs, inputs, grad_outputs, **keywords)
        if "only_inputs" in keywords:
            for leaf, gradient in zip(inputs, found, strict=True):
                leaf.grad = torch.clone(gradient)
        return found


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (OldSeedsAreSilent, "BACKWARD-37"),
        (OldSeedsAreDoubled, "BACKWARD-37"),
        (BothNamesAreTaken, "BACKWARD-57"),
        (AccumulationIsSilent, "BACKWARD-58"),
        (AccumulationHappens, "BACKWARD-58"),
        (Torch, None),
    ],
)
def test_a_broken_detail_is_caught_by_its_own_clause(broken: type[Torch], clause: str | None) -> None:
    session, offered = Session(broken()), Capabilities.of(broken())
    rows = [
        run_item(test, name, session, offered, Settings(examples=20))
        for test in suite_tests()
        for name in set(test.clauses) & set(OF_OLD_NAMES)
    ]
    assert [row["clause"] for row in rows if row["failure"]] == ([] if clause is None else [clause])
    assert all(row["assertions"] for row in rows if not row["failure"])
    assert len(rows) == len(OF_OLD_NAMES)
