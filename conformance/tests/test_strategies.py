"""What the strategies reach, what every option promises, and that no draw depends on what else is loaded."""

from __future__ import annotations

import collections
import math
import random
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from gradspec.adapter import OPTIONAL, Unsupported
from gradspec.capabilities import Capabilities
from gradspec.programs import building, commands, oracles, strategies
from gradspec.programs.building import Fact
from gradspec.programs.forward import evaluate, feeding
from gradspec.programs.operations import OPERATIONS, REAL
from gradspec.programs.program import Case, Input, Program, Root, Step
from gradspec.programs.strategies import graphs
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.strategies import SearchStrategy

LINTS: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("lints.py")))
PROGRAMS = Path(strategies.__file__).parent
DRAWS = 300
FULL = Capabilities(
    features=frozenset({"grad", "seed", "frozen"}),
    keywords=frozenset(),
    operations=tuple(OPERATIONS),
    dtypes=("float64", "float32", "int64", "bool"),
    max_rank=4,
    declared=tuple(OPERATIONS),
)
SCALAR = replace(FULL, operations=("neg", "relu", "pow", "add", "mul"), dtypes=("float64",), max_rank=0)
SUM = (("dim", None), ("keepdim", False))


def drawn(strategy: SearchStrategy[Case], count: int = DRAWS, seed: int = 20260) -> list[Case]:
    """The cases that a run with this seed draws."""
    cases: list[Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases


def programs(capabilities: Capabilities = FULL, count: int = 80, **options: Any) -> list[Program]:
    return [case.the_program for case in drawn(graphs(**options)(capabilities), count)]


# -- reach -----------------------------------------------------------------------------------------------------------


def reused_leaf(program: Program) -> bool:
    uses = collections.Counter(o for step in program.steps for o in step.operands)
    return any(uses[leaf] > 1 for leaf in program.leaves)


def broadcasts(program: Program) -> bool:
    shapes = program.shapes()
    elementwise = [s for s in program.steps if s.op in ("add", "sub", "mul", "div", "where")]
    return any(len({shapes[o] for o in s.operands}) > 1 for s in elementwise)


def dangles(program: Program) -> bool:
    wanted, flags = program.reached(), program.tracked()
    return any(flags[n] and n not in wanted for n in range(len(program.inputs), len(flags)))


def numbers_of(program: Program) -> list[Input]:
    return [given for given in program.inputs if given.dtype.startswith("float")]


def repeated_index(program: Program) -> bool:
    return any(i.dtype == "int64" and len(set(i.values)) < len(i.values) for i in program.inputs)


CLASSES: dict[str, tuple[Callable[[Program], bool], float, float]] = {
    "a leaf that is used again": (reused_leaf, 30, 100),
    "broadcasting": (broadcasts, 20, 100),
    "an axis of size zero": (lambda p: any(0 in shape for shape in p.shapes()), 5, 100),
    "four steps or more": (lambda p: len(p.steps) >= 4, 50, 100),
    "one step": (lambda p: len(p.steps) == 1, 1, 25),
    "ties in an input": (lambda p: any(len(set(i.values)) < len(i.values) for i in numbers_of(p)), 5, 100),
    "a zero in an input": (lambda p: any(0 in i.values for i in numbers_of(p)), 5, 100),
    "a value of rank 0": (lambda p: () in p.shapes(), 5, 100),
    "a tracked value that no root needs": (dangles, 5, 100),
    "float32": (lambda p: any(i.dtype == "float32" for i in p.inputs), 5, 100),
    "a frozen input": (lambda p: any(not i.requires_grad for i in numbers_of(p)), 5, 100),
    "one value as both operands": (lambda p: any(len(set(s.operands)) < len(s.operands) for s in p.steps), 5, 100),
    "a repeated index": (repeated_index, 0.3, 100),
}
"""What programs must hold, with the least and the greatest share in percent."""


def reach(sample: Iterable[Program]) -> dict[str, float]:
    """The share in percent of the programs in each class, and of the steps that are each operation."""
    found = list(sample)
    table = {name: 100 * sum(map(holds, found)) / len(found) for name, (holds, _, _) in CLASSES.items()}
    steps = collections.Counter(step.op for program in found for step in program.steps)
    return table | {name: 100 * steps[name] / steps.total() for name in REAL}


@pytest.fixture(scope="module")
def sample() -> list[Program]:
    return programs(count=DRAWS)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_programs_is_reached(sample: list[Program], name: str) -> None:
    _, least, most = CLASSES[name]
    assert least <= reach(sample)[name] <= most


def test_every_operation_is_drawn(sample: list[Program]) -> None:
    # two runs: Hypothesis repeats parts of what it drew, so that one run of 300 now and then starves an operation
    shares = reach([*sample, *(case.the_program for case in drawn(graphs()(FULL), DRAWS, seed=1))])
    assert {name: shares[name] for name in REAL if shares[name] < 0.4} == {}


def test_a_class_that_is_missed_would_be_told() -> None:
    one = Program((Input((), (1.0,), requires_grad=True),), (Step("neg", (0,)),), (Root(1),))
    shares = reach([one])
    missed = {name for name, (_, least, most) in CLASSES.items() if not least <= shares[name] <= most}
    assert missed == set(CLASSES) - {"a value of rank 0"}


# -- every program ---------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"root": "scalar"},
    {"root": "several"},
    {"roots": (2, 3)},
    {"exact": True, "apart": True},
    {"saves": True, "root": "scalar"},
    {"saves": False, "root": "several", "min_leaves": 3},
    {"ensure": "index_select", "root": "several"},
    {"constants": 2, "roots": (1, 2)},
    {"views": False, "frozen": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("max_rank", [1, 2, 4])
def test_every_program_is_well_formed_finite_and_tracked(options: dict[str, Any], max_rank: int) -> None:
    for program in programs(replace(FULL, max_rank=max_rank), 25, **options):
        assert program.check() is program
        assert Program.from_json(program.to_json()) == program
        flags, values = program.tracked(), evaluate(program)
        assert program.roots
        assert all(flags[root.value] for root in program.roots)
        assert all(np.all(np.isfinite(v)) and v.ndim <= max_rank for v in values)
        with np.errstate(all="raise"):
            narrow = evaluate(program, "input")
        assert all(np.all(np.isfinite(v)) for v in narrow)


def extent(values: Any) -> Fact:
    floats = np.asarray(values, dtype=np.float64)
    return Fact(floats.shape, float(floats.min(initial=2.0)), float(floats.max(initial=-2.0)))


def test_bounds_hold_what_is_computed(sample: list[Program]) -> None:
    """What is known of a value before numbers are drawn is true of the numbers."""
    for program in sample:
        values = evaluate(program)
        for step, numbers in program.results():
            if any(values[o].size == 0 for o in step.operands):
                continue
            facts = [extent(values[o]) for o in step.operands]
            low, high = building.bounds(OPERATIONS[step.op], facts, step.keywords)
            margin = 1e-12 * (1 + max(abs(low), abs(high)))
            for n in numbers:
                assert values[n].size == 0 or low - margin <= values[n].min() <= values[n].max() <= high + margin, step


@pytest.mark.parametrize(("low", "high"), [(-800.0, -700.0), (-40.0, 2.0), (-12.0, -11.0)])
def test_what_is_nearly_zero_is_not_taken_for_positive(low: float, high: float) -> None:
    for op in ("exp", "sigmoid"):
        bounds = building.bounds(OPERATIONS[op], [Fact((), low, high)], {})
        assert not Fact((), *bounds).positive


@pytest.mark.parametrize("options", [{}, {"root": "scalar", "saves": True}, {"apart": True, "min_leaves": 3}], ids=str)
def test_scalar_engines_get_programs_that_they_can_run(options: dict[str, Any]) -> None:
    found = programs(SCALAR, 100, **options)
    assert all(set(program.check().shapes()) == {()} for program in found)
    assert {step.op for program in found for step in program.steps} == set(SCALAR.operations)


@pytest.mark.parametrize(
    ("options", "offered", "text"),
    [
        ({}, replace(FULL, operations=("add", "sum")), "operation mul"),
        ({}, replace(FULL, operations=("add", "mul")), "operation sum"),
        ({}, replace(SCALAR, operations=("mul",)), "operation add"),
        ({"ensure": "matmul"}, SCALAR, "operation matmul"),
        ({"operations": ("tanh", "exp")}, SCALAR, "operation tanh or exp"),
        ({"root": "several"}, SCALAR, "tensors of two or more elements"),
        ({"dtype": "complex128"}, FULL, "dtype complex128"),
        ({}, replace(FULL, dtypes=("float16",)), "dtype float64 or float32"),
    ],
)
def test_what_is_not_offered_is_named(options: dict[str, Any], offered: Capabilities, text: str) -> None:
    with pytest.raises(Unsupported, match=f"^{text}$"):
        graphs(**options)(offered)


def test_unary_names_what_is_not_offered() -> None:
    with pytest.raises(Unsupported, match=r"^operation sin or cos$"):
        strategies.unary("sin", "cos")(SCALAR)


# -- options ---------------------------------------------------------------------------------------------------------


def sizes(program: Program) -> list[int]:
    return [math.prod(program.shapes()[root.value]) for root in program.roots]


def recorded(program: Program, op: str) -> bool:
    """A tracked result of `op` lies on the way to every root."""
    flags = program.tracked()
    results = [n for step, numbers in program.results() if step.op == op for n in numbers if flags[n]]
    return all(program.reached(root.value).intersection(results) for root in program.roots)


def saves_on_the_way(program: Program) -> bool:
    flags = program.tracked()
    saved = {n for step, numbers in program.results() if OPERATIONS[step.op].saves for n in numbers if flags[n]}
    return all(program.reached(root.value) & saved for root in program.roots)


def apart(program: Program) -> bool:
    """Every leaf is used once, multiplied by a frozen one."""
    leaves, steps = set(program.leaves), program.steps
    uses = [step for step in steps for o in step.operands if o in leaves]
    ones = [program.inputs[step.operands[1]] for step in uses if step.op == "mul"]
    return len(uses) == len(leaves) == len(ones) and all(one == Input((), (1.0,), one.dtype) for one in ones)


def constants_reach(program: Program) -> bool:
    wanted = feeding(program, [program.roots[0].value])
    return sum(n in wanted for n, i in enumerate(program.inputs) if not i.requires_grad) >= 2


PROMISES: dict[str, tuple[dict[str, Any], Callable[[Program], bool]]] = {
    "root scalar": ({"root": "scalar"}, lambda p: sizes(p) == [1]),
    "root several": ({"root": "several"}, lambda p: min(sizes(p)) >= 2),
    "seed implicit": ({"seed": "implicit"}, lambda p: p.roots[0].seed is None),
    "seed explicit": ({"seed": "explicit"}, lambda p: p.roots[0].seed is not None),
    "seed any": ({}, lambda p: p.roots[0].seed is not None or sizes(p) == [1]),
    "roots": ({"roots": (2, 3)}, lambda p: 2 <= len(p.roots) <= 3),
    "steps": ({"steps": (3, 5)}, lambda p: 3 <= len(p.steps) <= 5),
    "operations": ({"operations": ("exp", "tanh")}, lambda p: {s.op for s in p.steps} <= {"exp", "tanh"}),
    "exact": ({"exact": True}, lambda p: all(OPERATIONS[s.op].exact for s in p.steps)),
    "saves": ({"saves": True, "roots": (1, 2)}, saves_on_the_way),
    "saves nothing": (
        {"saves": False, "root": "several", "min_leaves": 3},
        lambda p: not any(OPERATIONS[s.op].saves for s in p.steps),
    ),
    "views": ({"views": False}, lambda p: not any(OPERATIONS[s.op].view for s in p.steps)),
    "apart": ({"apart": True}, apart),
    "frozen": ({"frozen": False}, lambda p: all(i.requires_grad for i in numbers_of(p))),
    "constants": ({"constants": 2}, constants_reach),
    "min_leaves": ({"min_leaves": 4}, lambda p: len(p.leaves) >= 4),
    "dtype": ({"dtype": "float32"}, lambda p: {i.dtype for i in numbers_of(p)} == {"float32"}),
    "keep": ({"keep": lambda p: len(p.steps) > 2}, lambda p: len(p.steps) > 2),
}


@pytest.mark.parametrize("name", PROMISES)
def test_an_option_delivers_what_it_says(name: str) -> None:
    options, promise = PROMISES[name]
    assert [program for program in programs(**options) if not promise(program)] == []


@pytest.mark.parametrize("op", REAL)
@pytest.mark.parametrize("root", ["any", "several"])
def test_an_ensured_operation_is_on_a_recorded_way_to_every_root(op: str, root: str) -> None:
    found = programs(count=12, ensure=op, root=root, roots=(1, 2))
    assert [program for program in found if not recorded(program, op)] == []


@pytest.mark.parametrize("name", sorted(set(PROMISES) - {"seed any", "steps", "keep"}))
def test_a_promise_does_not_hold_by_itself(name: str, sample: list[Program]) -> None:
    _, promise = PROMISES[name]
    assert not all(map(promise, sample))


def test_exact_programs_are_mostly_exact() -> None:
    found = programs(exact=True, apart=True, dtype="float64")
    assert sum(map(oracles.is_exact, found)) >= 0.9 * len(found)


def test_unary_programs_are_one_operation_on_one_leaf() -> None:
    found = [case.the_program.check() for case in drawn(strategies.unary("pow", "log")(FULL), 60)]
    assert {step.op for program in found for step in program.steps} == {"pow", "log"}
    assert all(len(p.steps) == 1 and p.leaves == [0] and len(p.inputs) == 1 for p in found)
    assert all(np.all(np.isfinite(evaluate(program)[1])) for program in found)


# -- shrinking -------------------------------------------------------------------------------------------------------


def squared_leaf(case: Case) -> bool:
    program = case.the_program
    return any(s.op == "mul" and s.operands[0] == s.operands[1] in program.leaves for s in program.steps)


def uses_matmul_twice(case: Case) -> bool:
    return sum(step.op == "matmul" for step in case.the_program.steps) > 1


@pytest.mark.parametrize(("condition", "steps"), [(squared_leaf, 2), (uses_matmul_twice, 3)])
def test_what_fails_shrinks_to_few_steps(condition: Callable[[Case], bool], steps: int) -> None:
    settings = hypothesis.settings(max_examples=2000, database=None, deadline=None)
    seeded = random.Random(1)  # noqa: S311 - nothing secret
    smallest = hypothesis.find(graphs()(FULL), condition, settings=settings, random=seeded)
    assert len(smallest.the_program.steps) <= steps
    assert len(smallest.the_program.inputs) <= steps


# -- parameters ------------------------------------------------------------------------------------------------------


def parameter(name: str, value: strategies.Parameter, **options: Any) -> list[tuple[Program, Any]]:
    cases = drawn(graphs(**options, **{name: value})(FULL), 100)
    assert all(Case.from_json(case.to_json()) == case for case in cases)
    return [(case.the_program, case[name]) for case in cases]


def test_numbers_cover_their_range() -> None:
    assert {n for _, n in parameter("passes", strategies.numbers(2, 4))} == {2, 3, 4}
    with pytest.raises(AssertionError):
        strategies.numbers(0, 100)


def test_one_of_draws_every_choice() -> None:
    assert {n for _, n in parameter("kind", strategies.one_of("a", None, 2))} == {"a", None, 2}
    with pytest.raises(AssertionError):
        strategies.one_of(*range(101))


def test_seeds_have_the_size_of_the_first_root() -> None:
    for program, found in parameter("more", strategies.seeds(2), roots=(1, 2)):
        assert [len(seed) for seed in found] == 2 * [sizes(program)[0]]


def test_a_misfit_is_a_tracked_value_and_another_shape() -> None:
    found = parameter("misfit", strategies.misfit())
    pairs = [(program.shapes()[owner], shape) for program, (owner, shape) in found]
    assert all(shape != wrong for shape, wrong in pairs)
    assert any(len(shape) != len(wrong) for shape, wrong in pairs)
    assert any(len(shape) == len(wrong) for shape, wrong in pairs)
    assert all(program.tracked()[owner] for program, (owner, _) in found)
    assert {owner < len(program.inputs) for program, (owner, _) in found} == {False, True}


def test_only_ways_of_passing_that_are_offered_are_drawn() -> None:
    asked = ("backward", "inputs", "many", "twice", "no_grad", "create_graph", "gradients")
    features = frozenset({"backward.inputs", "backward.many", "no_grad", "higher", "grad"})
    every = replace(FULL, features=features, keywords=OPTIONAL)
    for offered, expected in (
        (every, set(asked)),
        (replace(every, keywords=frozenset()), {"backward", "no_grad", "gradients"}),
        (replace(every, features=frozenset()), {"backward"}),
    ):
        cases = drawn(graphs(way=strategies.ways_of_passing(*asked), seed="implicit")(offered), 60)
        assert {case["way"] for case in cases} == expected


@pytest.mark.parametrize(("proper", "nonempty"), [(False, True), (True, True), (False, False), (True, False)])
def test_a_subset_of_the_leaves(proper: bool, nonempty: bool) -> None:
    options = {"proper": proper, "nonempty": nonempty}
    found = parameter("chosen", strategies.subset_of_leaves(**options), min_leaves=2)
    assert all(set(chosen) <= set(program.leaves) for program, chosen in found)
    assert any(set(chosen) == set(program.leaves) for program, chosen in found) is not proper
    assert any(chosen == () for _, chosen in found) is not nonempty


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("reached", [None, False, True])
def test_a_tracked_value_is_what_was_asked_for(leaves: bool, reached: bool | None) -> None:
    found = parameter("at", strategies.tracked_value(leaves=leaves, reached=reached))
    for program, number in found:
        if number is None:
            assert reached is False
            continue
        assert program.tracked()[number]
        assert leaves or number >= len(program.inputs)
        assert reached is None or (number in program.reached()) is reached
    assert any(number is not None and number < len(program.inputs) for program, number in found) is leaves


# -- transformations -------------------------------------------------------------------------------------------------


def gradients(program: Program) -> dict[int, Any]:
    """The oracle's gradients of the leaves, none where it refuses."""
    return {} if oracles.refuses(program) else {n: oracles.gradients(program)[n] for n in program.leaves}


def same(found: dict[int, Any], expected: dict[int, Any], factor: float = 1.0) -> bool:
    return all(np.allclose(found[n], factor * g, rtol=1e-12, atol=1e-12) for n, g in expected.items())


@pytest.fixture(scope="module")
def smooth() -> list[Program]:
    found = [p for p in programs(count=60, roots=(1, 2), dtype="float64") if not oracles.refuses(p)]
    assert len(found) > 30
    return found


def test_entering_by_one_keeps_the_gradients(smooth: list[Program]) -> None:
    for program in smooth:
        entered = strategies.entering_by_one(program).check()
        assert entered.leaves == program.leaves
        assert same(gradients(entered), gradients(program))


def test_appended_steps_keep_the_gradients(smooth: list[Program]) -> None:
    for program in smooth:
        last = len(program.shapes()) + 1
        more = [Step("neg", (0,)), Step("mul", (last, len(program.inputs)))]
        longer = strategies.with_steps(program, more, [Input((), (3.0,))]).check()
        assert [step.op for step in longer.steps[-2:]] == ["neg", "mul"]
        assert same(gradients(longer), gradients(program))


def test_a_constant_factor_multiplies_the_gradients() -> None:
    for program in programs(count=60, dtype="float64", seed="explicit"):
        tripled = strategies.times_a_constant(program, (3.0,)).check()
        assert tripled.shapes()[tripled.roots[0].value] == program.shapes()[program.roots[0].value]
        assert same(gradients(tripled), gradients(program), 3.0)


def test_two_losses_are_twice_the_double(smooth: list[Program]) -> None:
    for program in smooth:
        single = program.with_roots(program.roots[0])
        both = strategies.two_losses(program).check()
        for root, factor in zip(both.roots, (2.0, 2.0), strict=True):
            assert same(gradients(both.with_roots(root)), gradients(single), factor)


# -- commands --------------------------------------------------------------------------------------------------------


def test_lifetimes_name_roots_and_ways_that_are_offered() -> None:
    cases = drawn(commands.lifetimes(FULL), 100)
    assert {way for case in cases for way, _, _ in case.commands} == {"pass", "grad"}
    assert {retain for case in cases for _, _, retain in case.commands} == {True, False}
    assert all(0 <= root < len(case.the_program.roots) for case in cases for _, root, _ in case.commands)
    without = drawn(commands.lifetimes(replace(FULL, features=frozenset())), 40)
    assert {way for case in without for way, _, _ in case.commands} == {"pass"}


def test_slot_lives_name_leaves() -> None:
    cases = drawn(commands.slot_lives(FULL), 100)
    names = collections.Counter(command[0] for case in cases for command in case.commands)
    assert set(names) == {"backward", "assign", "clear", "forward", "use", "read"}
    for case in cases:
        assert 1 <= len(case.commands) <= commands.MAX_COMMANDS
        for name, leaf, *data in (c for c in case.commands if len(c) > 1):
            assert leaf in case.the_program.leaves
            assert name != "assign" or len(data[0]) == len(case.the_program.inputs[leaf].values)
        assert Case.from_json(case.to_json()) == case


# -- what a draw may be ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LINTS["drawing_files"](PROGRAMS.parent), ids=lambda path: path.name)
def test_no_draw_takes_constants_from_loaded_modules(path: Path) -> None:
    assert LINTS["wide_draws"](path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "st.floats(0, 1)",
        "st.text()",
        "hypothesis.strategies.binary(max_size=3)",
        "st.randoms()",
        "strategies.complex_numbers()",
        "st.data()",
        "st.integers()",
        "st.integers(min_value=3)",
        "st.integers(0)",
        "st.integers(0, 100)",
        "st.integers(-50, max_value=50)",
        "st.sampled_from(range(101))",
        f"st.sampled_from({list(range(101))})",
        "st.characters()",
        "from hypothesis.extra.numpy import arrays",
        "import hypothesis.strategies as hs\nhs.text()",
        "from hypothesis.strategies import floats",
    ],
)
def test_a_wide_draw_is_told(text: str) -> None:
    assert len(LINTS["wide_draws"](text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "st.integers(-16, 16)",
        "st.integers(*pair)",
        "st.sampled_from((1, 2))",
        "st.integers(low, high)",
        "record.data()",
    ],
)
def test_a_narrow_draw_is_not(text: str) -> None:
    assert LINTS["wide_draws"](text) == []


def test_ranges_that_are_computed_are_narrow_too(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    integers, sampled_from = building.st.integers, building.st.sampled_from

    def noted_integers(low: int, high: int) -> Any:
        widths.append(high - low + 1)
        return integers(low, high)

    def noted_sampled_from(choices: Any) -> Any:
        widths.append(len(choices))
        return sampled_from(choices)

    monkeypatch.setattr(building.st, "integers", noted_integers)
    monkeypatch.setattr(building.st, "sampled_from", noted_sampled_from)
    for strategy in (graphs(at=strategies.tracked_value()), commands.lifetimes, commands.slot_lives):
        drawn(strategy(FULL), 100)
    assert len(widths) > 3000
    assert 1 <= min(widths) <= max(widths) <= 100


PLANTED = "VALUES = [{}]\n"
DIGEST = """
import runpy, sys
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
    import planted
    assert len(planted.VALUES) == 300
suite = runpy.run_path(sys.argv[1])
for strategy in (suite["graphs"](), suite["commands"].lifetimes, suite["commands"].slot_lives):
    for case in suite["drawn"](strategy(suite["FULL"]), 30):
        print(case.to_json())
"""


def test_a_local_module_full_of_numbers_changes_no_draw(tmp_path: Path) -> None:
    constants = ", ".join(f"{n}, -{n}, {n}.5" for n in range(1, 101))
    (tmp_path / "planted.py").write_text(PLANTED.format(constants), "utf-8")
    command = [sys.executable, "-c", DIGEST, __file__]
    alone, beside = (
        subprocess.run([*command, *more], check=True, capture_output=True, text=True, cwd=PROGRAMS.parents[1]).stdout
        for more in ([], [str(tmp_path)])
    )
    assert alone.count("\n") == 90
    assert alone == beside


if __name__ == "__main__":
    for label, percent in reach(programs(count=DRAWS)).items():
        sys.stdout.write(f"{percent:5.1f} %  {label}\n")
