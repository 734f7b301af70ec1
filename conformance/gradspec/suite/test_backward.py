"""BACKWARD: backward."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gradspec.programs import editing, memory, special
from gradspec.programs.program import Case
from gradspec.programs.special import losses
from gradspec.programs.strategies import graphs, numbers, one_of
from gradspec.session import Session
from gradspec.suite import passes
from gradspec.suite.running import again, arrived, build, equal_slots, judged, judged_values, plus, single_slots, times
from gradspec.suite.support import (
    clause,
    equal,
    given,
    is_none,
    may_refuse,
    ones,
    refused,
    tensor,
    to_array,
    twin,
    unchanged,
    values,
)


@clause("BACKWARD-01")
@given(losses())
def test_a_scalar_root_is_seeded_with_one(impl: Session, case: Case) -> None:
    """After backward without a seed from a root of one element the leaves hold the derivative of the root."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-01", run, run.slots(), both=True)


@clause("BACKWARD-02")
@given(special.one_element_roots)
def test_one_element_is_scalar_at_any_rank(impl: Session, case: Case) -> None:
    """A root of one element and several axes needs no seed, and the implicit one has the root's own shape."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-02", run, run.slots())


@clause("BACKWARD-03")
@given(graphs(root="several", seed="implicit"))
def test_several_elements_need_a_seed(impl: Session, case: Case) -> None:
    """Without a seed a root of several elements is refused; the sum of its elements is taken."""
    passes.needs_a_seed(impl, "BACKWARD-03", case)


@clause("BACKWARD-04")
@given(special.empty_roots)
def test_no_elements_need_a_seed(impl: Session, case: Case) -> None:
    """Without a seed a root without elements is refused; the sum of no elements is taken."""
    passes.needs_a_seed(impl, "BACKWARD-04", case)


@clause("BACKWARD-05")
@given(special.complex_graphs(root="scalar"))
def test_a_complex_root_needs_a_seed(impl: Session, case: Case) -> None:
    """Without a seed a complex root of one element is refused; with one it is taken."""
    run, other = build(impl, case), build(impl, case)
    with refused(impl, "BACKWARD-05", "not_real"):
        impl.backward(run.root)
    with twin(impl, "BACKWARD-05"):
        other.backward()


@clause("BACKWARD-06")
@given(graphs(seed="explicit"))
def test_a_seed_gives_the_vector_jacobian_product(impl: Session, case: Case) -> None:
    """After backward from a root with seed v the leaves hold the transposed Jacobian times v."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-06", run, run.slots(), both=True)


@clause("BACKWARD-06")
@given(memory.through_shapes)
def test_a_seed_goes_back_through_any_shapes(impl: Session, case: Case) -> None:
    """Through views of other shapes and orders each element of the seed, be it a view or not, reaches its place."""
    for turned in sorted({False, case["turned"]}):
        run = passes.turned_seed(build(impl, case), turned=turned)
        run.backward()
        judged(impl, "BACKWARD-06", run, run.slots())


@clause("BACKWARD-07")
@given(special.mismatched_seeds)
def test_a_seed_of_another_shape_is_refused(impl: Session, case: Case) -> None:
    """A seed whose shape is not the root's is refused, also where it broadcasts; one of the root's shape is taken."""
    program = case.the_program
    wrong = ones(case["shape"], program.dtypes()[program.roots[0].value])
    passes.refuses_seed(impl, "BACKWARD-07", "bad_seed_shape", case, wrong)


@clause("BACKWARD-07")
@given(special.several_roots("apart", wrong=special.misfit_of_root))
def test_one_seed_of_another_shape_spoils_the_list(impl: Session, case: Case) -> None:
    """Of several seeds each must have the shape of its root: the list is refused where any one differs."""
    passes.refuses_one_shape(impl, "BACKWARD-07", case, *case["wrong"])


@clause("BACKWARD-08")
@given(graphs(seed="explicit"))
def test_a_seed_of_another_real_dtype_is_converted_or_refused(impl: Session, case: Case) -> None:
    """A real seed of another floating dtype acts as its values in the root's dtype, or is refused as such."""
    run = build(impl, case)
    dtype = "float32" if impl.dtype(run.root) == "float64" else "float64"
    seed = tensor(impl, to_array(impl.shape(run.root), case.the_program.roots[0].seed or (), dtype))
    with may_refuse(impl, "bad_seed_dtype") as outcome:
        impl.backward(run.root, seed)
    passes.right_or_untouched(impl, "BACKWARD-08", run, outcome)


@clause("BACKWARD-09")
@given(special.real_roots)
def test_a_complex_seed_for_a_real_root_is_refused(impl: Session, case: Case) -> None:
    """A complex seed for a real root is refused, also where its imaginary part is zero; a real one is taken."""
    shape = case.the_program.shapes()[case.the_program.roots[0].value]
    passes.refuses_seed(impl, "BACKWARD-09", "bad_seed_dtype", case, to_array(shape, case["seed"], "complex128"))


@clause("BACKWARD-50")
@given(special.complex_graphs())
def test_a_real_seed_for_a_complex_root_is_refused(impl: Session, case: Case) -> None:
    """A real seed for a complex root is refused; a complex one is taken."""
    shape = case.the_program.shapes()[case.the_program.roots[0].value]
    passes.refuses_seed(impl, "BACKWARD-50", "bad_seed_dtype", case, ones(shape))


@clause("BACKWARD-10")
@given(special.wrong_seeds)
def test_a_seed_that_is_no_tensor_is_refused(impl: Session, case: Case) -> None:
    """A number, a text or a sequence of numbers as seed is refused; a tensor is taken."""
    passes.refuses_seed(impl, "BACKWARD-10", "bad_type", case, case["wrong"], listed=case["listed"])


@clause("BACKWARD-11")
@given(special.accumulated)
def test_passes_add_up(impl: Session, case: Case) -> None:
    """After k forwards and backwards over the same leaves each slot holds k times the gradient of one."""
    single, run = single_slots(impl, "BACKWARD-11", case), build(impl, case, passes=1)
    for _ in range(case["passes"] - 1):
        again(run).backward()
    equal_slots(impl, "BACKWARD-11", times(case["passes"], single), run.slots(), run.program)


@clause("BACKWARD-12")
@given(losses())
def test_a_root_that_tracks_nothing_is_refused(impl: Session, case: Case) -> None:
    """A root that depends on no leaf is refused; the same root is taken where its inputs require grad."""
    run, other = build(impl, editing.untracked(case.the_program)), build(impl, case)
    with refused(impl, "BACKWARD-12", "nothing_requires_grad"):
        run.backward()
    with twin(impl, "BACKWARD-12"):
        other.backward()


@clause("BACKWARD-13")
@given(special.several_roots("apart", count=(2, 4)))
def test_several_roots_add_up(impl: Session, case: Case) -> None:
    """One pass from several roots, none computed from another, gives the sum over roots of single passes."""
    passes.sum_over_roots(impl, "BACKWARD-13", case)


@clause("BACKWARD-14")
@given(special.several_roots("repeated"))
def test_a_root_listed_again_counts_again(impl: Session, case: Case) -> None:
    """A root that stands several times in the list contributes with the seed of each place."""
    passes.sum_over_roots(impl, "BACKWARD-14", case)


@clause("BACKWARD-43")
@given(special.several_roots("nested", count=(2, 4)))
def test_roots_computed_from_one_another_all_count(impl: Session, case: Case) -> None:
    """Where one root is computed from another the seeds of both count."""
    passes.sum_over_roots(impl, "BACKWARD-43", case)


@clause("BACKWARD-38")
@given(special.several_roots("implicit"))
def test_none_in_the_list_stands_for_one(impl: Session, case: Case) -> None:
    """None as the seed of a one-element root among others acts as a one of that root's shape."""
    run, other = build(impl, case, passes=1), build(impl, case)
    other.seeds = [
        s or tensor(impl, ones(impl.shape(r), impl.dtype(r))) for r, s in zip(other.roots, other.seeds, strict=True)
    ]
    other.backward()
    judged(impl, "BACKWARD-38", run, run.slots())
    equal_slots(impl, "BACKWARD-38", other.slots(), run.slots(), run.program)


@clause("BACKWARD-15")
@given(special.several_roots("apart", at=numbers(0, 2)))
def test_one_root_without_history_spoils_the_list(impl: Session, case: Case) -> None:
    """A list of roots is refused where one does not require grad; without that one it is taken."""
    run, other = build(impl, case), build(impl, case)
    roots, given_seeds = run.roots, list(run.seeds)
    roots.insert(case["at"], impl.tensor(1.0, dtype=impl.dtype(run.root)))
    given_seeds.insert(case["at"], None)
    with refused(impl, "BACKWARD-15", "nothing_requires_grad"):
        impl.backward_many(roots, given_seeds)
    with twin(impl, "BACKWARD-15"):
        other.backward()


@clause("BACKWARD-16")
@given(special.several_roots("apart", count=(2, 4), given=numbers(0, 3)))
def test_too_few_seeds_are_refused(impl: Session, case: Case) -> None:
    """A list of seeds that is shorter than the list of roots is refused; one of equal length is taken."""
    passes.refuses_count(impl, "BACKWARD-16", case, min(case["given"], len(case.the_program.roots) - 1))


@clause("BACKWARD-51")
@given(special.several_roots("apart", count=(1, 3), surplus=numbers(1, 2)))
def test_too_many_seeds_are_refused(impl: Session, case: Case) -> None:
    """A list of seeds that is longer than the list of roots is refused; one of equal length is taken."""
    passes.refuses_count(impl, "BACKWARD-51", case, len(case.the_program.roots) + case["surplus"])


@clause("BACKWARD-17")
@given(special.leaf_roots)
def test_a_leaf_may_be_the_root(impl: Session, case: Case) -> None:
    """Each backward from a leaf adds the seed to the slot of that leaf and nothing to others."""
    single, run = build(impl, case, passes=1), build(impl, case)
    for _ in range(case["passes"]):
        run.backward()
    judged(impl, "BACKWARD-17", single, single.slots())
    equal_slots(impl, "BACKWARD-17", times(case["passes"], single.slots()), run.slots(), run.program)


@clause("BACKWARD-18")
@given(special.listed_leaves)
def test_inputs_restricts_accumulation(impl: Session, case: Case) -> None:
    """A pass with inputs= adds to the listed leaves what a full pass would, and to no other leaf."""
    run = build(impl, case, passes=case["before"])
    listed = [*case["chosen"], case["inner"]] if case["both"] else case["chosen"]
    passes.adds_to_listed(impl, "BACKWARD-18", run, single_slots(impl, "BACKWARD-18", case), listed)


@clause("BACKWARD-19")
@given(losses())
def test_empty_inputs_are_refused(impl: Session, case: Case) -> None:
    """An empty inputs= is refused; one that lists the leaves is taken."""
    run, other = build(impl, case), build(impl, case)
    with refused(impl, "BACKWARD-19", "empty_inputs"):
        run.backward(inputs=[])
    with twin(impl, "BACKWARD-19"):
        other.backward(inputs=other.leaves)


@clause("BACKWARD-20")
@given(special.inner_values)
def test_inputs_fills_the_slot_of_a_non_leaf(impl: Session, case: Case) -> None:
    """Each pass adds the gradient of an intermediate that inputs= lists to its slot once, retained or not."""
    passes.listed_inner(impl, "BACKWARD-20", case, case["number"], case["passes"], retained=case["retained"])


@clause("BACKWARD-21")
@given(special.unreached)
def test_inputs_may_list_what_is_not_reached(impl: Session, case: Case) -> None:
    """Tensors in inputs= to which no path leads are accepted, and their slots stay as they were."""
    run = build(impl, case)
    leaf, inner = run.handles[case["leaf"]], run.handles[case["inner"]]
    if case["filled"]:
        impl.backward(run.handles[case["loss"]], inputs=[leaf])
    before = values(impl, [impl.grad(leaf), impl.grad(inner)])
    run.backward(inputs=[*run.leaves, inner])
    passes.slots_unchanged(impl, "BACKWARD-21", before, [leaf, inner])


@clause("BACKWARD-22")
@given(losses())
def test_inputs_takes_a_dict_and_no_other_mapping(impl: Session, case: Case) -> None:
    """inputs= takes the values of a dict, and refuses a mapping that is none."""
    run, other = build(impl, case), build(impl, case)
    names = [str(n) for n in range(len(run.leaves))]
    with refused(impl, "BACKWARD-22", "bad_type"):
        run.backward(inputs=MappingProxyType(dict(zip(names, run.leaves, strict=True))))
    with twin(impl, "BACKWARD-22"):
        other.backward(inputs=dict(zip(names, other.leaves, strict=True)))
    judged(impl, "BACKWARD-22", other, other.slots())


@clause("BACKWARD-23")
@given(losses(exact=True, apart=True, chosen=special.reached_leaves()))
def test_a_tensor_listed_twice_counts_once_or_twice(impl: Session, case: Case) -> None:
    """Leaves that stand twice in inputs= receive their gradient once or twice."""
    single, run = single_slots(impl, "BACKWARD-23", case), build(impl, case)
    run.backward(inputs=2 * [run.handles[n] for n in case["chosen"]])
    passes.once_or_twice(impl, "BACKWARD-23", run, single, case["chosen"])


@clause("BACKWARD-24")
@given(memory.laid_out)
def test_a_new_slot_has_the_layout_of_a_dense_leaf(impl: Session, case: Case) -> None:
    """The first gradient of a leaf that is dense in memory has the leaf's strides along every axis longer than one."""
    passes.has_layout(impl, "BACKWARD-24", case, dense=True)


@clause("BACKWARD-52")
@given(memory.laid_out)
def test_a_new_slot_of_a_leaf_with_gaps_is_row_major(impl: Session, case: Case) -> None:
    """The first gradient of a leaf whose elements leave gaps or overlap is contiguous in row-major order."""
    passes.has_layout(impl, "BACKWARD-52", case, dense=False)


@clause("BACKWARD-25")
@given(losses(exact=True, apart=True))
def test_accumulation_is_in_place(impl: Session, case: Case) -> None:
    """A second pass adds into the tensor and the memory of each slot that was filled, and keeps its strides."""
    run = build(impl, case, passes=1)
    before = passes.held(run)
    again(run).backward()
    passes.kept_in_place(impl, "BACKWARD-25", run, before)


@clause("BACKWARD-26")
@given(special.polynomials)
def test_a_recorded_accumulation_can_be_differentiated(impl: Session, case: Case) -> None:
    """After two passes with create_graph the derivative of the slot is that of both gradients together."""
    passes.differentiable_sum(impl, "BACKWARD-26", case)


@clause("BACKWARD-53")
@given(special.polynomials)
def test_a_recorded_accumulation_leaves_the_old_gradient(impl: Session, case: Case) -> None:
    """A pass with create_graph puts the sum into a new slot: a reference to the old gradient keeps its values."""
    data, x, old, before = passes.two_recorded(impl, case)
    unchanged(impl, "BACKWARD-53", before, old, "the old gradient")
    equal(impl, "BACKWARD-53", impl.grad(x), passes.slope(data, case["first"], case["second"]), "the sum")


@clause("BACKWARD-27")
@given(losses())
def test_create_graph_warns_of_the_cycle(impl: Session, case: Case) -> None:
    """A backward with create_graph warns that leaf and gradient keep each other alive; one without does not."""
    for create_graph in (True, False):
        run = build(impl, case)
        with impl.warnings() as caught:
            run.backward(create_graph=create_graph)
        passes.warned(impl, "BACKWARD-27", caught, "create_graph_cycle", wanted=create_graph)


@clause("BACKWARD-28")
@given(losses(exact=True, apart=True, passes=numbers(1, 3)))
def test_zeros_and_none_are_the_same_start(impl: Session, case: Case) -> None:
    """Leaves that are reached hold the same after passes that began with zeros and with None in their slots."""
    passes.zeros_as_none(impl, "BACKWARD-28", case, case["passes"])


@clause("BACKWARD-29")
@given(special.reused_leaves)
def test_a_leaf_used_many_times_receives_the_sum(impl: Session, case: Case) -> None:
    """A leaf that is used up to forty times has the sum of the gradients of as many leaves that are used once."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-29", run, run.slots(), both=True)
    split, copies = editing.one_leaf_per_use(case.the_program, 0)
    expected = passes.total(build(impl, split, passes=1).slots(copies))
    equal_slots(impl, "BACKWARD-29", {0: expected}, run.slots([0]), run.program)


@clause("BACKWARD-30")
@given(special.unreached)
def test_a_leaf_that_is_not_reached_keeps_its_slot(impl: Session, case: Case) -> None:
    """A pass leaves the slot of a leaf to which no path leads as it was: empty, or with an earlier gradient."""
    run = build(impl, case)
    if case["filled"]:
        impl.backward(run.handles[case["loss"]])
    apart = [run.handles[n] for n in run.program.leaves if n not in run.program.reached()]
    before = values(impl, [impl.grad(leaf) for leaf in apart])
    run.backward()
    passes.slots_unchanged(impl, "BACKWARD-30", before, apart)


@clause("BACKWARD-54")
@given(special.zero_derivatives)
def test_a_derivative_of_zero_is_a_gradient(impl: Session, case: Case) -> None:
    """A leaf to which a recorded path with derivative zero leads gets zeros of its shape, not None."""
    run = build(impl, case, passes=1)
    leaf = run.handles[case["leaf"]]
    equal(impl, "BACKWARD-54", impl.grad(leaf), np.zeros(impl.shape(leaf)), f"{leaf}.grad")


@clause("BACKWARD-31")
@given(special.diamonds)
def test_an_intermediate_passes_on_its_full_sum(impl: Session, case: Case) -> None:
    """Through intermediates with several consumers at different depths the leaf receives the whole derivative."""
    run = build(impl, case, passes=1)
    judged(impl, "BACKWARD-31", run, run.slots(), both=True)


@clause("BACKWARD-55")
@given(losses(steps=(2, 9)))
def test_a_node_runs_once_in_a_pass(impl: Session, case: Case) -> None:
    """A hook on each intermediate that reaches the root is called once, with the total gradient."""
    passes.fires_once(impl, "BACKWARD-55", case)


@clause("BACKWARD-55")
@given(special.diamonds)
def test_a_node_with_several_consumers_runs_once(impl: Session, case: Case) -> None:
    """Also where its consumers lie on paths of different lengths a hook is called once, with the total gradient."""
    passes.fires_once(impl, "BACKWARD-55", case)


@clause("BACKWARD-32")
@given(memory.through_views())
def test_slots_share_memory_with_nothing(impl: Session, case: Case) -> None:
    """After a pass the slots share memory with no other slot, no seed and no tensor of the program."""
    run = passes.share_seed(build(impl, case))
    run.backward()
    passes.apart_in_memory(impl, "BACKWARD-32", run)


@clause("BACKWARD-33")
@given(losses(exact=True))
def test_backward_works_under_no_grad(impl: Session, case: Case) -> None:
    """A pass inside no_grad over a graph recorded before gives the gradients that one outside gives."""
    run, outside = build(impl, case), build(impl, case, passes=1)
    with impl.no_grad():
        run.backward()
    judged(impl, "BACKWARD-33", run, run.slots())
    equal_slots(impl, "BACKWARD-33", outside.slots(), run.slots(), run.program)


@clause("BACKWARD-34")
@given(special.combined_seeds)
def test_backward_is_linear_in_the_seed(impl: Session, case: Case) -> None:
    """The gradients for the seed a u + b w are a times those for u plus b times those for w."""
    a, b, u, w = case["a"], case["b"], case["u"], case["w"]
    both = passes.with_seed(case.the_program, [a * v + b * z for v, z in zip(u, w, strict=True)])
    parts = [single_slots(impl, "BACKWARD-34", passes.with_seed(both, seed)) for seed in (u, w)]
    run = build(impl, both, passes=1)
    equal_slots(impl, "BACKWARD-34", plus(times(a, parts[0]), times(b, parts[1])), run.slots(), both)


@clause("BACKWARD-35")
@given(special.edge_roots)
def test_an_edge_stands_in_for_its_tensor(impl: Session, case: Case) -> None:
    """A pass from edges, alone or beside tensors, gives the gradients of those tensors, which may be gone."""
    run = build(impl, case)
    passes.from_edges(impl, run, case["edges"], dropped=case["dropped"])
    judged(impl, "BACKWARD-35", run, run.slots())


@clause("BACKWARD-37")
@given(special.several_roots("apart", count=(1, 3)))
def test_seeds_under_their_old_name_warn(impl: Session, case: Case) -> None:
    """Seeds as grad_variables= draw the warning and act like those that are given by their new name, without it."""
    for old in (False, True):
        run = build(impl, case)
        with impl.warnings() as caught:
            impl.backward_many(run.roots, None if old else run.seeds, grad_variables=run.seeds if old else None)
        passes.warned(impl, "BACKWARD-37", caught, "deprecated", wanted=old)
        judged(impl, "BACKWARD-37", run, run.slots())


@clause("BACKWARD-57")
@given(special.several_roots("apart", count=(1, 3)))
def test_seeds_under_both_names_are_refused(impl: Session, case: Case) -> None:
    """Seeds that are given under both names are refused; under one they are taken."""
    run, other = build(impl, case), build(impl, case)
    with impl.warnings(), refused(impl, "BACKWARD-57", "bad_argument"):
        impl.backward_many(run.roots, run.seeds, grad_variables=run.seeds)
    with twin(impl, "BACKWARD-57"):
        impl.backward_many(other.roots, other.seeds)


@clause("BACKWARD-58")
@given(losses(min_leaves=2, chosen=special.reached_leaves(proper=True)))
def test_only_inputs_false_has_no_effect_but_a_warning(impl: Session, case: Case) -> None:
    """Gradients asked for with only_inputs=False draw the warning, are the right ones and fill no slot."""
    run, chosen = build(impl, case), case["chosen"]
    with impl.warnings() as caught:
        found = run.gradients([run.handles[n] for n in chosen], only_inputs=False)
    passes.warned(impl, "BACKWARD-58", caught, "deprecated", wanted=True)
    judged_values(impl, "BACKWARD-58", run, passes.returned(impl, chosen, found))
    for leaf in run.leaves:
        is_none(impl, "BACKWARD-58", leaf, "gradients were returned, not accumulated")


@clause("BACKWARD-36")
@given(losses())
def test_backward_in_inference_mode_is_right_or_refused(impl: Session, case: Case) -> None:
    """A pass inside inference mode over a graph recorded before is refused or gives the gradients."""
    run = build(impl, case)
    with impl.inference_mode(), may_refuse(impl) as outcome:
        run.backward()
    passes.right_or_untouched(impl, "BACKWARD-36", run, outcome)


@clause("BACKWARD-39")
@given(special.unsaved_leaves)
def test_an_update_of_what_nothing_saved_changes_nothing(impl: Session, case: Case) -> None:
    """Leaves that no operation saved may be written under no_grad: the gradients are those at the forward's values."""
    run = build(impl, case)
    name, *operands = case["write"]
    with impl.no_grad():
        for leaf in run.leaves:
            impl.apply_(name, leaf, *operands)
    run.backward()
    judged(impl, "BACKWARD-39", run, run.slots())


@clause("BACKWARD-40")
@given(special.summands)
def test_the_order_of_summands_does_not_matter(impl: Session, case: Case) -> None:
    """The gradient of a sum, added in any order, is the sum of the gradients of its summands."""
    count = len(case.the_program.roots)
    first = build(impl, editing.summed(case.the_program, range(count)), passes=1)
    other = build(impl, editing.summed(case.the_program, case["order"]), passes=1)
    alone = passes.one_by_one(impl, case.the_program)
    judged(impl, "BACKWARD-40", first, first.slots())
    equal_slots(impl, "BACKWARD-40", first.slots(), other.slots(), first.program)
    equal_slots(impl, "BACKWARD-40", alone, first.slots(), first.program)


@clause("BACKWARD-42")
@given(losses(exact=True, apart=True, chosen=special.reached_leaves(), values=one_of(2.0, -1.0)))
def test_an_assigned_gradient_that_tracks_is_added_to_unrecorded(impl: Session, case: Case) -> None:
    """The sum is written into the assigned tensor itself, which keeps the history that it had."""
    passes.added_unrecorded(impl, "BACKWARD-42", case, case["chosen"][0], case["values"])


@clause("BACKWARD-44")
@given(memory.through_views(seeded=True))
def test_a_seed_keeps_its_values(impl: Session, case: Case) -> None:
    """After any number of passes with the same seed its values are bitwise what they were."""
    run = passes.share_seed(build(impl, case))
    before = values(impl, run.seeds)
    for _ in range(case["passes"]):
        again(run).backward()
    arrived(impl, "BACKWARD-44", run)
    passes.all_unchanged(impl, "BACKWARD-44", before, run.seeds, "seed")
    passes.retained_beside(impl, run, case["passes"])
    passes.all_unchanged(impl, "BACKWARD-44", before, run.seeds, "seed")


@clause("BACKWARD-49")
@given(memory.through_views())
def test_sums_are_exact_through_views(impl: Session, case: Case) -> None:
    """Over k passes, each with a new seed, leaves that meet through views receive k times the gradient of one."""
    single, run = build(impl, case, passes=1), build(impl, case)
    for _ in range(case["passes"]):
        passes.share_seed(again(run)).backward()
    judged(impl, "BACKWARD-49", single, single.slots())
    equal_slots(impl, "BACKWARD-49", times(case["passes"], single.slots()), run.slots(), run.program)


@clause("BACKWARD-45")
@given(special.paddings)
def test_unused_consumers_have_no_effect(impl: Session, case: Case) -> None:
    """Branches that no root uses, made before, between and after the used ones and alive, change no gradient."""
    passes.undisturbed(impl, "BACKWARD-45", case, dropped=False)


@clause("BACKWARD-56")
@given(special.paddings)
def test_dropped_consumers_have_no_effect(impl: Session, case: Case) -> None:
    """Branches that no root uses and that were dropped before the pass change no gradient."""
    passes.undisturbed(impl, "BACKWARD-56", case, dropped=True)


@clause("BACKWARD-46")
@given(losses(dropped=one_of(False, True)))
def test_use_of_a_leaf_leaves_its_slot_alone(impl: Session, case: Case) -> None:
    """Reading leaves and computing with them after a pass, the first graph alive or dropped, changes no slot."""
    run = build(impl, case, passes=1)
    before = values(impl, [impl.grad(leaf) for leaf in run.leaves])
    if case["dropped"]:
        run.release_others()
    values(impl, again(run).handles)
    passes.slots_unchanged(impl, "BACKWARD-46", before, run.leaves)


@clause("BACKWARD-47")
@given(losses())
def test_a_pass_changes_no_values(impl: Session, case: Case) -> None:
    """Leaves, constants, intermediates and roots are bitwise after a pass what they were before."""
    run = build(impl, case)
    before = values(impl, run.handles)
    run.backward()
    passes.all_unchanged(impl, "BACKWARD-47", before, run.handles, "value")


@clause("BACKWARD-48")
@given(special.partly_used)
def test_unused_outputs_contribute_zero(impl: Session, case: Case) -> None:
    """The input of an operation with several results gets the gradient of the used ones in its own shape."""
    run = build(impl, case, passes=1)
    zeroed = build(impl, editing.times_zero(case.the_program, case["unused"]), passes=1)
    judged(impl, "BACKWARD-48", run, run.slots(), both=True)
    equal_slots(impl, "BACKWARD-48", zeroed.slots([0]), run.slots([0]), run.program)
