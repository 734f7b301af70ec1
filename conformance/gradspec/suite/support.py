"""What tests of the suite are written with: the two decorators and one helper for each sort of assertion.

Each helper names the clause, does its comparison and reports a finding; a test holds no try, no print and no state.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradspec.suite
from gradspec.adapter import Value
from gradspec.engine import CaseStrategy, SuiteTest
from gradspec.judge import Finding
from gradspec.programs.forward import to_array
from gradspec.session import Handle, NativeError, Session

Array = NDArray[Any]
TestFunction = Callable[[Session, Any], None]


def given(draws: CaseStrategy, *, at_least: int = 0) -> Callable[[TestFunction], TestFunction]:
    """Say from which cases a test draws its one case: a function from capabilities to a strategy.

    `at_least` is the fewest examples in any profile, for a finite table of which every row is to be tried.
    """

    def mark(function: TestFunction) -> TestFunction:
        function.__dict__["gradspec_draws"] = draws, at_least
        return function

    return mark


def clause(*ids: str) -> Callable[[TestFunction], Callable[..., None]]:
    """Tie a test to the clauses that it judges. What pytest collects runs one of them."""

    def mark(function: TestFunction) -> Callable[..., None]:
        code = function.__code__
        module = function.__module__.rpartition(".")[2]
        draws, at_least = function.__dict__["gradspec_draws"]
        test = SuiteTest(
            name=f"{module}.py::{function.__name__}",
            function=function,
            clauses=ids,
            draws=draws,
            source=(code.co_filename, code.co_firstlineno),
            at_least=at_least,
        )

        def item(gradspec_run: Callable[[SuiteTest, str], None], gradspec_clause: str) -> None:
            gradspec_run(test, gradspec_clause)

        item.__name__, item.__doc__, item.__module__ = function.__name__, function.__doc__, function.__module__
        item.__dict__["suite_test"] = test
        return item

    return mark


def suite_tests() -> list[SuiteTest]:
    """Every test of the suite, in the order of its modules."""
    found: list[SuiteTest] = []
    for info in pkgutil.iter_modules(gradspec.suite.__path__):
        if info.name.startswith("test_"):
            module = importlib.import_module(f"gradspec.suite.{info.name}")
            found += [f.suite_test for f in vars(module).values() if hasattr(f, "suite_test")]
    return found


# -- reading ---------------------------------------------------------------------------------------


def array(impl: Session, x: Handle) -> Array:
    """The elements of a tensor as an array of its own dtype and shape."""
    return as_array(impl.value(x))


def as_array(value: Value) -> Array:
    """A value as an array of its dtype and shape."""
    return np.array(value.data, dtype=np.dtype(value.dtype)).reshape(value.shape)


def tensor(impl: Session, data: Array, **keywords: Any) -> Handle:
    """A tensor with the elements, shape and dtype of an array."""
    handle: Handle = impl.tensor(data.tolist(), shape=data.shape, dtype=data.dtype.name, **keywords)
    return handle


def show(data: Any) -> str:
    """An array, a value, None or another finding as a short literal."""
    if isinstance(data, Value):
        data = as_array(data)
    if isinstance(data, np.ndarray | np.generic):
        text = repr(data.tolist())
        return text if data.size else f"{text} of shape {data.shape}"
    return repr(data)


# -- assertions ------------------------------------------------------------------------------------


def holds(impl: Session, clause: str, condition: bool, *, expected: str, found: Any, kind: str = "wrong_state") -> None:
    """The condition holds: the clause's words in `expected`, what was observed in `found`."""
    impl.judge.asserted(clause)
    if not condition:
        impl.judge.report(Finding(clause, kind, expected, found if isinstance(found, str) else show(found)))


def is_none(impl: Session, clause: str, x: Handle, why: str) -> None:
    """The slot `.grad` of `x` holds None."""
    slot = impl.grad(x)
    found = "None" if slot is None else show(impl.value(slot))
    holds(impl, clause, slot is None, expected=f"{x}.grad is None: {why}", found=found)


def equal(impl: Session, clause: str, x: Handle | None, expected: Array, what: str, *, rtol: float = 0.0) -> None:
    """The tensor has the elements and the shape of `expected`; `rtol` 0 asks for equality (NaN equals NaN).

    Args:
        impl: the session.
        clause: the id.
        x: the tensor, or None where there is none (a slot that stayed empty).
        expected: the elements.
        what: what the tensor is, for the finding.
        rtol: tolerance relative to the largest magnitude of `expected`.
    """
    impl.judge.asserted(clause)
    if x is None:
        return impl.judge.report(Finding(clause, "wrong_value", f"{what} is {show(expected)}", "None"))
    found = array(impl, x)
    bound = rtol * max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    same = found.shape == expected.shape and bool(
        np.all((np.abs(found - expected) <= bound) | (found == expected) | (np.isnan(found) & np.isnan(expected)))
    )
    if not same:
        impl.judge.report(Finding(clause, "wrong_value", f"{what} is {show(expected)}", show(found)))
    return None


def unchanged(impl: Session, clause: str, before: Value | None, x: Handle | None, what: str) -> None:
    """The tensor is bitwise what it was (None where there was none)."""
    impl.judge.asserted(clause)
    after = None if x is None else impl.value(x)
    same = (before is None) == (after is None)
    if same and before is not None and after is not None:
        a, b = as_array(before), as_array(after)
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if not same:
        impl.judge.report(Finding(clause, "wrong_value", f"{what} stays {show(before)}", show(after)))


@contextlib.contextmanager
def refused(impl: Session, clause: str, kind: str, *, twinned: bool = False) -> Iterator[None]:
    """The one act inside is an error of this kind. Its positive twin must follow in a `twin` block.

    `twinned` says that the twin has been seen: the same act succeeded in this example before the offence.
    """
    impl.judge.asserted(clause)
    acts = len(impl.trace)
    try:
        yield
    except NativeError as error:
        if error.step != acts + 1:
            raise
        if kind not in error.kinds:
            found = f"{error.type}: {error.text}"
            impl.judge.report(Finding(clause, "wrong_error", f"the error {kind}", found))
    else:
        performed = impl.trace[-1].act.method if len(impl.trace) > acts else "nothing"
        impl.judge.report(Finding(clause, "not_refused", f"the error {kind}", f"{performed} succeeded"))
    if not twinned:
        impl.judge.refused(clause)


@dataclass
class Outcome:
    """Whether an act that may be refused was: its error, or None."""

    error: NativeError | None = None


@contextlib.contextmanager
def may_refuse(impl: Session, kind: str | None = None) -> Iterator[Outcome]:
    """The acts inside succeed or end with an error of this kind (None: any); another error is a failure as ever."""
    outcome = Outcome()
    try:
        yield outcome
    except NativeError as error:
        if kind is not None and kind not in error.kinds:
            raise
        outcome.error = error


@contextlib.contextmanager
def twin(impl: Session, clause: str) -> Iterator[None]:
    """The same case with only the offending act put right: everything inside must succeed."""
    impl.judge.asserted(clause)
    try:
        yield
    except NativeError as error:
        found = f"{error.act} raised {error.type}: {error.text}"
        impl.judge.report(Finding(clause, "twin_refused", "the same case put right succeeds", found))
    impl.judge.twin(clause)


def values(impl: Session, handles: Sequence[Handle | None]) -> list[Value | None]:
    """The values of several tensors, to be compared later."""
    return [None if h is None else impl.value(h) for h in handles]


def ones(shape: Sequence[int], dtype: str = "float64") -> Array:
    """An array of ones."""
    return np.ones(tuple(shape), dtype=dtype)


__all__ = [
    "Array",
    "array",
    "as_array",
    "clause",
    "equal",
    "given",
    "holds",
    "is_none",
    "may_refuse",
    "ones",
    "refused",
    "show",
    "suite_tests",
    "tensor",
    "to_array",
    "twin",
    "unchanged",
    "values",
]
