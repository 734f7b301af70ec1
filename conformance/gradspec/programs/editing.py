"""Programs made of programs: appended steps, other roots, unused branches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradspec.programs.operations import OPERATIONS
from gradspec.programs.program import Input, Program, Root, Step
from gradspec.programs.strategies import with_steps


def size_of(program: Program, value: int) -> int:
    """The number of elements of a value."""
    return math.prod(program.shapes()[value])


def appended(program: Program, op: str, *operands: int, **attributes: Any) -> Program:
    """The program with one more step."""
    return replace(program, steps=(*program.steps, Step(op, operands, tuple(sorted(attributes.items())))))


def scalar(program: Program, value: int) -> tuple[Program, int]:
    """The program with a one-element value made of `value`, by a sum where it has not one element, and its number."""
    if size_of(program, value) == 1:
        return program, value
    return appended(program, "sum", value, dim=None, keepdim=False), len(program.shapes())


def onto_root(program: Program, op: str, extra: Input) -> Program:
    """The program whose first root is joined with a new input by an operation of two operands."""
    at, longer = len(program.inputs), with_steps(program, (), [extra])
    count = len(longer.shapes())
    return appended(longer, op, longer.roots[0].value, at).with_roots(Root(count))


def with_sum(program: Program, value: int) -> Program:
    """The program whose root is the sum of its first root and of all elements of `value`."""
    root = program.roots[0].value
    program, part = scalar(program, value)
    return appended(program, "add", root, part).with_roots(Root(len(program.shapes())))


def in_dtype(program: Program, dtype: str) -> Program:
    """The program in which every real floating input has this element type."""
    inputs = (replace(i, dtype=dtype) if i.dtype.startswith("float") else i for i in program.inputs)
    return replace(program, inputs=tuple(inputs))


def untracked(program: Program) -> Program:
    """The program in which no input that reaches a root requires grad."""
    reached = program.reached()
    inputs = (replace(i, requires_grad=i.requires_grad and n not in reached) for n, i in enumerate(program.inputs))
    return replace(program, inputs=tuple(inputs))


def one_leaf_per_use(program: Program, leaf: int) -> tuple[Program, list[int]]:
    """The program in which each use of a leaf has a leaf of its own with the same values, and their numbers."""
    uses = sum(step.operands.count(leaf) for step in program.steps)
    first = len(program.inputs)
    longer = with_steps(program, [], [program.inputs[leaf]] * uses)
    fresh = iter(range(first, first + uses))
    steps = tuple(replace(s, operands=tuple(next(fresh) if o == leaf else o for o in s.operands)) for s in longer.steps)
    return replace(longer, steps=steps), list(range(first, first + uses))


def summed(program: Program, order: Sequence[int]) -> Program:
    """The program whose one root is the sum of its roots, added in this order."""
    values = [program.roots[n].value for n in order]
    total = values[0]
    for value in values[1:]:
        program, total = appended(program, "add", total, value), len(program.shapes())
    return program.with_roots(Root(total))


def padded(program: Program, padding: Sequence[tuple[int, str, int]]) -> tuple[Program, list[int]]:
    """The program with unused steps between its own, and the numbers of their results."""
    steps: list[Step] = []
    number = {n: n for n in range(len(program.inputs))}
    at = len(program.inputs)
    unused: list[int] = []
    results = list(program.results())
    for position in range(len(results) + 1):
        for _, op, value in (p for p in padding if p[0] == position):
            operand = number[value] if value >= 0 else unused[-1] if unused else program.leaves[0]
            steps.append(Step(op, (operand,) * OPERATIONS[op].arity))
            unused.append(at)
            at += 1
        if position < len(results):
            step, old = results[position]
            steps.append(replace(step, operands=tuple(number[o] for o in step.operands)))
            number |= {n: at + k for k, n in enumerate(old)}
            at += len(old)
    roots = tuple(replace(r, value=number[r.value]) for r in program.roots)
    return Program(program.inputs, tuple(steps), roots), unused


def times_zero(program: Program, values: Sequence[int]) -> Program:
    """The program with the sums of some values, times zero, added to its root."""
    zero, first = len(program.inputs), len(program.shapes())
    program = with_steps(program, [], [Input((), (0.0,), program.inputs[0].dtype)])
    for value in values:
        moved = value + 1 if first > value >= zero else value
        count = len(program.shapes())
        program = with_sum(appended(program, "mul", moved, zero), count)
    return program
