"""Programs on an implementation: build one through the contract, walk back from its roots, read its slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradspec.judge import BuildFailed, Finding, NotJudged
from gradspec.programs import oracles
from gradspec.programs.forward import Kink, evaluate, to_array
from gradspec.programs.operations import Shape
from gradspec.programs.program import Case, Program, Step
from gradspec.session import Handle, NativeError, Session
from gradspec.suite.support import Array, array, holds, show

Slots = dict[int, Array | None]
"""Numbers of values to what their `.grad` holds, None for an empty slot."""


@dataclass
class Run:
    """A program as it was built: a handle for every value, a seed for every root.

    Attributes:
        impl: the session it was built on. program: the program.
        handles: one for every value, inputs first.
        seeds: a tensor, or None for the implicit seed, for every root.
    """

    impl: Session
    program: Program
    handles: list[Handle]
    seeds: list[Handle | None]

    @property
    def root(self) -> Handle:
        """The first root."""
        return self.handles[self.program.roots[0].value]

    @property
    def seed(self) -> Handle | None:
        """The seed of the first root."""
        return self.seeds[0]

    @property
    def roots(self) -> list[Handle]:
        """Every root."""
        return [self.handles[r.value] for r in self.program.roots]

    @property
    def leaves(self) -> list[Handle]:
        """The inputs that require grad."""
        return [self.handles[n] for n in self.program.leaves]

    def backward(self, **keywords: Any) -> None:
        """One pass from the root, or from all roots at once where there are several: always one act."""
        if len(self.seeds) == 1:
            self.impl.backward(self.root, self.seed, **keywords)
        else:
            self.impl.backward_many(self.roots, self.seeds, **keywords)

    def pass_by(self, way: str, **keywords: Any) -> None:
        """A pass that is asked for in one of the `ways_of_passing`: one act, but for "no_grad"."""
        reached = [self.handles[n] for n in self.program.leaves if n in self.program.reached()]
        if way == "gradients":
            self.gradients(reached, **keywords)
        elif way == "inputs":
            self.backward(inputs=reached, **keywords)
        elif way in ("many", "twice"):
            count = 2 if way == "twice" else 1
            self.impl.backward_many(count * self.roots, count * self.seeds, **keywords)
        elif way == "no_grad":
            with self.impl.no_grad():
                self.backward(**keywords)
        else:
            self.backward(**({"create_graph": True} if way == "create_graph" else {}), **keywords)

    def gradients(self, inputs: Sequence[Handle], **keywords: Any) -> tuple[Handle | None, ...]:
        """The gradients of the roots for `inputs`, returned and not accumulated."""
        found: tuple[Handle | None, ...] = self.impl.gradients(self.roots, inputs, self.seeds, **keywords)
        return found

    def slot(self, number: int) -> Array | None:
        """What `.grad` of the value holds, as an array, or None."""
        held = self.impl.grad(self.handles[number])
        return None if held is None else array(self.impl, held)

    def slots(self, numbers: Iterable[int] | None = None) -> Slots:
        """The slots of the given values, by default of the leaves."""
        return {n: self.slot(n) for n in (self.program.leaves if numbers is None else numbers)}

    def release_others(self, *kept: int) -> None:
        """Give up every value but the inputs and `kept`."""
        inputs = range(len(self.program.inputs))
        self.impl.release(*(h for n, h in enumerate(self.handles) if n not in kept and n not in inputs))


def build(impl: Session, case: Case | Program, *, passes: int = 0, charge: str = "", **keywords: Any) -> Run:
    """Build a program (of a case) and run `passes` passes over it; `charge` as in `apply_steps`."""
    program = case if isinstance(case, Program) else case.the_program
    handles = [_tensor(impl, i.shape, i.values, i.dtype, requires_grad=i.requires_grad) for i in program.inputs]
    run = Run(impl, program, apply_steps(impl, program, handles, charge), [])
    shapes, dtypes = program.shapes(), program.dtypes()
    run.seeds = [
        None if r.seed is None else _tensor(impl, shapes[r.value], r.seed, dtypes[r.value]) for r in program.roots
    ]
    for _ in range(passes):
        run.backward(**keywords)
    return run


def _tensor(impl: Session, shape: Shape, numbers: Sequence[Any], dtype: str, *, requires_grad: bool = False) -> Handle:
    data = to_array(shape, numbers, dtype)
    handle: Handle = impl.tensor(data.tolist(), shape=tuple(shape), dtype=dtype, requires_grad=requires_grad)
    return handle


def again(run: Run) -> Run:
    """The same program, run once more on the same inputs and with the same seeds."""
    inputs = run.handles[: len(run.program.inputs)]
    return Run(run.impl, run.program, apply_steps(run.impl, run.program, inputs), run.seeds)


def apply_steps(impl: Session, program: Program, inputs: Sequence[Handle], charge: str = "") -> list[Handle]:
    """Run the steps of a program on given inputs: a handle for every value, inputs first.

    An operation that fails discards the example, or is a finding on the clause `charge`.
    """
    handles = list(inputs)
    for step, numbers in program.results():
        try:
            result = impl.apply(step.op, *(handles[o] for o in step.operands), **step.keywords)
        except NativeError as error:
            if charge:
                raise
            raise BuildFailed(step.op, f"raised {error.type}") from None
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(numbers) or None in results:
            found = f"returned {sum(r is not None for r in results)} tensors, not {len(numbers)}"
            if charge:
                impl.judge.report(Finding(charge, "nonsense", f"{step.op} returns {len(numbers)} tensors", found))
            raise BuildFailed(step.op, found)
        handles.extend(results)
    for handle, name in zip(handles, program.names(), strict=True):
        handle.label = name  # what messages say, as the program is shown
    return handles


def judged(impl: Session, clause: str, run: Run, found: Slots, *, both: bool = False, leaves: bool = True) -> None:
    """The gradients of the values that reach a root are those of the oracles.

    Args:
        impl: the session.
        clause: the id.
        run: the program as built.
        found: number of a value to its gradient, None where there is none.
        both: ask central differences too and let both judge.
        leaves: every leaf that reaches a root must be among `found`.
    """
    impl.judge.asserted(clause)
    reached = run.program.reached()
    asked = {n: g for n, g in found.items() if n in reached}
    try:
        verdict = oracles.judge(run.program, asked, both=both, wrt=None if leaves else list(asked))
    except Kink:
        raise NotJudged("kink: the oracle refuses") from None
    if not verdict.agrees:
        expected = f"{run.handles[verdict.value or 0]}.grad is {show(verdict.expected)}"
        finding = Finding(clause, "wrong_value", expected, show(verdict.found), verdict.oracle, verdict.other)
        impl.judge.report(finding)


def judged_values(impl: Session, clause: str, run: Run, found: Slots) -> None:
    """Gradients of any tracked values are those of the oracles, and None where no root is reached."""
    reached = run.program.reached()
    for number, gradient in found.items():
        if number not in reached:
            impl.judge.asserted(clause)
            if gradient is not None:
                expected = f"{run.handles[number]}.grad is None: no path leads to a root"
                impl.judge.report(Finding(clause, "wrong_value", expected, show(gradient)))
    judged(impl, clause, run, {n: g for n, g in found.items() if n in reached}, leaves=False)


def equal_slots(impl: Session, clause: str, expected: Slots, found: Slots, program: Program) -> None:
    """Two readings of slots agree: equal where the program is exact, within its tolerance otherwise."""
    impl.judge.asserted(clause)
    for number, wanted in expected.items():
        seen = found[number]
        if not close(program, number, wanted, seen):
            text = f"{program.names()[number]}.grad is {show(wanted)}"
            impl.judge.report(Finding(clause, "wrong_value", text, show(seen)))


def close(program: Program, number: int, wanted: Array | None, seen: Array | None) -> bool:
    """Whether two gradients of a value agree, exactly where the program is exact."""
    if wanted is None or seen is None:
        return wanted is seen
    if wanted.shape != seen.shape:
        return False
    try:
        if oracles.is_exact(program):
            return bool(np.array_equal(wanted, seen))
        within = oracles.tolerance(program, str(seen.dtype), number)
    except Kink:  # both sides take the same convention there: only rounding may differ
        within = oracles.Tolerance(64 * float(np.finfo(seen.dtype).eps), 0.0)
    return bool(np.allclose(seen, wanted, rtol=8 * within.rtol, atol=8 * within.atol, equal_nan=True))


def arrived(impl: Session, clause: str, run: Run, numbers: Iterable[int] | None = None) -> Slots:
    """The slots of the given values, by default of the leaves, after a pass: what reaches a root must have a gradient.

    A control value that is read here is never None only because nothing was computed.
    """
    found, reached = run.slots(numbers), run.program.reached()
    for number, slot in found.items():
        filled = slot is not None or number not in reached
        expected = f"{run.handles[number]}.grad is a gradient: a path leads to a root"
        holds(impl, clause, filled, expected=expected, found="None", kind="wrong_value")
    return found


def single_slots(impl: Session, clause: str, case: Case | Program) -> Slots:
    """What one pass puts into the slots of the leaves of a build of its own; see `arrived`."""
    return arrived(impl, clause, build(impl, case, passes=1))


def times(k: float, slots: Slots) -> Slots:
    """Every slot times `k`."""
    return {n: None if g is None else k * g for n, g in slots.items()}


def plus(a: Slots, b: Slots) -> Slots:
    """Slot by slot the sum; None counts as nothing."""
    return {n: b[n] if g is None else g if b[n] is None else g + b[n] for n, g in a.items()}


def right_value(run: Run) -> tuple[bool, Array, Array]:
    """Whether the first root has NumPy's value, to a few roundings of the program's dtype; expected and found."""
    program, number = run.program, run.program.roots[0].value
    expected, found = evaluate(program)[number], array(run.impl, run.root)
    rtol = 16 * 2.0 ** (1 - oracles.DIGITS[oracles.narrowest(program)])
    same = found.shape == expected.shape and bool(np.all(np.abs(found - expected) <= rtol * np.abs(expected)))
    return same, expected, found


def second_derivative(step: Step, x: Array) -> Array:
    """The second derivative of a single operation at `x`, in closed form."""
    if step.op == "pow":
        exponent = step.keywords["exponent"]
        return np.asarray(exponent * (exponent - 1) * x ** (exponent - 2.0))
    if step.op == "log":
        return np.asarray(-1.0 / x**2)
    return np.asarray(-np.sin(x) if step.op == "sin" else -np.cos(x))
