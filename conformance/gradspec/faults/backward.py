# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of what a backward is given: its root or roots, their seeds, and `inputs=`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradspec.faults.copying import part
from gradspec.faults.registry import fault


def entrance(ag: Any, wrapper: Any) -> None:
    """Put `wrapper(original)` in the place of `backward`, under both of its names."""
    ag.engine.backward = ag.autograd.backward = wrapper(ag.engine.backward)


def ones(ag: Any, root: Any) -> Any:
    """A seed of ones; here and below a root is the edge that leads to it."""
    return part(ag, "record").wrap(np.ones(root.shape, root.dtype))


# --- the implicit seed --------------------------------------------------------------------------------------------


@fault(
    "BACKWARD_01_seed_is_the_root",
    clauses=["BACKWARD-01"],
    title="without a gradient the pass starts with the value of the root instead of one",
)
def seed_is_the_root(ag: Any) -> None:
    def wrapper(backward: Any) -> Any:
        def seeding(tensors: Any, grad_tensors: Any = None, *arguments: Any, **keywords: Any) -> None:
            if grad_tensors is None and isinstance(tensors, ag.Tensor) and tensors.numel() == 1:
                grad_tensors = tensors.detach().clone()
            backward(tensors, grad_tensors, *arguments, **keywords)

        return seeding

    entrance(ag, wrapper)


@fault(
    "BACKWARD_02_up_to_matrices",
    clauses=["BACKWARD-02"],
    title="scalar is taken to mean the shapes (), (1,) and (1, 1): further axes are refused",
)
def up_to_matrices(ag: Any) -> None:
    implicit_seed = ag.engine.implicit_seed

    def seed(root: Any) -> Any:
        if root.shape not in ((), (1,), (1, 1)):
            raise ag.errors.NotScalarError("a seed can be left out for a root of one number only")
        return implicit_seed(root)

    ag.engine.implicit_seed = seed


@fault(
    "BACKWARD_02_leaf_with_axes",
    clauses=["BACKWARD-02"],
    title="a leaf of one element that has axes is no scalar root",
)
def leaf_with_axes(ag: Any) -> None:
    implicit_seed = ag.engine.implicit_seed

    def seed(root: Any) -> Any:
        if root.shape and isinstance(root, ag.tape.AccumulateGrad):
            raise ag.errors.NotScalarError("a seed can be left out for a leaf without axes only")
        return implicit_seed(root)

    ag.engine.implicit_seed = seed


@fault(
    "BACKWARD_03_sums_the_root",
    clauses=["BACKWARD-03"],
    title="a root of several elements without a gradient is seeded with ones",
)
def sums_the_root(ag: Any) -> None:
    implicit_seed = ag.engine.implicit_seed
    ag.engine.implicit_seed = lambda root: ones(ag, root) if math.prod(root.shape) > 1 else implicit_seed(root)


@fault("BACKWARD_04_empty_root", clauses=["BACKWARD-04"], title="a root without elements needs no gradient")
def empty_root(ag: Any) -> None:
    implicit_seed = ag.engine.implicit_seed
    ag.engine.implicit_seed = lambda root: ones(ag, root) if math.prod(root.shape) == 0 else implicit_seed(root)


@fault("BACKWARD_05_complex_root", clauses=["BACKWARD-05"], title="a complex root of one element is seeded with one")
def complex_root(ag: Any) -> None:
    implicit_seed = ag.engine.implicit_seed

    def seed(root: Any) -> Any:
        return ones(ag, root) if math.prod(root.shape) == 1 and root.dtype.kind == "c" else implicit_seed(root)

    ag.engine.implicit_seed = seed


@fault(
    "BACKWARD_38_none_is_refused",
    clauses=["BACKWARD-38"],
    title="None in a list of seeds is refused whatever the root",
)
def none_is_refused(ag: Any) -> None:
    seeds_of = ag.engine.seeds_of

    def strict(roots: Any, given: Any, create_graph: bool) -> Any:
        if isinstance(given, list | tuple) and None in [None if each is None else 1 for each in given]:
            raise ag.errors.BadTypeError("a list of seeds holds tensors")
        return seeds_of(roots, given, create_graph)

    ag.engine.seeds_of = strict


@fault(
    "BACKWARD_38_none_is_zero",
    clauses=["BACKWARD-38"],
    title="None in a list of seeds means that its root contributes nothing",
)
def none_is_zero(ag: Any) -> None:
    seeds_of = ag.engine.seeds_of

    def silent(roots: Any, given: Any, create_graph: bool) -> Any:
        made = seeds_of(roots, given, create_graph)
        if not isinstance(given, list | tuple):
            return made
        return [seed * 0 if each is None else seed for seed, each in zip(made, given, strict=True)]

    ag.engine.seeds_of = silent


# --- a given seed -------------------------------------------------------------------------------------------------


@fault(
    "BACKWARD_06_memory_order",
    clauses=["BACKWARD-06"],
    title="the gradient of a reshape reads the memory in the order in which it lies",
)
def memory_order(ag: Any) -> None:
    ag.arrays.reshape = lambda x, shape: np.reshape(x, shape, order="A")


@fault(
    "BACKWARD_06_seed_is_ignored",
    clauses=["BACKWARD-06", "BACKWARD-34"],
    title="the seed is checked and then replaced by ones",
)
def seed_is_ignored(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def ignoring(root: Any, seed: Any) -> Any:
        made = seed_of(root, seed)
        return made if seed is None else ones(ag, root)

    ag.engine.seed_of = ignoring


@fault(
    "BACKWARD_34_one_is_added",
    clauses=["BACKWARD-34"],
    title="a given seed is added to the implicit one",
)
def one_is_added(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def adding(root: Any, seed: Any) -> Any:
        made = seed_of(root, seed)
        return made if seed is None else made + 1.0

    ag.engine.seed_of = adding


def where_the_shape_differs(ag: Any, mended: Callable[[Any, Any], Any]) -> None:
    """Let a seed whose shape is refused be mended and taken; `mended` raises ValueError where it cannot be."""
    seed_of = ag.engine.seed_of

    def lenient(root: Any, seed: Any) -> Any:
        try:
            return seed_of(root, seed)
        except ag.errors.BadSeedShapeError:
            try:
                fitting = mended(root, seed)
            except ValueError as error:
                raise ag.errors.BadSeedShapeError(str(error)) from None
            return seed_of(root, fitting)

    ag.engine.seed_of = lenient


@fault(
    "BACKWARD_07_broadcasts", clauses=["BACKWARD-07"], title="a seed that broadcasts to the root's shape is accepted"
)
def seed_broadcasts(ag: Any) -> None:
    def expanded(root: Any, seed: Any) -> Any:
        np.broadcast_to(seed._data, root.shape)
        return seed.expand(root.shape)

    where_the_shape_differs(ag, expanded)


@fault("BACKWARD_07_reshapes", clauses=["BACKWARD-07"], title="a seed of as many elements as the root is reshaped")
def seed_reshapes(ag: Any) -> None:
    def reshaped(root: Any, seed: Any) -> Any:
        if seed.numel() != math.prod(root.shape):
            raise ValueError("the seed has not as many elements as the root")
        return seed.reshape(root.shape)

    where_the_shape_differs(ag, reshaped)


@fault("BACKWARD_07_sums", clauses=["BACKWARD-07"], title="a seed to whose shape the root broadcasts is summed")
def seed_sums(ag: Any) -> None:
    def summed(root: Any, seed: Any) -> Any:
        np.broadcast_to(np.empty(root.shape), seed.shape)
        return ag.ops.sum_to(seed, root.shape)

    where_the_shape_differs(ag, summed)


@fault(
    "BACKWARD_08_misread",
    clauses=["BACKWARD-08"],
    title="a seed of another floating dtype is accepted and taken for ones",
)
def misread(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def misreading(root: Any, seed: Any) -> Any:
        made = seed_of(root, seed)
        return made if seed is None or seed.dtype == root.dtype else ones(ag, root)

    ag.engine.seed_of = misreading


@fault(
    "BACKWARD_09_drops_the_imaginary_part",
    clauses=["BACKWARD-09"],
    title="of a complex seed for a real root the real part is used",
)
def drops_the_imaginary_part(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def lenient(root: Any, seed: Any) -> Any:
        if isinstance(seed, ag.Tensor) and seed.is_complex() and root.dtype.kind != "c":
            seed = ag.real(seed)
        return seed_of(root, seed)

    ag.engine.seed_of = lenient


@fault(
    "BACKWARD_50_real_seed",
    clauses=["BACKWARD-50"],
    title="a real seed for a complex root is converted",
)
def real_seed(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def lenient(root: Any, seed: Any) -> Any:
        if isinstance(seed, ag.Tensor) and root.dtype.kind == "c" and not seed.is_complex():
            seed = seed.to(root.dtype)
        return seed_of(root, seed)

    ag.engine.seed_of = lenient


@fault("BACKWARD_10_number_as_seed", clauses=["BACKWARD-10"], title="a number is taken as seed of a root")
def number_as_seed(ag: Any) -> None:
    method = ag.Tensor.backward

    def lenient(self: Any, gradient: Any = None, *arguments: Any, **keywords: Any) -> None:
        if isinstance(gradient, int | float):
            gradient = ag.full_like(self, gradient)
        method(self, gradient, *arguments, **keywords)

    ag.Tensor.backward = lenient


@fault(
    "BACKWARD_10_number_in_a_list",
    clauses=["BACKWARD-10"],
    title="numbers are taken as seeds in the list of several roots",
)
def number_in_a_list(ag: Any) -> None:
    seed_of = ag.engine.seed_of

    def lenient(root: Any, seed: Any) -> Any:
        number = isinstance(seed, int | float)
        return seed_of(root, ag.full(root.shape, seed, dtype=root.dtype) if number else seed)

    ag.engine.seed_of = lenient


# --- roots --------------------------------------------------------------------------------------------------------


@fault("BACKWARD_12_silence", clauses=["BACKWARD-12"], title="a backward from a root that tracks nothing does nothing")
def silence(ag: Any) -> None:
    def wrapper(backward: Any) -> Any:
        def lenient(tensors: Any, *arguments: Any, **keywords: Any) -> None:
            if not isinstance(tensors, ag.Tensor) or tensors.requires_grad:
                backward(tensors, *arguments, **keywords)

        return lenient

    entrance(ag, wrapper)


@fault(
    "BACKWARD_13_first_root_only",
    clauses=["BACKWARD-13"],
    title="of several roots only the first one is walked",
)
def first_root_only(ag: Any) -> None:
    walk = ag.engine.walk
    ag.engine.walk = lambda run, roots, seeds: walk(run, roots[:1], seeds[:1])


@fault("BACKWARD_13_mean", clauses=["BACKWARD-13"], title="several roots give the mean of their gradients, not the sum")
def mean_of_roots(ag: Any) -> None:
    walk = ag.engine.walk
    ag.engine.walk = lambda run, roots, seeds: walk(run, roots, [seed / len(seeds) for seed in seeds])


@fault(
    "BACKWARD_13_later_seeds_are_ones",
    clauses=["BACKWARD-13"],
    title="only the first root gets its own seed, the others get ones",
)
def later_seeds_are_ones(ag: Any) -> None:
    walk = ag.engine.walk
    ag.engine.walk = lambda run, roots, seeds: walk(run, roots, [seeds[0], *(seed * 0 + 1 for seed in seeds[1:])])


def unique(roots: Any, seeds: Any) -> tuple[list[Any], list[Any]]:
    """Each root once, with the seed that is listed last."""
    last = {id(root): (root, seed) for root, seed in zip(roots, seeds, strict=True)}
    return [root for root, _ in last.values()], [seed for _, seed in last.values()]


@fault(
    "BACKWARD_14_last_seed_wins", clauses=["BACKWARD-14"], title="a root listed twice counts with its last seed only"
)
def last_seed_wins(ag: Any) -> None:
    walk = ag.engine.walk
    ag.engine.walk = lambda run, roots, seeds: walk(run, *unique(roots, seeds))


@fault(
    "BACKWARD_14_first_seed_wins",
    clauses=["BACKWARD-14"],
    title="a root listed twice counts with its first seed only",
)
def first_seed_wins(ag: Any) -> None:
    walk = ag.engine.walk
    ag.engine.walk = lambda run, roots, seeds: walk(run, *unique(list(roots)[::-1], list(seeds)[::-1]))


@fault("BACKWARD_16_too_few", clauses=["BACKWARD-16"], title="missing seeds at the end of a list are implicit")
def too_few(ag: Any) -> None:
    seeds_of = ag.engine.seeds_of

    def padding(roots: Any, given: Any, create_graph: bool) -> Any:
        if isinstance(given, list | tuple):
            given = [*given, *[None] * (len(roots) - len(given))]
        return seeds_of(roots, given, create_graph)

    ag.engine.seeds_of = padding


@fault("BACKWARD_51_too_many", clauses=["BACKWARD-51"], title="surplus seeds are dropped")
def too_many(ag: Any) -> None:
    seeds_of = ag.engine.seeds_of

    def cutting(roots: Any, given: Any, create_graph: bool) -> Any:
        return seeds_of(roots, given[: len(roots)] if isinstance(given, list | tuple) else given, create_graph)

    ag.engine.seeds_of = cutting


@fault("BACKWARD_17_leaf_root_is_skipped", clauses=["BACKWARD-17"], title="a backward from a leaf finds nothing to do")
def leaf_root_is_skipped(ag: Any) -> None:
    walk = ag.engine.walk

    def skipping(run: Any, roots: Any, seeds: Any) -> None:
        kept = [(r, s) for r, s in zip(roots, seeds, strict=True) if not isinstance(r, ag.tape.AccumulateGrad)]
        walk(run, [root for root, _ in kept], [seed for _, seed in kept])

    ag.engine.walk = skipping


@fault(
    "BACKWARD_17_leaf_root_is_set",
    clauses=["BACKWARD-17"],
    title="a backward from a leaf sets its slot to the seed instead of adding",
)
def leaf_root_is_set(ag: Any) -> None:
    walk = ag.engine.walk

    def setting(run: Any, roots: Any, seeds: Any) -> None:
        walk(run, roots, seeds)
        for root in roots:
            if run.accumulates and isinstance(root, ag.tape.AccumulateGrad):
                root.variable._rare().grad = None

    ag.engine.walk = setting


@fault(
    "H02",
    clauses=["BACKWARD-43"],
    title="the seed of a root that lies below another root is dropped",
    source="PaddlePaddle/Paddle#72816",
)
def inner_roots_are_dropped(ag: Any) -> None:
    walk = ag.engine.walk

    def dropping(run: Any, roots: Any, seeds: Any) -> None:
        stack, below = list(roots), set()
        while stack:
            for edge in ag.tape.node_of(stack.pop()).edges:
                if edge is not None and edge not in below:
                    below.add(edge)
                    stack.append(edge)
        kept = [(r, s) for r, s in zip(roots, seeds, strict=True) if r not in below]
        walk(run, [root for root, _ in kept], [seed for _, seed in kept])

    ag.engine.walk = dropping


# --- inputs= ------------------------------------------------------------------------------------------------------


@fault("BACKWARD_18_no_restriction", clauses=["BACKWARD-18"], title="inputs= keeps no other leaf from accumulating")
def no_restriction(ag: Any) -> None:
    restrict = ag.engine.restrict

    def loose(run: Any, targets: Any) -> None:
        restrict(run, targets)
        if run.accumulates:
            run.needed = None

    ag.engine.restrict = loose


@fault(
    "BACKWARD_18_stops_at_a_listed_tensor",
    clauses=["BACKWARD-18"],
    title="a pass does not go on below a tensor that inputs= names, so a leaf listed with it lacks that part",
)
def stops_at_a_listed_tensor(ag: Any) -> None:
    leads_on = ag.engine.leads_on

    def stopping(run: Any, node: Any) -> bool:
        listed = run.accumulates and any(each is node for each, _ in run.wanted)
        return not listed and leads_on(run, node)

    ag.engine.leads_on = stopping


@fault("BACKWARD_18_sets", clauses=["BACKWARD-18"], title="with inputs= the slots of the listed leaves are set")
def inputs_are_set(ag: Any) -> None:
    capture_inputs = ag.engine.capture_inputs

    def setting(run: Any, targets: Any) -> None:
        for tensor, _ in run.arrived:
            tensor._rare().grad = None
        capture_inputs(run, targets)

    ag.engine.capture_inputs = setting


@fault("BACKWARD_19_empty_means_all", clauses=["BACKWARD-19"], title="an empty inputs= counts as none given")
def empty_means_all(ag: Any) -> None:
    def wrapper(backward: Any) -> Any:
        def lenient(*arguments: Any, inputs: Any = None, **keywords: Any) -> None:
            empty = isinstance(inputs, list | tuple) and not inputs
            backward(*arguments, inputs=None if empty else inputs, **keywords)

        return lenient

    entrance(ag, wrapper)


@fault("BACKWARD_20_leaves_only", clauses=["BACKWARD-20"], title="a non-leaf in inputs= gets nothing")
def leaves_only(ag: Any) -> None:
    ag.engine.capture_inputs = lambda _run, _targets: None


@fault("BACKWARD_20_sets", clauses=["BACKWARD-20"], title="inputs= sets the slot of a non-leaf instead of adding")
def nonleaf_is_set(ag: Any) -> None:
    capture_inputs = ag.engine.capture_inputs

    def setting(run: Any, targets: Any) -> None:
        capture_inputs(run, targets)
        for tensor in targets:
            if tensor._node is not None and run.wanted[ag.engine.place_of(tensor)] is not None:
                tensor._rare().grad = None

    ag.engine.capture_inputs = setting


def not_reached(run: Any, targets: Any, ag: Any) -> list[Any]:
    """The listed tensors to which no path leads."""
    found = {id(tensor) for tensor, _ in run.arrived}
    return [t for t in targets if id(t) not in found and run.wanted[ag.engine.place_of(t)] is None]


@fault("BACKWARD_21_refused", clauses=["BACKWARD-21"], title="inputs= refuses a tensor that is not reached")
def unreached_is_refused(ag: Any) -> None:
    capture_inputs = ag.engine.capture_inputs

    def strict(run: Any, targets: Any) -> None:
        if not_reached(run, targets, ag):
            raise ag.errors.UnreachableInputError("a tensor in inputs= is not reached")
        capture_inputs(run, targets)

    ag.engine.capture_inputs = strict


@fault("BACKWARD_21_zeros", clauses=["BACKWARD-21"], title="a tensor in inputs= that is not reached gets zeros")
def unreached_gets_zeros(ag: Any) -> None:
    capture_inputs = ag.engine.capture_inputs

    def filling(run: Any, targets: Any) -> None:
        capture_inputs(run, targets)
        run.retained.extend((t, ag.ops.zeros_of(t) * 1) for t in not_reached(run, targets, ag) if run.create_graph)
        run.retained.extend((t, np.zeros_like(t._data)) for t in not_reached(run, targets, ag) if not run.create_graph)

    ag.engine.capture_inputs = filling


@fault("BACKWARD_23_refused", clauses=["BACKWARD-23"], title="inputs= refuses a tensor that is listed twice")
def duplicates_are_refused(ag: Any) -> None:
    restrict = ag.engine.restrict

    def strict(run: Any, targets: Any) -> None:
        if run.accumulates and len({id(each) for each in targets}) < len(targets):
            raise ag.errors.BadArgumentError("a tensor is listed twice in inputs=")
        restrict(run, targets)

    ag.engine.restrict = strict
