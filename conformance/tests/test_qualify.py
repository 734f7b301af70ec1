"""Qualification: each operation is tried alone, and a broken one is named and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gradspec.adapters.refgrad import Refgrad
from gradspec.capabilities import Capabilities
from gradspec.programs import oracles
from gradspec.programs.operations import OPERATIONS
from gradspec.qualify import CLASSES, Qualification, _offered, cases_of, qualify
from gradspec.session import Session


def qualified(adapter: Refgrad) -> Qualification:
    """What the qualification of an adapter says."""
    return qualify(Session(adapter), Capabilities.of(adapter))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_a_case_of_each_class_that_it_takes(operation: str) -> None:
    wanted = set(CLASSES) - ({"0-d"} if OPERATIONS[operation].min_rank else set())
    if operation == "flip":  # of no axis: that is clone
        wanted.discard("0-d")
    assert {name for name, _ in cases_of(operation)} == wanted


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_case_is_one_step_with_one_seeded_root_that_the_oracle_judges(operation: str) -> None:
    for _, program in cases_of(operation):
        program.check()
        assert [step.op for step in program.steps] == [operation]
        assert [root.seed is None for root in program.roots] == [False]
        assert set(program.leaves) <= set(oracles.gradients(program))
        assert not oracles.refuses(program)
        assert program.leaves


def test_every_result_of_an_operation_is_a_root_once() -> None:
    roots = {program.roots[0].value for _, program in cases_of("split") if program.inputs[0].shape == (2, 3)}
    assert roots == {1, 2}


def test_refgrad_qualifies_in_everything() -> None:
    assert qualified(Refgrad()) == Qualification(void=False, failed={})


class WrongValue(Refgrad):
    """`mul` forgets its second operand where both are 0-d."""

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        if op == "mul" and all(self.shape(x) == () for x in operands):
            return super().apply("add", *operands)
        return super().apply(op, *operands, **attributes)


class WrongGradient(Refgrad):
    """The gradient of `sin` is lost."""

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        result = super().apply(op, *operands, **attributes)
        return super().apply("add", result.detach(), super().apply("mul", *operands, 0.0)) if op == "sin" else result


class Refuses(Refgrad):
    """`cat` raises on empty operands."""

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        if op == "cat" and any(0 in self.shape(x) for x in operands):
            raise RuntimeError("empty\nand more")
        return super().apply(op, *operands, **attributes)


@pytest.mark.parametrize(
    ("adapter", "operation", "classes", "found"),
    [
        (WrongValue(), "mul", ["0-d"], "0.125"),
        (WrongGradient(), "sin", ["ordinary", "0-d"], "0.0]"),
        (Refuses(), "cat", ["zero-size"], "raised RuntimeError: empty"),
    ],
    ids=["value", "gradient", "raises"],
)
def test_a_broken_operation_is_named_with_its_classes(
    adapter: Refgrad, operation: str, classes: list[str], found: str
) -> None:
    result = qualified(adapter)
    assert list(result.failed) == [operation]
    assert [misfit["class"] for misfit in result.failed[operation]] == classes
    assert found in result.failed[operation][0]["found"]
    assert not result.void
    assert result == qualified(adapter)


def test_an_engine_that_ignores_its_seed_voids_the_qualification() -> None:
    class NoSeed(Refgrad):
        def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
            super().backward(root, self.ns.ones_like(gradient), **keywords)

    assert qualified(NoSeed()).void


def test_a_scalar_engine_is_asked_scalars_only() -> None:
    scalar = replace(Capabilities.of(Refgrad()), max_rank=0)
    assert {name for name, _ in _offered("add", scalar)} == {"0-d"}
    assert _offered("matmul", scalar) == []


def test_no_element_type_is_used_that_is_not_declared() -> None:
    plain = replace(Capabilities.of(Refgrad()), dtypes=("float32",))
    assert {dtype for _, program in _offered("add", plain) for dtype in program.dtypes()} == {"float32"}
    assert [_offered(name, plain) for name in ("real", "where", "index_select")] == [[], [], []]


def test_without_seeds_only_one_element_results_are_differentiated() -> None:
    class Seedless(Refgrad):
        features = Refgrad.features - {"seed"}

        def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
            assert gradient is None
            super().backward(root, **keywords)

    assert qualified(Seedless()).failed == {}
