"""The engine: one pass over the tape, from roots to leaves.

A pass keeps the gradients that have arrived so far, one sum a node, and always runs the node that was recorded last:
whatever used its output was recorded later still and has run before, so its gradient is complete (BACKWARD-31). Leaves
come last, and slots are written when everything has run: a pass that fails leaves every `.grad` as it was.

Gradients are plain ndarrays, computed by the functions of `arrays`. Under `create_graph` they are tensors, computed by
those of `ops`, and thereby recorded. Functions of this module are called through its globals, so that a test may
replace one.
"""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import arrays, quiet
from . import ops as recorded
from .errors import (
    BadArgumentError,
    BadSeedDtypeError,
    BadSeedShapeError,
    BadShapeError,
    BadTypeError,
    EmptyInputsError,
    NothingRequiresGradError,
    NotRealError,
    NotRequiringGradError,
    NotScalarError,
    UnreachableInputError,
    WrongSeedCountError,
)
from .modes import state
from .record import saved_tensors, wrap
from .tape import VJP, AccumulateGrad, GradientEdge, Node, edge_of, edge_to, free_saved, node_of, saved_arrays
from .tensor import Tensor, bump


class Pass:
    """The state of one pass.

    Attributes:
        create_graph: what the pass computes is recorded.
        retain: saved values stay.
        xp: the namespace the rules compute in.
        accumulates: it writes `.grad` slots (backward); else it only captures (grad).
        needed: the nodes that lead to a wanted gradient; None: all.
        sums: for each node that waits to run, the gradient of its output that has arrived, a list if it has several.
        queue: these nodes by their order, a heap: latest first.
        wanted: (node, output) whose gradient is asked for by name; the gradient once it is known.
        arrived: gradients of leaves, with their leaves, to be accumulated at the end.
        retained: the same for non-leaves that retain grad.
    """

    __slots__ = (
        "accumulates",
        "arrived",
        "create_graph",
        "needed",
        "queue",
        "retain",
        "retained",
        "sums",
        "wanted",
        "xp",
    )

    def __init__(self, *, create_graph: bool, retain: bool, accumulates: bool) -> None:
        self.create_graph, self.retain, self.accumulates = create_graph, retain, accumulates
        self.xp: Any = recorded if create_graph else arrays
        self.needed: set[Node] | None = None
        self.sums: dict[Node, Any] = {}
        self.queue: list[tuple[int, Node]] = []
        self.wanted: dict[tuple[Node, int], Any] = {}
        self.arrived: list[tuple[Tensor, Any]] = []
        self.retained: list[tuple[Tensor, Any]] = []


# --- the public calls -----------------------------------------------------------------------------------------------


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of the leaves, or of `inputs`, to their `.grad` (torch.autograd.backward).

    Args:
        tensors: one or several roots; each must require grad.
        grad_tensors: a seed for each root, of its shape; None stands for ones where the root has one real element.
        retain_graph: keep saved values for another pass; by default the value of `create_graph`.
        create_graph: record the pass, so that gradients can be differentiated.
        grad_variables: the old name of `grad_tensors`.
        inputs: the only tensors whose `.grad` changes, leaves or not.

    Raises:
        NothingRequiresGradError: a root does not require grad.
        NotScalarError, NotRealError, BadSeedShapeError, BadSeedDtypeError, BadTypeError, WrongSeedCountError: seeds.
        EmptyInputsError: `inputs` is empty.
        GraphFreedError, ModifiedInPlaceError: a saved value is gone, or is another one now.
    """
    if grad_variables is not None:  # BACKWARD-37
        if grad_tensors is not None:
            raise BadArgumentError("grad_tensors and grad_variables are two names of one argument; pass grad_tensors")
        warnings.warn("grad_variables is called grad_tensors now", FutureWarning, stacklevel=2)
        grad_tensors = grad_variables
    roots = as_tensors(tensors, "tensors")
    targets = None if inputs is None else as_tensors(inputs, "inputs")
    if targets is not None and not targets:
        raise EmptyInputsError("inputs= is empty; leave it out to accumulate into every leaf")  # BACKWARD-19
    edges = [root_edge(each) for each in roots]
    seeds = seeds_of(edges, grad_tensors, create_graph)
    run = Pass(create_graph=create_graph, retain=default_retain(retain_graph, create_graph), accumulates=True)
    if targets is not None:
        restrict(run, targets)
    walk(run, edges, seeds)
    if targets is not None:
        capture_inputs(run, targets)
    write_slots(run)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of `inputs`, and no slot is touched (torch.autograd.grad).

    Returns:
        A tuple with a gradient for each input, or a dict for a dict (GRAD-10); None for an unused one if allowed.

    Raises:
        UnreachableInputError: an input is not used, and neither `allow_unused` nor `materialize_grads` is given.
        BadArgumentError: contradicting arguments.
        Others as `backward`.
    """
    if not only_inputs:
        warnings.warn("only_inputs=False has no effect; call backward to accumulate", FutureWarning, stacklevel=2)
    if is_grads_batched:
        raise BadArgumentError("is_grads_batched=True is not offered by refgrad; call grad for each seed")
    if materialize_grads and allow_unused is False:  # GRAD-05
        raise BadArgumentError("materialize_grads=True needs unused inputs to be allowed; leave allow_unused out")
    roots = as_tensors(outputs, "outputs")
    targets = as_tensors(inputs, "inputs")
    if not targets:
        raise EmptyInputsError("grad() got no inputs; name at least one tensor")  # GRAD-08
    edges = [root_edge(each) for each in roots]
    seeds = seeds_of(edges, grad_outputs, create_graph)
    run = Pass(create_graph=create_graph, retain=default_retain(retain_graph, create_graph), accumulates=False)
    restrict(run, targets)
    walk(run, edges, seeds)
    found = [captured(run, each) for each in targets]
    if not (allow_unused or materialize_grads):
        check_reached(targets, found)
    if materialize_grads:
        found = [zeros_for(t, create_graph) if g is None else g for t, g in zip(targets, found, strict=True)]
    return dict(zip(inputs, found, strict=True)) if isinstance(inputs, Mapping) else tuple(found)


# --- arguments ------------------------------------------------------------------------------------------------------


def as_tensors(given: Any, name: str) -> list[Any]:
    """The tensors (or gradient edges) of an argument that takes one or several."""
    if isinstance(given, Tensor | GradientEdge):
        return [given]
    if isinstance(given, dict):
        given = given.values()  # BACKWARD-22
    elif isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise BadTypeError(f"{name} takes a tensor or a sequence of tensors, not {type(given).__name__}")
    found = list(given)
    for each in found:
        if not isinstance(each, Tensor | GradientEdge):
            raise BadTypeError(f"{name} takes tensors, but holds a {type(each).__name__}")
    return found


def default_retain(retain_graph: bool | None, create_graph: bool) -> bool:
    """Saved values stay when asked for, and by default when the pass is recorded (RETAIN-04, RETAIN-05)."""
    return create_graph if retain_graph is None else bool(retain_graph)


def root_edge(root: Any) -> Any:
    """Where a pass begins."""
    if isinstance(root, GradientEdge):
        return edge_to(root)
    check_root(root)
    return edge_of(root)


def check_root(root: Tensor) -> None:
    """Refuses a root from which nothing can be differentiated (BACKWARD-12, BACKWARD-15, GRAD-20)."""
    if not root._tracked:
        raise NothingRequiresGradError(
            "a root of the pass does not require grad: nothing was recorded for it; "
            "set requires_grad on the leaves before computing it"
        )


def seeds_of(edges: Sequence[Any], given: Any, create_graph: bool) -> list[Any]:
    """A seed for each root: ndarrays, or tensors under `create_graph`."""
    if given is None:
        listed: list[Any] = [None] * len(edges)
    elif isinstance(given, Tensor):
        listed = [given]
    elif isinstance(given, Sequence):
        listed = list(given)
    else:
        raise BadTypeError(f"a seed is a tensor or None, not {type(given).__name__}")  # BACKWARD-10
    if len(listed) != len(edges):  # BACKWARD-16, surplus ones included
        raise WrongSeedCountError(f"{len(edges)} roots need as many seeds, {len(listed)} are given")
    made = [seed_of(edge, seed) for edge, seed in zip(edges, listed, strict=True)]
    return made if create_graph else [seed._data for seed in made]


def seed_of(edge: Any, seed: Any) -> Tensor:
    """The given seed after its checks, or the implicit one."""
    if seed is None:
        return implicit_seed(edge)
    if not isinstance(seed, Tensor):  # BACKWARD-10
        raise BadTypeError(f"a seed is a tensor or None, not {type(seed).__name__}")
    check_seed(edge, seed)
    fitting: Tensor = fit(recorded, seed, edge)  # BACKWARD-08
    return fitting


def implicit_seed(edge: Any) -> Tensor:
    """Ones, for a root of one real element (BACKWARD-01 to -05, BACKWARD-38)."""
    if math.prod(edge.shape) != 1:
        raise NotScalarError(
            f"a seed can be left out for a root of one element only, this one has shape {edge.shape}; "
            "pass gradient= (or grad_outputs=) of that shape"
        )
    if edge.dtype.kind == "c":
        raise NotRealError("a seed can be left out for a real root only, this one is complex; pass gradient=")
    return wrap(np.ones(edge.shape, edge.dtype))


def check_seed(edge: Any, seed: Tensor) -> None:
    """Refuses a seed of another shape (BACKWARD-07) or on the other side of real and complex (BACKWARD-09)."""
    if seed.shape != edge.shape:
        raise BadSeedShapeError(f"a seed has shape {seed.shape}, its root {edge.shape}; they must be equal")
    if seed.is_complex() != (edge.dtype.kind == "c"):
        raise BadSeedDtypeError(f"a {seed.dtype} seed does not fit a {edge.dtype} root; convert it")


# --- what is wanted -------------------------------------------------------------------------------------------------


def restrict(run: Pass, targets: Sequence[Any]) -> None:
    """Makes a pass compute the gradients of `targets` and no others (BACKWARD-18, GRAD-12)."""
    for each in targets:
        if isinstance(each, Tensor) and not each._tracked:  # GRAD-07
            raise NotRequiringGradError(
                "an input does not require grad, so it has no gradient; set requires_grad first"
            )
        run.wanted[place_of(each)] = None
    run.needed = set()


def place_of(target: Any) -> tuple[Node, int]:
    """The node that made a tensor and the number of the output, for leaves the accumulation node."""
    if isinstance(target, GradientEdge):
        return target.node, target.output_nr
    edge = edge_of(target)
    return node_of(edge), edge.slot or 0


def discover(run: Pass, roots: Sequence[Node]) -> None:
    """Finds the nodes between the roots and what is wanted, without recursion (GRAD-18)."""
    needed = run.needed
    assert needed is not None
    needed.update(node for node, _ in run.wanted)
    seen: set[Node] = set()
    stack = [(node, False) for node in roots]
    while stack:
        node, finished = stack.pop()
        below = [node_of(edge) for edge in node.edges if edge is not None]
        if finished:
            if any(each in needed for each in below):
                needed.add(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((each, False) for each in below if each not in seen)


# --- the walk -------------------------------------------------------------------------------------------------------


def walk(run: Pass, edges: Sequence[Any], seeds: Sequence[Any]) -> None:
    """Runs every needed node once, latest first."""
    if run.needed is not None:
        discover(run, [node_of(edge) for edge in edges])
    mode, state.recording = state.recording, run.create_graph  # BACKWARD-33, ENGINE-21
    token = quiet.hush()
    try:
        for edge, seed in zip(edges, seeds, strict=True):
            send(run, edge, seed)  # BACKWARD-13, -14, -43: seeds add to what arrives from other roots
        while run.queue:
            node = next_node(run)
            gradient = run.sums.pop(node)
            if node.watch is not None or node.order > 0 or run.wanted:
                gradient = observe(run, node, gradient)
                if node.order > 0 or not leads_on(run, node):
                    continue
            pass_on(run, node, run_node(run, node, gradient))
            if not run.retain:
                free_saved(node)  # RETAIN-01, RETAIN-09: of executed nodes only
    finally:
        quiet.restore(token)
        state.recording = mode


def next_node(run: Pass) -> Node:
    """The waiting node that was recorded last."""
    return heapq.heappop(run.queue)[1]


def run_node(run: Pass, node: Node, gradient: Any) -> Sequence[Any]:
    """The gradients of the operands of a node."""
    if not node.saved:
        return VJP[node.label](run.xp, node, gradient, ())
    saved = saved_tensors(node) if run.create_graph else saved_arrays(node)
    return VJP[node.label](run.xp, node, gradient, saved)


def pass_on(run: Pass, node: Node, gradients: Sequence[Any]) -> None:
    """Sends each operand its gradient."""
    for edge, gradient in zip(node.edges, gradients, strict=True):
        if edge is not None and gradient is not None:
            if gradient.shape == edge.shape and gradient.dtype is edge.dtype:
                send(run, edge, gradient)
            else:
                send(run, edge, fit(run.xp, gradient, edge))


def fit(xp: Any, gradient: Any, edge: Any) -> Any:
    """A gradient in the shape (VALUE-41) and dtype (VALUE-42, VALUE-50) of its tensor."""
    if gradient.shape != edge.shape:
        gradient = xp.sum_to(gradient, edge.shape)
    return gradient if gradient.dtype == edge.dtype or keeps_dtype(gradient, edge) else xp.cast(gradient, edge.dtype)


def keeps_dtype(gradient: Any, edge: Any) -> bool:
    """Whether an edge leads to a leaf that takes gradients of any dtype (GRADSLOT-23), if only real to real."""
    if not isinstance(edge, AccumulateGrad) or not edge.variable._rare().any_dtype:
        return False
    return bool(gradient.dtype.kind == edge.dtype.kind)


def send(run: Pass, edge: Any, gradient: Any) -> None:
    """Adds a contribution to the gradient of one output of a node, and queues the node."""
    sums, slot = run.sums, edge.slot
    node = edge if slot is None else edge.node
    if run.needed is not None and node not in run.needed:
        return
    if slot is not None:  # BACKWARD-48: outputs that nobody used stay None
        if node not in sums:
            sums[node] = [None] * len(node.shape)
            enqueue(run, node)
        known = sums[node][slot]
        sums[node][slot] = gradient if known is None else sum_contributions(known, gradient)
    elif node in sums:
        sums[node] = sum_contributions(sums[node], gradient)
    else:
        sums[node] = gradient
        enqueue(run, node)


def enqueue(run: Pass, node: Node) -> None:
    """Lets a node wait for its turn."""
    heapq.heappush(run.queue, (node.order, node))


def sum_contributions(known: Any, gradient: Any) -> Any:
    """The sum of two contributions, in new memory: either may be in use elsewhere (BACKWARD-29, BACKWARD-44)."""
    return known + gradient


def leads_on(run: Pass, node: Node) -> bool:
    """Whether what is wanted lies behind the node too."""
    if run.needed is None:
        return True
    return any(edge is not None and node_of(edge) in run.needed for edge in node.edges)


# --- what is to be seen of gradients --------------------------------------------------------------------------------


def observe(run: Pass, node: Node, gradient: Any) -> Any:
    """Runs the hooks of a complete gradient and keeps it where it is wanted; returns what the hooks made of it."""
    if isinstance(node, AccumulateGrad):
        meta = node.variable._meta
        if meta is not None and meta.hooks:
            gradient = run_hooks(run, meta.hooks, gradient)
        if run.accumulates:
            run.arrived.append((node.variable, gradient))
        elif (node, 0) in run.wanted:
            run.wanted[node, 0] = gradient
        return gradient
    several = isinstance(gradient, list)
    parts = gradient if several else [gradient]
    for number, part in enumerate(parts):
        if part is not None:  # THOOK-16
            parts[number] = observe_output(run, node, number, part)
    return parts if several else parts[0]


def observe_output(run: Pass, node: Node, number: int, gradient: Any) -> Any:
    """`observe` for one output of a node that is no leaf."""
    if node.watch is not None:
        hooks = node.watch.hooks.get(number)
        if hooks:
            gradient = run_hooks(run, hooks, gradient)
        fill_retained(run, node, number, gradient)  # THOOK-21: after the hooks
    if (node, number) in run.wanted:
        run.wanted[node, number] = gradient
    return gradient


def fill_retained(run: Pass, node: Node, number: int, gradient: Any) -> None:
    """Notes a gradient for a tensor that retains it and still lives (GRADSLOT-09, -18); `grad` fills none (GRAD-02)."""
    keeper = None if node.watch is None else node.watch.retained.get(number)
    tensor = None if keeper is None else keeper()
    if tensor is not None and tensor.retains_grad and run.accumulates and (node, number) not in run.wanted:
        run.retained.append((tensor, gradient))


def run_hooks(run: Pass, hooks: dict[int, Any], gradient: Any) -> Any:
    """Shows a gradient to the hooks in the order of registration; each may replace it (THOOK-08, THOOK-09)."""
    shown = gradient if run.create_graph else wrap(arrays.own(gradient, gradient))  # a copy: seeds stay what they are
    for hook in list(hooks.values()):  # THOOK-14: a hook may remove itself
        answer = hook(shown)
        if answer is None:
            continue
        if not isinstance(answer, Tensor):  # THOOK-11
            raise BadTypeError(f"a hook returns a tensor or None, not {type(answer).__name__}")
        check_replacement(shown, answer)
        shown = answer
    return shown if run.create_graph else shown._data


def check_replacement(old: Tensor, new: Tensor) -> None:
    """Refuses a gradient from a hook that has another shape or dtype (THOOK-12)."""
    if new.shape != old.shape:
        raise BadShapeError(f"a hook returned shape {new.shape} for a gradient of shape {old.shape}")
    if new.dtype != old.dtype:
        raise BadTypeError(f"a hook returned {new.dtype} for a {old.dtype} gradient")


# --- slots ----------------------------------------------------------------------------------------------------------


def accumulate(tensor: Tensor, gradient: Any, create_graph: bool) -> None:
    """Adds a gradient to the `.grad` of its tensor (BACKWARD-11)."""
    if not receives(tensor):
        return
    meta = tensor._rare()
    if meta.grad is None:
        meta.grad = first_grad(tensor, gradient, create_graph)
    elif create_graph:
        meta.grad = recorded_sum(meta.grad, gradient)
    elif not takes_sum(meta.grad._data, gradient):
        meta.grad = first_grad(tensor, meta.grad._data + gradient, create_graph)
    else:
        add_in_place(meta.grad, gradient)


def takes_sum(old: Any, gradient: Any) -> bool:
    """Whether the sum can be written to the memory of the old gradient.

    Not where an expanded tensor was assigned, one place for many elements, nor integers (GRADSLOT-23).
    """
    return old.flags.writeable and (old.dtype is gradient.dtype or np.can_cast(gradient.dtype, old.dtype, "same_kind"))


def receives(tensor: Tensor) -> bool:
    """Whether a tensor still wants gradients: its flag may have been cleared after the forward (GRADSLOT-14)."""
    return tensor._tracked


def first_grad(tensor: Tensor, gradient: Any, create_graph: bool) -> Tensor:
    """A gradient in memory of its own (BACKWARD-32, -44, -49), laid out like its tensor (BACKWARD-24)."""
    if create_graph:
        return recorded.own(gradient, tensor._data)
    return wrap(arrays.own(gradient, tensor._data))


def recorded_sum(old: Tensor, gradient: Any) -> Tensor:
    """Old and new gradient in a new tensor, recorded; the old one keeps its value (BACKWARD-26)."""
    return recorded.add(old, gradient)


def add_in_place(old: Tensor, gradient: Any) -> None:
    """Adds to the very memory of the old gradient (BACKWARD-25)."""
    np.add(old._data, gradient, out=old._data, casting="same_kind")
    bump(old)


def capture_inputs(run: Pass, targets: Sequence[Any]) -> None:
    """Non-leaves that `inputs=` names get their gradient as well, once each (BACKWARD-20, -21, -23)."""
    for tensor in {id(each): each for each in targets}.values():
        filled = isinstance(tensor, GradientEdge) or tensor._node is None
        gradient = None if filled else run.wanted[place_of(tensor)]
        if gradient is not None:
            run.retained.append((tensor, gradient))


def write_slots(run: Pass) -> None:
    """Accumulates all that the pass has found; nothing before this has touched a slot."""
    mode, state.recording = state.recording, run.create_graph
    token = quiet.hush()
    try:
        for leaf, gradient in run.arrived:
            if leaf._node is None:  # GRADSLOT-16: it may have become a non-leaf by a write
                accumulate(leaf, gradient, run.create_graph)
        for tensor, gradient in run.retained:
            accumulate(tensor, gradient, run.create_graph)
    finally:
        quiet.restore(token)
        state.recording = mode


def captured(run: Pass, target: Any) -> Tensor | None:
    """What `grad` answers for one input: a tensor of its own memory."""
    gradient = run.wanted[place_of(target)]
    if gradient is None:
        return None
    like = target._data if isinstance(target, Tensor) else np.asarray(gradient)
    return gradient if run.create_graph else wrap(arrays.own(gradient, like))


def check_reached(targets: Sequence[Any], found: Sequence[Any]) -> None:
    """Refuses an answer with gaps (GRAD-03)."""
    for number, (target, gradient) in enumerate(zip(targets, found, strict=True)):
        if gradient is None:
            raise UnreachableInputError(
                f"input {number} of shape {shape_of(target)} was not used to compute the outputs; "
                "pass allow_unused=True to get None for it, or materialize_grads=True for zeros"
            )


def shape_of(target: Any) -> Any:
    """The shape of a tensor or of what a gradient edge points to."""
    return target.shape if isinstance(target, Tensor) else edge_to(target).shape


def zeros_for(target: Any, create_graph: bool) -> Tensor:
    """The gradient of an unused input; it can be differentiated if the pass was recorded (GRAD-04)."""
    made = wrap(np.zeros(shape_of(target), target.dtype if isinstance(target, Tensor) else edge_to(target).dtype))
    made._tracked = create_graph
    return made
