"""GRADSLOT: the .grad slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradspec.judge import NotJudged
from gradspec.programs import precision, special
from gradspec.programs.commands import slot_lives
from gradspec.programs.program import Case
from gradspec.programs.strategies import (
    graphs,
    misfit,
    numbers,
    one_of,
    subset_of_leaves,
    tracked_value,
    ways_of_passing,
)
from gradspec.session import Session
from gradspec.suite import grad_dtypes, passes
from gradspec.suite.machines import slots_follow
from gradspec.suite.running import Slots, again, arrived, build, equal_slots, judged, judged_values, single_slots, times
from gradspec.suite.support import (
    array,
    clause,
    equal,
    given,
    holds,
    is_none,
    may_refuse,
    ones,
    refused,
    tensor,
    twin,
    unchanged,
    values,
)


@clause("GRADSLOT-01")
@given(graphs(min_leaves=2))
def test_a_slot_is_empty_until_a_gradient_is_computed(impl: Session, case: Case) -> None:
    """Before any backward, after the forward and after a pass that does not reach it, the slot of a leaf is None."""
    run = build(impl, case)
    for leaf in run.leaves:
        is_none(impl, "GRADSLOT-01", leaf, "no backward has run")
    run.backward()
    reached = run.program.reached()
    for number in run.program.leaves:
        if number not in reached:
            is_none(impl, "GRADSLOT-01", run.handles[number], "no pass has reached it")
        else:
            filled = impl.grad(run.handles[number]) is not None
            holds(impl, "GRADSLOT-01", filled, expected="a leaf that was reached has a gradient", found="None")


@clause("GRADSLOT-01", "GRADSLOT-04", "GRADSLOT-06", "BACKWARD-11", "BACKWARD-46")
@given(slot_lives)
def test_slots_follow_their_model(impl: Session, case: Case) -> None:
    """Slots under any sequence of passes, assignments, clears and uses hold what a sum would."""
    slots_follow(
        impl,
        case,
        empty="GRADSLOT-01",
        clear="GRADSLOT-04",
        assign="GRADSLOT-06",
        add="BACKWARD-11",
        keep="BACKWARD-46",
    )


@clause("GRADSLOT-02")
@given(graphs(misfit=misfit(), filled=one_of(False, True)))
def test_a_gradient_of_another_shape_is_refused(impl: Session, case: Case) -> None:
    """Assigning a tensor of another shape is an error and leaves the slot as it was; the owner's own shape is taken."""
    run, (number, shape) = build(impl, case, passes=int(case["filled"])), case["misfit"]
    owner = run.handles[number]
    dtype, before = impl.dtype(owner), values(impl, [impl.grad(owner)])[0]
    wrong = tensor(impl, ones(shape, dtype))
    with refused(impl, "GRADSLOT-02", "bad_grad_shape"):
        impl.set_grad(owner, wrong)
    unchanged(impl, "GRADSLOT-02", before, impl.grad(owner), "the slot after the refusal")
    with twin(impl, "GRADSLOT-02"):
        impl.set_grad(owner, tensor(impl, ones(impl.shape(owner), dtype)))


@clause("GRADSLOT-03")
@given(graphs(dtype="float64", other=one_of("float32", "int64"), filled=one_of(False, True), owner=tracked_value()))
def test_a_gradient_of_another_dtype_is_refused(impl: Session, case: Case) -> None:
    """Assigning a tensor of another dtype is an error and leaves the slot as it was; the owner's own dtype is taken."""
    run = build(impl, case, passes=int(case["filled"]))
    owner = run.handles[case["owner"]]
    shape, before = impl.shape(owner), values(impl, [impl.grad(owner)])[0]
    wrong = tensor(impl, ones(shape, case["other"]))
    with refused(impl, "GRADSLOT-03", "bad_grad_dtype"):
        impl.set_grad(owner, wrong)
    unchanged(impl, "GRADSLOT-03", before, impl.grad(owner), "the slot after the refusal")
    with twin(impl, "GRADSLOT-03"):
        impl.set_grad(owner, tensor(impl, ones(shape, "float64")))


@clause("GRADSLOT-04")
@given(graphs(exact=True))
def test_a_cleared_slot_starts_from_nothing(impl: Session, case: Case) -> None:
    """A slot that was filled and is assigned None reads None, and after the next pass the gradient of one."""
    single, run = single_slots(impl, "GRADSLOT-04", case), build(impl, case, passes=1)
    for leaf in run.leaves:
        impl.set_grad(leaf, None)
        is_none(impl, "GRADSLOT-04", leaf, "None was assigned")
    again(run).backward()
    equal_slots(impl, "GRADSLOT-04", single, run.slots(), run.program)


@clause("GRADSLOT-05")
@given(graphs())
def test_a_tensor_is_not_its_own_gradient(impl: Session, case: Case) -> None:
    """Assigning a leaf as its own gradient is refused; a detached copy is taken."""
    leaf = build(impl, case).leaves[0]
    with refused(impl, "GRADSLOT-05", "self_grad"):
        impl.set_grad(leaf, leaf)
    with twin(impl, "GRADSLOT-05"):
        impl.set_grad(leaf, impl.detach(leaf))


@clause("GRADSLOT-06")
@given(graphs(exact=True, apart=True, filled=one_of(False, True)))
def test_an_assigned_gradient_is_what_a_pass_adds_to(impl: Session, case: Case) -> None:
    """A tensor assigned to a slot, empty or filled, is what the slot reads and what the next pass adds to."""
    single, run = single_slots(impl, "GRADSLOT-06", case), build(impl, case, passes=int(case["filled"]))
    for leaf in run.leaves:
        assigned = 3 * ones(impl.shape(leaf), impl.dtype(leaf))
        impl.set_grad(leaf, tensor(impl, assigned))
        equal(impl, "GRADSLOT-06", impl.grad(leaf), assigned, f"{leaf}.grad")
    again(run).backward()
    expected: Slots = {n: 3 * np.ones_like(g) + g for n, g in single.items() if g is not None}
    equal_slots(impl, "GRADSLOT-06", expected, run.slots(), run.program)


@clause("GRADSLOT-07")
@given(graphs())
def test_a_frozen_tensor_may_carry_a_gradient(impl: Session, case: Case) -> None:
    """A tensor that does not require grad holds what is assigned to its slot, or refuses and stays empty."""
    run = build(impl, case)
    shape, dtype = impl.shape(run.leaves[0]), impl.dtype(run.leaves[0])
    frozen = tensor(impl, ones(shape, dtype))
    given_gradient = 2 * ones(shape, dtype)
    with may_refuse(impl, "not_requiring_grad") as outcome:
        impl.set_grad(frozen, tensor(impl, given_gradient))
    if outcome.error:
        is_none(impl, "GRADSLOT-07", frozen, "the assignment was refused")
    else:
        equal(impl, "GRADSLOT-07", impl.grad(frozen), given_gradient, "the slot of a frozen tensor")


@clause("GRADSLOT-08")
@given(graphs(number=tracked_value(leaves=False), retained=one_of(False, True)))
def test_reading_the_slot_of_a_non_leaf_warns(impl: Session, case: Case) -> None:
    """The slot of a non-leaf that does not retain its gradient draws a warning, one that retains it or a leaf none."""
    run = build(impl, case)
    intermediate, leaf = run.handles[case["number"]], run.leaves[0]
    if case["retained"]:
        impl.retain_grad(intermediate)
    run.backward()
    for x, expected in ((intermediate, not case["retained"]), (leaf, False)):
        with impl.warnings() as caught:
            impl.grad(x)
        found = f"warnings: {list(caught.texts)}"
        warned = "non_leaf_grad" in caught.kinds
        claim = f"reading {x}.grad draws {'the' if expected else 'no'} warning non_leaf_grad"
        holds(impl, "GRADSLOT-08", warned == expected, expected=claim, found=found)


@clause("GRADSLOT-09")
@given(graphs())
def test_retained_intermediates_have_their_whole_gradient(impl: Session, case: Case) -> None:
    """An intermediate that retains its gradient holds that of the roots for it, None where no root is reached."""
    run = build(impl, case)
    flags, first = run.program.tracked(), len(run.program.inputs)
    asked = [n for n in range(first, len(flags)) if flags[n]]
    for number in asked:
        impl.retain_grad(run.handles[number])
    run.backward()
    judged_values(impl, "GRADSLOT-09", run, run.slots(asked))


@clause("GRADSLOT-10")
@given(graphs(number=tracked_value(leaves=False), early=one_of(True, False)))
def test_retains_grad_tells_who_asked(impl: Session, case: Case) -> None:
    """The flag is set on the non-leaf for which it was asked and on no other tensor, before and after a pass."""
    run = build(impl, case)
    chosen = case["number"]
    for x in run.handles:
        holds(
            impl, "GRADSLOT-10", not impl.retains_grad(x), expected=f"{x}.retains_grad is False at first", found="True"
        )
    impl.retain_grad(run.handles[chosen])
    if case["early"]:
        run.backward()
    detached = impl.detach(run.handles[chosen])
    for x in (*run.handles, detached):
        flag, asked = impl.retains_grad(x), x is run.handles[chosen]
        holds(impl, "GRADSLOT-10", flag == asked, expected=f"{x}.retains_grad is {asked}", found=flag)


@clause("GRADSLOT-11")
@given(graphs())
def test_retain_grad_needs_a_tensor_that_requires_grad(impl: Session, case: Case) -> None:
    """Asking a tensor that does not require grad is refused; the same tensor with the flag is taken."""
    leaf = build(impl, case).leaves[0]
    data = array(impl, leaf)
    frozen = tensor(impl, data)
    with refused(impl, "GRADSLOT-11", "not_requiring_grad"):
        impl.retain_grad(frozen)
    tracked = tensor(impl, data, requires_grad=True)
    with twin(impl, "GRADSLOT-11"):
        impl.retain_grad(tracked)


@clause("GRADSLOT-12")
@given(
    graphs(
        exact=True,
        apart=True,
        number=tracked_value(leaves=False, reached=True),
        passes=numbers(2, 4),
        way=ways_of_passing("backward", "create_graph"),
    )
)
def test_a_retained_gradient_accumulates(impl: Session, case: Case) -> None:
    """After n passes, recorded or not, that retain the graph a retaining non-leaf holds n times its gradient."""
    single, run = build(impl, case), build(impl, case)
    for built in (single, run):
        impl.retain_grad(built.handles[case["number"]])
    single.backward()
    for _ in range(case["passes"]):
        run.pass_by(case["way"], retain_graph=True)
    expected = times(case["passes"], arrived(impl, "GRADSLOT-12", single, [case["number"]]))
    equal_slots(impl, "GRADSLOT-12", expected, run.slots([case["number"]]), run.program)


@clause("GRADSLOT-13")
@given(graphs(passes=numbers(1, 2), tracked=one_of(False, True)))
def test_a_computed_gradient_does_not_require_grad(impl: Session, case: Case) -> None:
    """What a pass without create_graph puts into a slot, or adds to it, does not require grad, even if a seed does."""
    run = build(impl, case)
    if case["tracked"] and run.seed is not None:
        run.seeds = [tensor(impl, array(impl, run.seed), requires_grad=True)]
    for _ in range(case["passes"]):
        run.backward(retain_graph=True)
    for leaf in run.leaves:
        held = impl.grad(leaf)
        if held is not None:
            flag = impl.requires_grad(held)
            holds(impl, "GRADSLOT-13", not flag, expected=f"{leaf}.grad does not require grad", found=flag)


@clause("GRADSLOT-14")
@given(graphs(min_leaves=2, chosen=subset_of_leaves(), filled=one_of(False, True)))
def test_a_leaf_frozen_after_the_forward_receives_nothing(impl: Session, case: Case) -> None:
    """Leaves whose flag is cleared between forward and backward keep their slots; the others get theirs."""
    run = build(impl, case)
    if case["filled"]:
        run.backward(retain_graph=True)
    frozen = [run.handles[n] for n in case["chosen"]]
    before = values(impl, [impl.grad(x) for x in frozen])
    others = [n for n in run.program.leaves if n not in case["chosen"]]
    for x in frozen:
        impl.set_requires_grad(x, False)
    run.backward()
    for x, held in zip(frozen, before, strict=True):
        unchanged(impl, "GRADSLOT-14", held, impl.grad(x), f"the slot of {x}, frozen after the forward")
    control = build(impl, case, passes=1 + case["filled"], retain_graph=True)
    expected = arrived(impl, "GRADSLOT-14", control)
    equal_slots(impl, "GRADSLOT-14", {n: expected[n] for n in others}, run.slots(others), run.program)


@clause("GRADSLOT-15")
@given(graphs(constants=1))
def test_a_frozen_leaf_receives_nothing_and_blocks_nothing(impl: Session, case: Case) -> None:
    """Inputs that do not require grad have no gradient after a pass, and the leaves beside them have the right one."""
    run = build(impl, case, passes=1)
    for number, given_input in enumerate(case.the_program.inputs):
        if not given_input.requires_grad:
            is_none(impl, "GRADSLOT-15", run.handles[number], "it does not require grad")
    judged(impl, "GRADSLOT-15", run, run.slots())


@clause("GRADSLOT-16")
@given(graphs())
def test_backward_fills_no_slot_of_a_non_leaf_unasked(impl: Session, case: Case) -> None:
    """Slots of non-leaves stay None, the root's included."""
    run = build(impl, case, passes=1)
    first = len(case.the_program.inputs)
    for intermediate in run.handles[first:]:
        is_none(impl, "GRADSLOT-16", intermediate, "it is no leaf and does not retain its gradient")


@clause("GRADSLOT-17")
@given(graphs(number=tracked_value(leaves=False, reached=True), calls=numbers(2, 4)))
def test_retain_grad_counts_once(impl: Session, case: Case) -> None:
    """Several calls on one tensor have the effect of one."""
    once, run = build(impl, case), build(impl, case)
    impl.retain_grad(once.handles[case["number"]])
    for _ in range(case["calls"]):
        impl.retain_grad(run.handles[case["number"]])
    once.backward()
    run.backward()
    everything = [case["number"], *run.program.leaves]
    expected = arrived(impl, "GRADSLOT-17", once, everything)
    equal_slots(impl, "GRADSLOT-17", expected, run.slots(everything), run.program)


@clause("GRADSLOT-18")
@given(graphs(saves=False, views=False, number=tracked_value(leaves=False, reached=True, roots=False)))
def test_retain_grad_keeps_no_tensor_alive(impl: Session, case: Case) -> None:
    """A retaining tensor that nothing saved is gone once it is dropped, and the pass succeeds without it."""
    run, control = build(impl, case), single_slots(impl, "GRADSLOT-18", case)
    root, dropped = case.the_program.roots[0].value, case["number"]
    if dropped is None:
        raise NotJudged("the program has no intermediate to drop")
    impl.retain_grad(run.handles[dropped])
    watch = impl.watch(run.handles[dropped])
    impl.release(*(h for n, h in enumerate(run.handles) if n not in (root, *run.program.leaves)))
    alive = impl.alive(watch)
    holds(impl, "GRADSLOT-18", not alive, expected="the dropped tensor is gone", found="alive", kind="alive")
    run.backward()
    equal_slots(impl, "GRADSLOT-18", control, run.slots(), run.program)


@clause("GRADSLOT-19")
@given(precision.either_dtype(passes=numbers(1, 2)))
def test_a_pass_casts_to_grad_dtype(impl: Session, case: Case) -> None:
    """Slots have the grad_dtype of their leaf, the leaf's own where it was not set, and hold the gradient in it."""
    run, dtypes = grad_dtypes.build_in(impl, case)
    grad_dtypes.own_at_first(impl, "GRADSLOT-19", run, case["own"])
    for number in case["chosen"]:
        impl.set_grad_dtype(run.handles[number], dtypes[number])
    run.backward()
    for _ in range(case["passes"] - 1):
        again(run).backward()
    grad_dtypes.filled_in(impl, "GRADSLOT-19", run, dtypes)
    narrow = replace(run, program=case.the_program)
    judged(impl, "GRADSLOT-19", narrow, times(1 / case["passes"], run.slots()))


@clause("GRADSLOT-19")
@given(precision.uneven_seeds)
def test_a_wider_slot_adds_up_in_its_own_dtype(impl: Session, case: Case) -> None:
    """Passes with seeds whose sum a leaf's dtype cannot hold add up exactly in a slot of a wider dtype."""
    run = build(impl, case)
    leaf, shape = run.leaves[0], impl.shape(run.leaves[0])
    impl.set_grad_dtype(leaf, "float64")
    for seed in case["seeds"]:
        impl.backward(again(run).root, tensor(impl, seed * ones(shape, "float32")))
    equal(impl, "GRADSLOT-19", impl.grad(leaf), sum(case["seeds"]) * ones(shape), f"{leaf}.grad")


@clause("GRADSLOT-19")
@given(precision.either_dtype(filled=one_of(False, True)))
def test_an_assigned_gradient_has_the_grad_dtype(impl: Session, case: Case) -> None:
    """Assigning a tensor of another dtype than grad_dtype is refused, the leaf's own too; one of grad_dtype is kept."""
    run, dtypes = grad_dtypes.build_in(impl, case)
    number = case["chosen"][0]
    leaf, shape = run.handles[number], impl.shape(run.handles[number])
    impl.set_grad_dtype(leaf, dtypes[number])
    if case["filled"]:
        run.backward()
    before, wrong = values(impl, [impl.grad(leaf)])[0], tensor(impl, ones(shape, case["own"]))
    with refused(impl, "GRADSLOT-19", "bad_grad_dtype"):
        impl.set_grad(leaf, wrong)
    unchanged(impl, "GRADSLOT-19", before, impl.grad(leaf), "the slot after the refusal")
    right = tensor(impl, 3 * ones(shape, dtypes[number]))
    with twin(impl, "GRADSLOT-19"):
        impl.set_grad(leaf, right)
    unchanged(impl, "GRADSLOT-19", impl.value(right), impl.grad(leaf), "the assigned gradient")


@clause("GRADSLOT-23")
@given(precision.either_dtype(filled=one_of(False, True), first=precision.number_dtype, second=precision.number_dtype))
def test_grad_dtype_none_lifts_the_rule(impl: Session, case: Case) -> None:
    """A leaf whose grad_dtype is None takes gradients of any dtype one after the other, and holds what was assigned."""
    run, _ = grad_dtypes.build_in(impl, case)
    leaf = run.handles[case["chosen"][0]]
    if case["filled"]:
        run.backward()
    impl.set_grad_dtype(leaf, "none")
    found = impl.grad_dtype(leaf)
    holds(impl, "GRADSLOT-23", found == "none", expected=f"{leaf}.grad_dtype is None", found=found)
    for dtype in (case["first"], case["second"]):
        assigned = tensor(impl, 3 * ones(impl.shape(leaf), dtype))
        impl.set_grad(leaf, assigned)
        unchanged(impl, "GRADSLOT-23", impl.value(assigned), impl.grad(leaf), "the assigned gradient")


@clause("GRADSLOT-24")
@given(precision.either_dtype(number=tracked_value(leaves=False)))
def test_grad_dtype_of_a_non_leaf_is_refused_or_kept(impl: Session, case: Case) -> None:
    """On a non-leaf grad_dtype is refused, or is at first its own dtype and then what was set; leaves keep theirs."""
    run, dtypes = grad_dtypes.build_in(impl, case)
    x, other = run.handles[case["number"]], dtypes[case["chosen"][0]]
    first = grad_dtypes.read(impl, x)
    with may_refuse(impl, "not_leaf") as setting:
        impl.set_grad_dtype(x, other)
    second, kept = grad_dtypes.read(impl, x), case["own"] if setting.error else other
    for found, wanted in ((first, case["own"]), (second, kept)):
        right, expected = found in ("refused", wanted), f"{x}.grad_dtype is {wanted}, or reading it is refused"
        holds(impl, "GRADSLOT-24", right, expected=expected, found=found)
    grad_dtypes.own_at_first(impl, "GRADSLOT-24", run, case["own"])


@clause("GRADSLOT-20")
@given(graphs())
def test_a_gradient_has_the_shape_and_dtype_of_its_leaf(impl: Session, case: Case) -> None:
    """What a pass puts into the slot of a leaf has the leaf's shape and dtype."""
    passes.fits_leaves(impl, "GRADSLOT-20", build(impl, case, passes=1))


@clause("GRADSLOT-20")
@given(special.mixed_dtypes)
def test_a_gradient_has_the_dtype_of_its_leaf_where_dtypes_meet(impl: Session, case: Case) -> None:
    """Also where the leaf met a tensor of a wider dtype, so that its gradient arrives in that one, it has its own."""
    passes.fits_leaves(impl, "GRADSLOT-20", build(impl, case, passes=1))


@clause("GRADSLOT-21")
@given(graphs(wrong=one_of(1.0, 0, "grad", True, (1.0, 2.0)), filled=one_of(False, True)))
def test_only_a_tensor_or_none_is_assigned(impl: Session, case: Case) -> None:
    """Assigning a number, a text or a sequence is an error and leaves the slot as it was; None is taken."""
    run = build(impl, case, passes=int(case["filled"]))
    leaf = run.leaves[0]
    before = values(impl, [impl.grad(leaf)])[0]
    with refused(impl, "GRADSLOT-21", "bad_type"):
        impl.set_grad(leaf, case["wrong"])
    unchanged(impl, "GRADSLOT-21", before, impl.grad(leaf), "the slot after the refusal")
    with twin(impl, "GRADSLOT-21"):
        impl.set_grad(leaf, None)


@clause("GRADSLOT-22")
@given(graphs())
def test_retain_grad_on_a_leaf_does_nothing(impl: Session, case: Case) -> None:
    """A leaf that was asked to retain its gradient is as one that was not."""
    run, control = build(impl, case), single_slots(impl, "GRADSLOT-22", case)
    for leaf in run.leaves:
        impl.retain_grad(leaf)
        flag = impl.retains_grad(leaf)
        holds(impl, "GRADSLOT-22", not flag, expected=f"{leaf}.retains_grad stays False", found=flag)
    run.backward()
    equal_slots(impl, "GRADSLOT-22", control, run.slots(), run.program)
