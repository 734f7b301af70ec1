# ruff: noqa: D103
# (the title of a fault says what it does)
"""Faults of the life of a graph: what a pass frees, what it keeps, what is refused afterwards."""

from __future__ import annotations

import weakref
from typing import Any

from gradspec.faults.backward import entrance
from gradspec.faults.copying import part
from gradspec.faults.registry import fault


def plus(old: Any, new: Any) -> Any:
    """The sum of two gradients of a node: arrays, tensors, or a list of these and None."""
    if isinstance(new, list):
        return [
            n if o is None else o if n is None else o + n for o, n in zip(old or [None] * len(new), new, strict=True)
        ]
    return new if old is None else old + new


# --- refusals -----------------------------------------------------------------------------------------------------


@fault(
    "RETAIN_01_backward_never_frees",
    clauses=["RETAIN-01", "RETAIN-06"],
    title="backward keeps the graph whatever retain_graph says; grad() frees it",
)
def backward_never_frees(ag: Any) -> None:
    walk = ag.engine.walk

    def keeping(run: Any, roots: Any, seeds: Any) -> None:
        run.retain = run.retain or (run.accumulates and not run.create_graph)
        walk(run, roots, seeds)

    ag.engine.walk = keeping


@fault(
    "RETAIN_01_saved_outputs_stay",
    clauses=["RETAIN-01"],
    title="operations that saved their own output are not freed",
)
def saved_outputs_stay(ag: Any) -> None:
    free_saved = ag.engine.free_saved

    def sparing(node: Any) -> None:
        if not any(isinstance(value, ag.tape.SavedOutput) for value in node.saved):
            free_saved(node)

    ag.engine.free_saved = sparing


def plain(run: Any) -> bool:
    """Whether a pass is a backward without create_graph."""
    return bool(run.accumulates and not run.create_graph)


@fault(
    "RETAIN_01_products_are_not_freed",
    clauses=["RETAIN-01"],
    title="a backward does not free the operations on two operands",
)
def products_are_not_freed(ag: Any) -> None:
    walk, free_saved = ag.engine.walk, ag.engine.free_saved
    current: list[Any] = []

    def noting(run: Any, roots: Any, seeds: Any) -> None:
        current[:] = [run]
        walk(run, roots, seeds)

    def sparing(node: Any) -> None:
        if len(node.edges) == 1 or not plain(current[0]):
            free_saved(node)

    ag.engine.walk, ag.engine.free_saved = noting, sparing


def unchecked(ag: Any, spared: Any) -> None:
    """Keep what is freed, and let passes for which `spared` holds use it as if nothing had happened."""
    free_saved, run_node = ag.engine.free_saved, ag.engine.run_node
    kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def freeing(node: Any) -> None:
        if node.saved and node.saved is not ag.tape.FREED:
            kept[node] = node.saved, node.versions
        free_saved(node)

    def running(run: Any, node: Any, gradient: Any) -> Any:
        if node.saved is ag.tape.FREED and spared(run):
            node.saved, node.versions = kept[node]
        return run_node(run, node, gradient)

    ag.engine.free_saved, ag.engine.run_node = freeing, running


@fault(
    "RETAIN_01_recorded_pass_is_not_checked",
    clauses=["RETAIN-01"],
    title="a pass with create_graph is not refused on a freed graph",
)
def recorded_pass_is_not_checked(ag: Any) -> None:
    unchecked(ag, lambda run: run.create_graph)


@fault(
    "RETAIN_01_retaining_pass_is_not_checked",
    clauses=["RETAIN-01"],
    title="a pass that retains the graph is not refused on a freed one",
)
def retaining_pass_is_not_checked(ag: Any) -> None:
    unchecked(ag, lambda run: run.retain and not run.create_graph)


@fault(
    "RETAIN_01_restricted_pass_is_not_checked",
    clauses=["RETAIN-01"],
    title="a backward with inputs= is not refused on a freed graph",
)
def restricted_pass_is_not_checked(ag: Any) -> None:
    unchecked(ag, lambda run: run.accumulates and run.needed is not None)


@fault(
    "RETAIN_01_freed_counts_as_zero",
    clauses=["RETAIN-01"],
    title="a backward through an operation that a backward has freed ends there without an error",
)
def freed_counts_as_zero(ag: Any) -> None:
    run_node = ag.engine.run_node
    freed: weakref.WeakSet[Any] = weakref.WeakSet()

    def silent(run: Any, node: Any, gradient: Any) -> Any:
        if node in freed and plain(run):
            return [None] * len(node.edges)
        found = run_node(run, node, gradient)
        if node.saved and plain(run) and not run.retain:
            freed.add(node)
        return found

    ag.engine.run_node = silent


@fault(
    "RETAIN_06_flag_at_the_root",
    clauses=["RETAIN-06"],
    title="only the root of a pass is marked as freed, so another loss may use the shared part again",
)
def flag_at_the_root(ag: Any) -> None:
    walk, free_saved = ag.engine.walk, ag.engine.free_saved
    freed: weakref.WeakSet[Any] = weakref.WeakSet()
    ran: list[Any] = []

    def flagging(run: Any, roots: Any, seeds: Any) -> None:
        nodes = [ag.tape.node_of(root) for root in roots]
        if any(node in freed for node in nodes):
            raise ag.errors.GraphFreedError("the graph of this root was freed")
        ran.clear()
        walk(run, roots, seeds)
        if ran:
            freed.update(nodes)

    ag.engine.walk = flagging
    ag.engine.free_saved = lambda node: ran.append(node.label) if node.saved else free_saved(node)


@fault(
    "RETAIN_08_grad_never_frees",
    clauses=["RETAIN-08"],
    title="grad() keeps the graph whatever retain_graph says",
)
def grad_never_frees(ag: Any) -> None:
    walk = ag.engine.walk

    def keeping(run: Any, roots: Any, seeds: Any) -> None:
        run.retain = run.retain or (not run.accumulates and not run.create_graph)
        walk(run, roots, seeds)

    ag.engine.walk = keeping


@fault(
    "RETAIN_08_grad_is_not_checked",
    clauses=["RETAIN-08"],
    title="grad() is not refused on a freed graph",
)
def grad_is_not_checked(ag: Any) -> None:
    unchecked(ag, lambda run: not run.accumulates and not run.create_graph)


@fault(
    "RETAIN_10_create_graph_wins",
    clauses=["RETAIN-10"],
    title="create_graph retains the graph even where retain_graph=False was passed",
)
def create_graph_wins(ag: Any) -> None:
    ag.engine.default_retain = lambda retain_graph, create_graph: create_graph or bool(retain_graph)


# --- what may be walked again -------------------------------------------------------------------------------------


@fault(
    "RETAIN_02_stale_sum",
    clauses=["RETAIN-02"],
    title="an operation that saved nothing keeps its gradient, and a further pass adds to it",
)
def stale_sum(ag: Any) -> None:
    run_node = ag.engine.run_node
    old: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def adding(run: Any, node: Any, gradient: Any) -> Any:
        if not node.saved and not run.retain:
            gradient = old[node] = plus(old.get(node), gradient)
        return run_node(run, node, gradient)

    ag.engine.run_node = adding


@fault(
    "H04",
    clauses=["RETAIN-03"],
    title="gradients of intermediates are kept between passes over a retained graph",
    source="karpathy/micrograd#102",
)
def sums_live_in_the_graph(ag: Any) -> None:
    run_node = ag.engine.run_node
    plain: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
    recorded: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def adding(run: Any, node: Any, gradient: Any) -> Any:
        old = recorded if run.create_graph else plain  # a pass of one kind does not read what the other kept
        gradient = plus(old.get(node), gradient)
        if run.retain:
            old[node] = gradient
        return run_node(run, node, gradient)

    ag.engine.run_node = adding


@fault(
    "RETAIN_03_retains_once",
    clauses=["RETAIN-03"],
    title="a graph can be retained once: the second pass over it frees it",
)
def retains_once(ag: Any) -> None:
    run_node = ag.engine.run_node
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def counting(run: Any, node: Any, gradient: Any) -> Any:
        found = run_node(run, node, gradient)
        if node in seen:
            ag.tape.free_saved(node)
        seen.add(node)
        return found

    ag.engine.run_node = counting


@fault(
    "RETAIN_04_create_graph_frees",
    clauses=["RETAIN-04"],
    title="create_graph does not imply retain_graph",
)
def create_graph_frees(ag: Any) -> None:
    ag.engine.default_retain = lambda retain_graph, _create_graph: bool(retain_graph)


@fault(
    "RETAIN_05_freed_means_unrecorded",
    clauses=["RETAIN-05"],
    title="with retain_graph=False the pass is not recorded, although create_graph=True was passed",
)
def freed_means_unrecorded(ag: Any) -> None:
    def wrapper(function: Any) -> Any:
        def lenient(*arguments: Any, retain_graph: Any = None, create_graph: bool = False, **keywords: Any) -> Any:
            recorded = create_graph and retain_graph is not False
            return function(*arguments, retain_graph=retain_graph, create_graph=recorded, **keywords)

        return lenient

    entrance(
        ag, lambda backward: lambda *a, **k: wrapper(backward)(*a[:2], **dict(zip(FLAGS, a[2:], strict=False)), **k)
    )
    ag.engine.grad = ag.autograd.grad = wrapper(ag.engine.grad)


FLAGS = ("retain_graph", "create_graph")


@fault(
    "RETAIN_09_frees_all_that_it_sees",
    clauses=["RETAIN-09"],
    title="a pass frees the whole graph of its roots, not only the operations that it ran",
)
def frees_all_that_it_sees(ag: Any) -> None:
    walk = ag.engine.walk

    def sweeping(run: Any, roots: Any, seeds: Any) -> None:
        walk(run, roots, seeds)
        stack = [] if run.retain else list(roots)
        seen = set()
        while stack:
            node = ag.tape.node_of(stack.pop())
            if node not in seen:
                seen.add(node)
                stack.extend(edge for edge in node.edges if edge is not None)
                ag.tape.free_saved(node)

    ag.engine.walk = sweeping


@fault(
    "RETAIN_11_leaf_is_freed",
    clauses=["RETAIN-11"],
    title="a pass that frees its graph frees the accumulation nodes of the leaves, which other graphs share",
)
def leaf_is_freed(ag: Any) -> None:
    observe = ag.engine.observe
    freed: weakref.WeakSet[Any] = weakref.WeakSet()

    def freeing(run: Any, node: Any, gradient: Any) -> Any:
        if isinstance(node, ag.tape.AccumulateGrad):
            if node in freed:
                raise ag.errors.GraphFreedError("the graph of this leaf was freed")
            if not run.retain:
                freed.add(node)
        return observe(run, node, gradient)

    ag.engine.observe = freeing


@fault(
    "RETAIN_11_leaf_forgets_its_uses",
    clauses=["RETAIN-11"],
    title="a pass that frees its graph cuts the leaves off the other graphs that were recorded before",
)
def leaf_forgets_its_uses(ag: Any) -> None:
    observe = ag.engine.observe
    uses: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def cutting(run: Any, node: Any, gradient: Any) -> Any:
        if isinstance(node, ag.tape.AccumulateGrad) and run.accumulates:
            if uses.get(node, run.roots) != run.roots:
                return gradient
            if not run.retain:
                uses[node] = run.roots
        return observe(run, node, gradient)

    rooted(ag)
    ag.engine.observe = cutting


def rooted(ag: Any) -> None:
    """Let a pass know its roots, by identity."""

    class Rooted(ag.engine.Pass):  # type: ignore[misc] # of the private copy
        roots: Any = ()

    walk = ag.engine.walk

    def knowing(run: Any, roots: Any, seeds: Any) -> None:
        run.roots = [id(root) for root in roots]
        walk(run, roots, seeds)

    ag.engine.Pass, ag.engine.walk = Rooted, knowing


@fault(
    "RETAIN_07_slots_are_filled_on_the_way",
    clauses=["RETAIN-07"],
    title="each contribution is added to the slot as it arrives, so a pass that fails leaves parts of a gradient",
)
def slots_are_filled_on_the_way(ag: Any) -> None:
    send = ag.engine.send

    def filling(run: Any, edge: Any, gradient: Any) -> None:
        if not isinstance(edge, ag.tape.AccumulateGrad) or not run.accumulates:
            send(run, edge, gradient)
        elif run.needed is None or edge in run.needed:
            part(ag, "engine").accumulate(edge.variable, gradient, run.create_graph)

    ag.engine.send = filling
