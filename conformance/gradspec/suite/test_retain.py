"""RETAIN: retained and freed graphs."""

from __future__ import annotations

import numpy as np

from gradspec.programs.commands import lifetimes
from gradspec.programs.program import Case
from gradspec.programs.strategies import (
    graphs,
    in_slots,
    numbers,
    one_of,
    saving_once,
    tracked_value,
    two_losses,
    unary,
    ways_of_passing,
)
from gradspec.session import Session
from gradspec.suite.machines import outlives
from gradspec.suite.running import (
    again,
    arrived,
    build,
    close,
    equal_slots,
    plus,
    second_derivative,
    single_slots,
    times,
)
from gradspec.suite.support import (
    array,
    clause,
    equal,
    given,
    holds,
    may_refuse,
    ones,
    refused,
    show,
    tensor,
    twin,
)


@clause("RETAIN-01")
@given(
    saving_once(
        first=ways_of_passing("backward", "inputs", "twice", "no_grad"),
        way=ways_of_passing("backward", "inputs", "many", "create_graph", "gradients"),
    )
)
def test_a_second_pass_over_a_freed_graph_is_refused(impl: Session, case: Case) -> None:
    """Freeing is the default: after a pass of any kind a second one through an operation that saved is refused."""
    run, kept = build(impl, case), build(impl, case)
    run.pass_by(case["first"])
    kept.pass_by(case["first"], retain_graph=True)
    with refused(impl, "RETAIN-01", "graph_freed"):
        run.pass_by(case["way"])
    with twin(impl, "RETAIN-01"):
        kept.pass_by(case["way"])


@clause("RETAIN-01", "RETAIN-03")
@given(lifetimes)
def test_a_graph_lives_as_long_as_it_is_retained(impl: Session, case: Case) -> None:
    """Passes over one graph from several roots are refused exactly where a value they need was freed before."""
    outlives(impl, case, refusal="RETAIN-01", acceptance="RETAIN-03")


@clause("RETAIN-02")
@given(graphs(saves=False, exact=True, apart=False))
def test_a_graph_that_saved_nothing_adds_again_or_refuses(impl: Session, case: Case) -> None:
    """A second pass over a graph without saved values adds the same gradient, or is refused and adds nothing."""
    single, run = single_slots(impl, "RETAIN-02", case), build(impl, case, passes=1)
    before = run.slots()
    with may_refuse(impl, "graph_freed") as second:
        run.backward()
    expected = before if second.error else times(2, single)
    equal_slots(impl, "RETAIN-02", expected, run.slots(), run.program)


@clause("RETAIN-03")
@given(
    graphs(
        exact=True,
        apart=True,
        passes=numbers(2, 4),
        way=ways_of_passing("backward", "inputs", "many", "no_grad", "create_graph"),
    )
)
def test_a_retained_graph_gives_the_same_gradient_again(impl: Session, case: Case) -> None:
    """After n passes of any kind that retain the graph every slot holds n times the single gradient."""
    single, run = single_slots(impl, "RETAIN-03", case), build(impl, case)
    for _ in range(case["passes"]):
        run.pass_by(case["way"], retain_graph=True)
    equal_slots(impl, "RETAIN-03", times(case["passes"], single), run.slots(), run.program)


@clause("RETAIN-04")
@given(graphs(saves=True, exact=True, apart=True, way=ways_of_passing("backward", "inputs", "many")))
def test_create_graph_retains_by_default(impl: Session, case: Case) -> None:
    """A pass of any kind that records itself keeps the graph, so that another pass adds the same gradient."""
    single, run = single_slots(impl, "RETAIN-04", case), build(impl, case)
    run.pass_by(case["way"], create_graph=True)
    run.backward()
    equal_slots(impl, "RETAIN-04", times(2, single), run.slots(), run.program)


@clause("RETAIN-05")
@given(unary("pow", "sin", "cos", "log", kept=in_slots()))
def test_a_derivative_outlives_its_freed_graph(impl: Session, case: Case) -> None:
    """A gradient that a pass recorded and freed its graph, returned or kept in the slot, is itself differentiable."""
    run, x = build(impl, case), case.the_program.inputs[0].values
    if case["kept"]:
        run.backward(create_graph=True, retain_graph=False)
        slope = impl.grad(run.leaves[0])
    else:
        (slope,) = run.gradients(run.leaves, create_graph=True, retain_graph=False)
    holds(impl, "RETAIN-05", slope is not None, expected="the leaf has a gradient", found="None")
    assert slope is not None
    (bend,) = impl.gradients([slope], run.leaves, [tensor(impl, ones(impl.shape(slope), impl.dtype(slope)))])
    seed = np.array(case.the_program.roots[0].seed or [1.0] * len(x))
    expected = (seed * second_derivative(case.the_program.steps[0], np.array(x))).reshape(impl.shape(slope))
    equal(impl, "RETAIN-05", bend, expected, "the second derivative", rtol=1e-5)


@clause("RETAIN-06")
@given(graphs(saves=True))
def test_a_shared_part_is_freed_by_the_first_loss(impl: Session, case: Case) -> None:
    """Of two losses over one saved value the second is refused after a pass over the first, unless that retained."""
    program = two_losses(case.the_program)
    run = build(impl, program)
    impl.backward(run.roots[0], run.seeds[0])
    with refused(impl, "RETAIN-06", "graph_freed"):
        impl.backward(run.roots[1], run.seeds[1])
    kept = build(impl, program)
    with twin(impl, "RETAIN-06"):
        impl.backward(kept.roots[0], kept.seeds[0], retain_graph=True)
        impl.backward(kept.roots[1], kept.seeds[1])


@clause("RETAIN-07")
@given(graphs(saves=True, exact=True, apart=True, root="scalar", seed="implicit"))
def test_a_failed_pass_leaves_whole_gradients_or_none(impl: Session, case: Case) -> None:
    """After a pass that fails on a freed part each slot is as before or holds the whole gradient on top."""
    program = case.the_program
    other = impl.tensor(1.0, dtype=program.inputs[program.leaves[0]].dtype, requires_grad=True)
    early = impl.apply("add", other, other)  # recorded before the freed part, its twin below after it
    run = build(impl, case, passes=1)
    single = arrived(impl, "RETAIN-07", run)
    loss = impl.apply("add", impl.apply("add", early, run.root), impl.apply("mul", other, other))
    with may_refuse(impl, "graph_freed"):
        impl.backward(loss if impl.shape(loss) == () else impl.apply("sum", loss, dim=None, keepdim=False))
    for leaf, slot in run.slots().items():
        whole = close(run.program, leaf, times(2, single)[leaf], slot) or close(run.program, leaf, single[leaf], slot)
        expected = f"{run.handles[leaf]}.grad is once or twice {show(single[leaf])}"
        holds(impl, "RETAIN-07", whole, expected=expected, found=show(slot))
    held = impl.grad(other)
    found = 0.0 if held is None else float(array(impl, held))
    holds(impl, "RETAIN-07", found in (0.0, 4.0), expected="the other leaf has nothing or 4.0", found=found)


@clause("RETAIN-08")
@given(graphs(saves=True, again=one_of("gradients", "backward")))
def test_gradients_frees_the_graph(impl: Session, case: Case) -> None:
    """After `gradients` without retaining, a further pass of either kind is refused."""
    run, kept = build(impl, case), build(impl, case)
    run.pass_by("gradients")
    with refused(impl, "RETAIN-08", "graph_freed"):
        run.pass_by(case["again"])
    with twin(impl, "RETAIN-08"):
        kept.pass_by("gradients", retain_graph=True)
        kept.pass_by(case["again"])


@clause("RETAIN-09")
@given(graphs(saves=True, inner=tracked_value(leaves=False, reached=True)))
def test_only_what_a_pass_ran_is_freed(impl: Session, case: Case) -> None:
    """After a pass from the root down to an inner value, a pass from that value to the leaves still succeeds."""
    run, control = build(impl, case), build(impl, case)
    inner, leaves = run.handles[case["inner"]], run.leaves
    seed = tensor(impl, ones(impl.shape(inner), impl.dtype(inner)))
    run.gradients([inner])
    found = impl.gradients([inner], leaves, [seed], allow_unused=True)
    wanted = impl.gradients([control.handles[case["inner"]]], control.leaves, [seed], allow_unused=True)
    some = any(expected is not None for expected in wanted)
    holds(impl, "RETAIN-09", some, expected="the inner value has a gradient for some leaf", found="None for each")
    for leaf, expected in zip(found, wanted, strict=True):
        if expected is not None:
            equal(impl, "RETAIN-09", leaf, array(impl, expected), "the gradient of the inner value")


@clause("RETAIN-10")
@given(graphs(saves=True))
def test_an_explicit_false_frees_also_with_create_graph(impl: Session, case: Case) -> None:
    """What the caller says of retain_graph wins over the default that create_graph gives."""
    run, kept = build(impl, case), build(impl, case)
    run.backward(create_graph=True, retain_graph=False)
    with refused(impl, "RETAIN-10", "graph_freed"):
        run.backward()
    kept.backward(create_graph=True, retain_graph=True)
    with twin(impl, "RETAIN-10"):
        kept.backward()


@clause("RETAIN-11")
@given(graphs(exact=True, apart=True))
def test_losses_that_share_only_leaves_are_independent(impl: Session, case: Case) -> None:
    """Two graphs recorded over the same leaves are walked one after the other, and both gradients are added."""
    single = single_slots(impl, "RETAIN-11", case)
    run = build(impl, case)
    second = again(run)
    run.backward()
    second.backward()
    equal_slots(impl, "RETAIN-11", plus(single, single), run.slots(), run.program)
