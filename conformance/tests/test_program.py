"""Programs and cases as JSON, and what a program says of its values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from gradspec.programs.program import Case, Input, MalformedCase, Program, Root, Step
from gradspec.report import first_violation

SUM = (("dim", None), ("keepdim", False))
X = Input((2,), (1.0, -0.5), requires_grad=True)
FROZEN = Input((2,), (3.0, 0.0))
INDEX = Input((3,), (1, 0, 1), "int64")
MASK = Input((2,), (True, False), "bool")
# values: 0 x, 1 frozen, 2 index, 3 mask | 4 mul, 5 index_select, 6-7 split, 8 where, 9 sum, 10 dangling neg
GRAPH = Program(
    (X, FROZEN, INDEX, MASK),
    (
        Step("mul", (0, 1)),
        Step("index_select", (4, 2), (("dim", 0),)),
        Step("split", (5,), (("dim", 0), ("split_size", 2))),
        Step("where", (3, 6, 1)),
        Step("sum", (8,), SUM),
        Step("neg", (7,)),
    ),
    (Root(9), Root(1 + 4, (1.0, 0.5, 0.25))),
)
COMPLEX = Program(
    (X, Input((2,), (1 - 2j, complex(0.5, math.inf)), "complex128", requires_grad=True)),
    (Step("complex", (0, 0)), Step("mul", (2, 1)), Step("real", (3,))),
    (Root(3, (1j, 2 + 0.5j)),),
)
CASES = [
    Case(),
    Case(GRAPH),
    Case(COMPLEX),
    Case(Program((Input((0, 3), ()), Input((), (math.inf,), "float32")))),
    Case(Program((Input((2,), (-0.0, -math.inf)),), (), (Root(0, (0.0, 1.0)),))),
    Case(commands=(("backward",), ("assign", 0, (1.0, 2.0)), ("pass", 1, True))),
    Case(parameters={"passes": 3, "shape": (2, ()), "none": None, "text": "a", "flag": False, "z": 1 + 2j}),
    Case(GRAPH, (("read", 0),), {"seeds": ((1.0, math.inf), (0.5, 2.0))}),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_case_comes_back_from_json(case: Case) -> None:
    data = json.loads(json.dumps(case.to_json(), allow_nan=False))
    assert first_violation("case", data) is None
    back = Case.from_json(data)
    assert (back, hash(back)) == (case, hash(case))
    assert json.dumps(back.to_json()) == json.dumps(case.to_json())  # tells -0.0 from 0.0, True from 1


def test_not_a_number_comes_back() -> None:
    back = Case.from_json(Case(Program((Input((2,), (math.nan, complex(0.0, math.nan))),))).to_json())
    first, second = back.the_program.inputs[0].values
    assert math.isnan(first)
    assert math.isnan(second.imag)


def test_parameters_are_read_by_name() -> None:
    case = Case(parameters={"passes": 3})
    assert case["passes"] == 3
    with pytest.raises(KeyError):
        case["other"]
    with pytest.raises(MalformedCase, match="no program"):
        _ = case.the_program


# -- malformed -------------------------------------------------------------------------------------------------------


def changed(path: str, value: Any) -> dict[str, Any]:
    """The JSON of a good case with one place replaced, or removed where the value is `...`."""
    data = json.loads(json.dumps(Case(GRAPH, (("read", 0),), {"passes": 1}).to_json()))
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place = data
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


MALFORMED = [
    ("program", 3, "a program is an object with inputs, steps, roots"),
    ("program/other", 3, "a program is an object with inputs, steps, roots"),
    ("other", 3, "a case is an object with program, commands, parameters"),
    ("commands", {}, "commands is a list"),
    ("commands/0", "read", "command 0: a command is a list that begins with its name"),
    ("commands/0", [], "command 0: "),
    ("commands/0", [1, 2], "command 0: "),
    ("commands/0/1", {"b": 1}, r"command 0: unknown tag \['b'\]"),
    ("parameters", [], "parameters is an object"),
    ("parameters/passes", {"a": 1}, r"parameter passes: unknown tag \['a'\]"),
    ("parameters/passes", {"complex": [1]}, "parameter passes: "),
    ("parameters/passes", {"float": "much"}, "parameter passes: could not convert"),
    ("program/inputs", ..., "a program has inputs"),
    ("program/inputs", {"a": 1}, "inputs is a list"),
    ("program/inputs/1", 5, "input 1: an input is an object"),
    ("program/inputs/1/need_grad", True, "input 1: an input is an object"),
    ("program/inputs/1/shape", ..., "input 1: it lacks 'shape'"),
    ("program/inputs/1/shape", 2, "input 1: 'int' object is not iterable"),
    ("program/inputs/1/shape", [-1, -2], "input 1: the shape"),
    ("program/inputs/1/shape", [2.0], "input 1: the shape"),
    ("program/inputs/1/shape", [3], r"input 1: 2 values for shape \(3,\)"),
    ("program/inputs/0/values", [1.0], r"input 0: 1 values for shape \(2,\)"),
    ("program/inputs/0/values", ["a", "b"], "input 0: values is a flat list of numbers"),
    ("program/inputs/0/values", [[1.0], [2.0]], "input 0: values is a flat list of numbers"),
    ("program/inputs/0/values", 1.0, "input 0: values is a flat list of numbers"),
    ("program/inputs/0/values/0", None, "input 0: values is a flat list of numbers"),
    ("program/inputs/0/dtype", "float65", "input 0: no element type is called 'float65'"),
    ("program/inputs/0/requires_grad", 1, "input 0: requires_grad is true or false, not 1"),
    ("program/steps/0", [], "step 0: a step is an object"),
    ("program/steps/0/op", "multiply", "step 0: no operation is called 'multiply'"),
    ("program/steps/0/op", ["mul"], "step 0: no operation is called"),
    ("program/steps/0/op", ..., "step 0: it lacks 'op'"),
    ("program/steps/0/operands", [0], r"step 0 \(mul\): 1 operands are too few or too many"),
    ("program/steps/0/operands", [], r"step 0 \(mul\): 0 operands are too few or too many"),
    ("program/steps/0/operands", [0, 4], r"step 0 \(mul\): operands \(0, 4\) name values that do not exist yet"),
    ("program/steps/0/operands", [0, -1], r"step 0 \(mul\): operands"),
    ("program/steps/0/operands", [0, 0.5], r"step 0 \(mul\): operands"),
    ("program/steps/0/operands", [0, True], r"step 0 \(mul\): operands"),
    ("program/steps/0/operands", [0, 2], r"step 0 \(mul\): shapes .* do not broadcast"),
    ("program/steps/0/attributes", {"dim": 0}, r"step 0 \(mul\): attributes are \(\)"),
    ("program/steps/1/attributes", [], "step 1: "),
    ("program/steps/1/attributes/dim", "x", r"step 1 \(index_select\): "),
    ("program/steps/1/attributes/dim", 1, r"step 1 \(index_select\): axis 1 does not exist"),
    ("program/steps/1/operands", [4, 0], r"step 1 \(index_select\): operand 1 is no input of type int64"),
    ("program/steps/3/operands", [0, 6, 1], r"step 3 \(where\): operand 0 is no input of type bool"),
    ("program/steps/4/attributes/keepdim", ..., r"step 4 \(sum\): attributes are \('dim', 'keepdim'\)"),
    ("program/roots/0", 9, "root 0: a root is an object"),
    ("program/roots/0/value", ..., "root 0: it lacks 'value'"),
    ("program/roots/0/value", 11, "root 0: value 11 does not exist"),
    ("program/roots/0/value", "9", "root 0: value 9 does not exist"),
    ("program/roots/1/seed", [1.0], r"root 1: 1 seed values for shape \(3,\)"),
    ("program/roots/1/seed", 1.0, "root 1: a seed is a list of numbers"),
    ("program/roots/1/seed", ["a", "b", "c"], "root 1: a seed is a list of numbers"),
]


@pytest.mark.parametrize(("path", "value", "text"), MALFORMED)
def test_what_is_malformed_is_told_with_its_place(path: str, value: Any, text: str) -> None:
    with pytest.raises(MalformedCase, match=f"^{text}"):
        Case.from_json(changed(path, value))


@pytest.mark.parametrize("data", [None, [], "case", 3, {"case": {}}])
def test_what_is_no_object_is_no_case(data: Any) -> None:
    with pytest.raises(MalformedCase, match="a case is an object"):
        Case.from_json(data)


def test_the_unchanged_case_is_good() -> None:
    assert Case.from_json(changed("parameters/passes", 1)).the_program == GRAPH


# -- facts -----------------------------------------------------------------------------------------------------------


def test_shapes_and_results_are_numbered_inputs_first() -> None:
    assert GRAPH.check() is GRAPH
    assert GRAPH.shapes() == [(2,), (2,), (3,), (2,), (2,), (3,), (2,), (1,), (2,), (), (1,)]
    assert [(step.op, list(numbers)) for step, numbers in GRAPH.results()][2:4] == [("split", [6, 7]), ("where", [8])]
    GRAPH.shapes().append((9,))
    assert len(GRAPH.shapes()) == 11


def test_what_requires_grad() -> None:
    assert GRAPH.leaves == [0]
    assert [n for n, flag in enumerate(GRAPH.tracked()) if flag] == [0, 4, 5, 6, 7, 8, 9, 10]
    untracked = Program((FROZEN, MASK), (Step("where", (1, 0, 0)),))
    assert untracked.tracked() == [False] * 3


@pytest.mark.parametrize(
    ("roots", "reached"),
    [((), {0, 4, 5, 6, 7, 8, 9} - {7}), ((10,), {0, 4, 5, 7, 10}), ((4,), {0, 4}), ((0,), {0}), ((1, 2), set())],
)
def test_what_a_pass_reaches(roots: tuple[int, ...], reached: set[int]) -> None:
    assert GRAPH.reached(*roots) == reached


def test_element_types_follow_the_value_operands() -> None:
    assert GRAPH.dtypes() == ["float64", "float64", "int64", "bool", *7 * ["float64"]]
    assert COMPLEX.dtypes() == ["float64", "complex128", "complex128", "complex128", "float64"]
    narrow = Input((2,), (1.0, 2.0), "float32")
    pair = Program((narrow, MASK), (Step("where", (1, 0, 0)), Step("complex", (0, 0)), Step("imag", (3,))))
    assert pair.dtypes() == ["float32", "bool", "float32", "complex64", "float32"]


def test_other_roots_leave_the_program_as_it_was() -> None:
    other = GRAPH.with_roots(Root(4))
    assert (other.inputs, other.steps, other.roots) == (GRAPH.inputs, GRAPH.steps, (Root(4),))
    assert GRAPH.roots[0] == Root(9)
    assert other.reached() == {0, 4}


def test_attributes_are_keywords() -> None:
    assert Step("sum", (0,), SUM).keywords == {"dim": None, "keepdim": False}
