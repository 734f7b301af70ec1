"""A failure in words: the smallest program, what was expected and found, who says so, how to see it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gradspec.programs.program import Case, Input, MalformedCase, Program, Root

MAX_LINES = 6
MAX_WIDTH = 100
"""Longest line of a program where nothing else is asked for."""


def program_lines(case: Case, limit: int = MAX_LINES, width: int = MAX_WIDTH) -> list[str]:
    """A case as the lines of a small program: inputs `x1…`, results `y1…`, roots with seeds, commands, parameters.

    Args:
        case: the case.
        limit: the number of lines; several statements share one, and what is left over is counted in the last but one.
        width: the longest line; what is beyond it is left out, with a sign.
    """
    statements = _program(case.program) if case.program is not None else []
    statements += [_command(command) for command in case.commands]
    if case.parameters:
        statements.append("with " + ", ".join(f"{name} = {_literal(v)}" for name, v in sorted(case.parameters.items())))
    return _folded([_cut(statement, width) for statement in statements], limit, width)


def _program(program: Program) -> list[str]:
    names = program.names()
    lines = [f"{name} = {_input(given)}" for name, given in zip(names, program.inputs, strict=False)]
    for step, numbers in program.results():
        arguments = [names[o] for o in step.operands] + [f"{k}={_literal(v)}" for k, v in step.attributes]
        lines.append(f"{', '.join(names[n] for n in numbers)} = {step.op}({', '.join(arguments)})")
    return lines + [_root(root, names, program) for root in program.roots]


def _input(given: Input) -> str:
    dtype = "" if given.dtype == "float64" else f", {given.dtype}"
    return f"tensor({_nested(given.values, given.shape)}{dtype}{', requires_grad' if given.requires_grad else ''})"


def _root(root: Root, names: Sequence[str], program: Program) -> str:
    if root.seed is None:
        return f"root {names[root.value]}"
    return f"root {names[root.value]}, seed {_nested(root.seed, program.shapes()[root.value])}"


def _nested(values: Sequence[Any], shape: Sequence[int]) -> str:
    if math.prod(shape) == 0:
        return f"[] of shape {_literal(tuple(shape))}"
    if not shape:
        return _literal(values[0])
    size = len(values) // shape[0]
    return f"[{', '.join(_nested(values[n * size : (n + 1) * size], shape[1:]) for n in range(shape[0]))}]"


def _command(command: Sequence[Any]) -> str:
    name, *arguments = command or ("(nothing)",)
    return f"{name}({', '.join(_literal(a) for a in arguments)})"


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(part) for part in value)}]"
    return repr(value)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _folded(statements: Sequence[str], limit: int, width: int) -> list[str]:
    """The statements in at most `limit` lines: short neighbours share a line, the rest is counted."""
    if len(statements) <= limit:
        return list(statements)
    lines: list[str] = []
    for statement in statements:
        joined = f"{lines[-1]}; {statement}" if lines else statement
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(statement)
    if len(lines) <= limit:
        return lines
    # the end says what is done with the program: keep it, and leave out of the middle
    left_out = sum(line.count("; ") + 1 for line in lines[limit - 2 : -1])
    return [*lines[: limit - 2], f"… {left_out} more statements", lines[-1]]


def replay_line(argument: str, clause: str, seed: int, profile: str = "default") -> str:
    """The command that shows a failure again."""
    extra = "" if profile == "default" else f" --profile {profile}"
    return f"gradspec check {shlex.quote(argument)} --clause {clause} --seed {seed}{extra}"


def failure_lines(entry: Mapping[str, Any], sentence: str, width: int = MAX_WIDTH) -> list[str]:
    """One failed clause of a record in plain text: sentence, program, expected, found, oracle, how to see it again.

    Args:
        entry: the clause as the record gives it, or a row with `reason`; a failure needs `replay`, the rest may lack.
        sentence: that of its card.
        width: the longest line of the program; other lines are as long as they are.
    """
    failure = entry["failure"]
    lines = [sentence] if sentence else []
    if failure is None:
        return [*lines, entry["reason"]]
    lines += [f"  {line}" for line in _case_lines(failure.get("case"), width - 2)]
    lines += [f"expected: {failure['expected']}", f"found:    {failure['found']}"]
    if failure.get("oracle"):
        other = failure.get("other", "")
        lines.append(f"judged by {failure['oracle']}" + (f"; {other}" if other else ""))
    if failure.get("flaky"):
        lines.append("flaky: the same case passed when it was run again")
    return [*lines, f"replay:   {failure['replay']}"]


def _case_lines(data: Any, width: int) -> list[str]:
    if data is None:
        return ["(the case is not known)"]
    try:
        return program_lines(Case.from_json(data), width=width) or ["(an empty case)"]
    except MalformedCase as error:
        return [f"(the case cannot be shown: {error})"]
