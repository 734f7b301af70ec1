"""Programs and cases: the one value that a test draws, with a JSON round trip.

A program is data: inputs, steps, roots. Values are numbered: the inputs first, then the results of each step in turn
(a step with several results takes several numbers). Everything that happens in a test follows from its case and the
implementation, so that the JSON of a case is the counterexample, the pinned example and the replay at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from gradspec.programs.operations import OPERATIONS, Shape

Scalar = float | int | bool | complex
T = TypeVar("T")


class MalformedCase(ValueError):
    """The JSON of a case or program does not describe one; the message says what is wrong and where."""


@dataclass(frozen=True)
class Input:
    """One input: `values` is flat, in row-major order, one number per element of `shape`."""

    shape: Shape
    values: tuple[Scalar, ...]
    dtype: str = "float64"
    requires_grad: bool = False


@dataclass(frozen=True)
class Step:
    """One operation on earlier values, named by number; attributes are sorted by name."""

    op: str
    operands: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def keywords(self) -> dict[str, Any]:
        """The attributes as keyword arguments."""
        return dict(self.attributes)


@dataclass(frozen=True)
class Root:
    """A value from which backward starts, and its seed (flat, of the root's shape), None for the implicit one."""

    value: int
    seed: tuple[Scalar, ...] | None = None


@dataclass(frozen=True)
class Program:
    """Inputs, steps and roots. Well formed by construction: `check` raises MalformedCase otherwise."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...] = ()
    roots: tuple[Root, ...] = ()

    @cached_property
    def _layout(self) -> tuple[list[Shape], list[tuple[Step, range]]]:
        # asked for many times while a program is judged
        shapes, results = [tuple(i.shape) for i in self.inputs], []
        for step in self.steps:
            at = len(shapes)
            shapes.extend(OPERATIONS[step.op].shapes([shapes[o] for o in step.operands], step.keywords))
            results.append((step, range(at, len(shapes))))
        return shapes, results

    def shapes(self) -> list[Shape]:
        """The shape of every value, inputs first."""
        return list(self._layout[0])

    def results(self) -> Sequence[tuple[Step, range]]:
        """Each step with the numbers of its results."""
        return self._layout[1]

    def names(self) -> list[str]:
        """What messages call the values: inputs `x1, x2, …`, results `y1, y2, …`."""
        inputs = len(self.inputs)
        return [f"x{n + 1}" if n < inputs else f"y{n + 1 - inputs}" for n in range(len(self.shapes()))]

    def dtypes(self) -> list[str]:
        """The element type of every value: that of its first value operand, with complex made and unmade."""
        names = [i.dtype for i in self.inputs]
        for step, numbers in self.results():
            operation = OPERATIONS[step.op]
            given = [names[o] for at, o in enumerate(step.operands) if operation.role(at) == "value"]
            name = next((n for n in given if n.startswith("complex")), given[0])
            if step.op == "complex":
                name = _COMPLEX_OF[name]
            elif step.op in ("real", "imag"):
                name = _REAL_OF.get(name, name)
            names.extend(name for _ in numbers)
        return names

    def tracked(self) -> list[bool]:
        """For every value whether it requires grad: an input by its flag, a result if a value operand does."""
        flags = [i.requires_grad for i in self.inputs]
        for step, numbers in self.results():
            operation = OPERATIONS[step.op]
            flag = any(flags[o] for at, o in enumerate(step.operands) if operation.role(at) == "value")
            flags.extend(flag for _ in numbers)
        return flags

    def reached(self, *roots: int) -> set[int]:
        """The numbers of the tracked values from which a recorded path leads to one of `roots` (default: the roots)."""
        flags, steps = self.tracked(), self.results()
        seen = {r for r in (roots or tuple(root.value for root in self.roots)) if flags[r]}
        for step, numbers in reversed(steps):
            if seen.intersection(numbers):
                operation = OPERATIONS[step.op]
                seen.update(o for at, o in enumerate(step.operands) if operation.role(at) == "value" and flags[o])
        return seen

    @property
    def leaves(self) -> list[int]:
        """The numbers of the inputs that require grad."""
        return [n for n, i in enumerate(self.inputs) if i.requires_grad]

    def to_json(self) -> dict[str, Any]:
        """The program as JSON data."""
        return _program_to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Program:
        """The program that `to_json` wrote; MalformedCase where it is not well formed."""
        return _program_from_json(data).check()

    def with_roots(self, *roots: Root) -> Program:
        """The same program with other roots."""
        return replace(self, roots=roots)

    def check(self) -> Program:
        """Return the program itself if it is well formed, raise MalformedCase with the place otherwise."""
        for n, given in enumerate(self.inputs):
            _check_input(n, given)
        at = len(self.inputs)
        shapes: list[Shape] = [tuple(i.shape) for i in self.inputs]
        for n, step in enumerate(self.steps):
            if not isinstance(step.op, str) or step.op not in OPERATIONS:
                raise MalformedCase(f"step {n}: no operation is called {step.op!r}")
            if any(not _whole(o) or o >= at for o in step.operands):
                raise MalformedCase(f"step {n} ({step.op}): operands {step.operands} name values that do not exist yet")
            operation = OPERATIONS[step.op]
            if operation.arity not in (-1, len(step.operands)) or not step.operands:
                raise MalformedCase(f"step {n} ({step.op}): {len(step.operands)} operands are too few or too many")
            if set(step.keywords) != set(operation.attributes):
                raise MalformedCase(f"step {n} ({step.op}): attributes are {operation.attributes}")
            try:
                new = operation.shapes([shapes[o] for o in step.operands], step.keywords)
            except (ValueError, TypeError, IndexError) as error:
                raise MalformedCase(f"step {n} ({step.op}): {error}") from None
            self._check_roles(n, step)
            shapes.extend(new)
            at += len(new)
        for n, root in enumerate(self.roots):
            if not _whole(root.value) or root.value >= at:
                raise MalformedCase(f"root {n}: value {root.value} does not exist")
            if root.seed is None:
                continue
            if not _numbers(root.seed):
                raise MalformedCase(f"root {n}: a seed is a list of numbers")
            if len(root.seed) != math.prod(shapes[root.value]):
                raise MalformedCase(f"root {n}: {len(root.seed)} seed values for shape {shapes[root.value]}")
        return self

    def _check_roles(self, n: int, step: Step) -> None:
        """An index is an input of type int64, a mask one of type bool."""
        for at, operand in enumerate(step.operands):
            role = OPERATIONS[step.op].role(at)
            wanted = {"index": "int64", "mask": "bool"}.get(role)
            if wanted is None:
                continue
            given = self.inputs[operand] if operand < len(self.inputs) else None
            if given is None or given.dtype != wanted:
                raise MalformedCase(f"step {n} ({step.op}): operand {at} is no input of type {wanted}")


@dataclass(frozen=True)
class Case:
    """What one test draws: a program, commands for a state machine, parameters; each may be empty.

    Attributes:
        program: the program, or None.
        commands: (name, argument, ...) tuples of names and numbers.
        parameters: named numbers, texts, lists; read by `case["name"]`.
    """

    program: Program | None = None
    commands: tuple[tuple[Any, ...], ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def __hash__(self) -> int:
        return hash((self.program, self.commands, repr(sorted(self.parameters.items()))))

    @property
    def the_program(self) -> Program:
        """The program of a case that has one."""
        if self.program is None:
            raise MalformedCase("this case has no program")
        return self.program

    def to_json(self) -> dict[str, Any]:
        """The case as JSON data: `from_json` gives it back."""
        data: dict[str, Any] = {}
        if self.program is not None:
            data["program"] = self.program.to_json()
        if self.commands:
            data["commands"] = [_plain(c) for c in self.commands]
        if self.parameters:
            data["parameters"] = {k: _plain(v) for k, v in sorted(self.parameters.items())}
        return data

    @classmethod
    def from_json(cls, data: Any) -> Case:
        """The case that `to_json` wrote; MalformedCase where the data describes none."""
        _only(data, "a case", "program", "commands", "parameters")
        program = Program.from_json(data["program"]) if "program" in data else None
        commands = tuple(_placed("command", n, _command, c) for n, c in enumerate(_list(data, "commands")))
        parameters = data.get("parameters", {})
        if not isinstance(parameters, dict):
            raise MalformedCase("parameters is an object")
        return cls(program, commands, {k: _placed("parameter", k, _frozen, v) for k, v in parameters.items()})


DTYPES = ("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64", "bool")
"""Names of the element types that an input may have."""


def _check_input(n: int, given: Input) -> None:
    if not all(_whole(size) for size in given.shape):
        raise MalformedCase(f"input {n}: the shape {given.shape} is no list of sizes")
    if given.dtype not in DTYPES:
        raise MalformedCase(f"input {n}: no element type is called {given.dtype!r}")
    if not isinstance(given.requires_grad, bool):
        raise MalformedCase(f"input {n}: requires_grad is true or false, not {given.requires_grad!r}")
    if not _numbers(given.values):
        raise MalformedCase(f"input {n}: values is a flat list of numbers")
    if len(given.values) != math.prod(given.shape):
        raise MalformedCase(f"input {n}: {len(given.values)} values for shape {given.shape}")


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _numbers(values: Any) -> bool:
    return isinstance(values, tuple) and all(isinstance(v, float | int | complex) for v in values)


_COMPLEX_OF = {"float64": "complex128", "float32": "complex64"}
_REAL_OF = {"complex128": "float64", "complex64": "float32"}


def _plain(value: Any) -> Any:
    """JSON data for numbers, texts, None, tuples: complex numbers and non-finite floats are tagged."""
    if isinstance(value, complex):
        return {"complex": [_plain(value.real), _plain(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _frozen(data: Any) -> Any:
    """The inverse of `_plain`; lists become tuples."""
    if isinstance(data, list):
        return tuple(_frozen(d) for d in data)
    if isinstance(data, dict):
        if set(data) == {"complex"}:
            real, imaginary = _frozen(data["complex"])
            return complex(real, imaginary)
        if set(data) == {"float"}:
            return float(data["float"])
        raise MalformedCase(f"unknown tag {sorted(data)}")
    return data


def _program_to_json(program: Program) -> dict[str, Any]:
    return {
        "inputs": [
            {"shape": list(i.shape), "values": _plain(i.values), "dtype": i.dtype, "requires_grad": i.requires_grad}
            for i in program.inputs
        ],
        "steps": [
            {"op": s.op, "operands": list(s.operands)}
            | ({"attributes": {k: _plain(v) for k, v in s.attributes}} if s.attributes else {})
            for s in program.steps
        ],
        "roots": [{"value": r.value} | ({"seed": _plain(r.seed)} if r.seed is not None else {}) for r in program.roots],
    }


def _program_from_json(data: Any) -> Program:
    _only(data, "a program", "inputs", "steps", "roots")
    if "inputs" not in data:
        raise MalformedCase("a program has inputs")
    return Program(
        tuple(_placed("input", n, _input, i) for n, i in enumerate(_list(data, "inputs"))),
        tuple(_placed("step", n, _step, s) for n, s in enumerate(_list(data, "steps"))),
        tuple(_placed("root", n, _root, r) for n, r in enumerate(_list(data, "roots"))),
    )


def _placed(what: str, n: int | str, read: Callable[[Any], T], data: Any) -> T:
    try:
        return read(data)
    except KeyError as error:
        raise MalformedCase(f"{what} {n}: it lacks {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise MalformedCase(f"{what} {n}: {error}") from None


def _only(data: Any, what: str, *names: str) -> None:
    if not isinstance(data, dict) or set(data) - set(names):
        raise MalformedCase(f"{what} is an object with {', '.join(names)} and nothing else")


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name, [])
    if not isinstance(found, list):
        raise MalformedCase(f"{name} is a list")
    return found


def _input(data: Any) -> Input:
    _only(data, "an input", "shape", "values", "dtype", "requires_grad")
    values = _frozen(data["values"])
    return Input(tuple(data["shape"]), values, data.get("dtype", "float64"), data.get("requires_grad", False))


def _step(data: Any) -> Step:
    _only(data, "a step", "op", "operands", "attributes")
    attributes = tuple(sorted((k, _frozen(v)) for k, v in data.get("attributes", {}).items()))
    return Step(data["op"], tuple(data["operands"]), attributes)


def _command(data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise MalformedCase("a command is a list that begins with its name")
    command: tuple[Any, ...] = _frozen(data)
    return command


def _root(data: Any) -> Root:
    _only(data, "a root", "value", "seed")
    return Root(data["value"], _frozen(data["seed"]) if "seed" in data else None)
