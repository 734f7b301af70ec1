"""The tape: what an operation leaves behind so that its derivative can be taken later.

A `Node` knows its rule by name, points to the nodes of its operands (`edges`) and holds the values its rule needs
(`saved`). It never holds its own output: graphs have no cycles and reference counts free them at once (ENGINE-19).
CPython's deallocator unrolls long chains of nodes by itself, so dropping a deep graph cannot overflow (ENGINE-09).
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import GraphFreedError, ModifiedInPlaceError, NotRequiringGradError

if TYPE_CHECKING:
    from .tensor import Tensor

next_order = itertools.count(-1, -1).__next__  # one counter for all threads: a graph may be built by several

Rule = Callable[[Any, "Node", Any, Sequence[Any]], Sequence[Any]]

VJP: dict[str, Rule] = {}
"""The rule of each operation: `rule(xp, node, g, saved)` gives one gradient, or None, for each edge of the node.

`xp` is the namespace to compute in: `arrays` (g and saved values are ndarrays, nothing is recorded) or `ops` (they are
tensors, and what the rule computes is itself recorded). Looked up at each call.
"""


def vjp(*names: str) -> Callable[[Rule], Rule]:
    """Enters the decorated rule into the table under `names`."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            VJP[name] = rule
        return rule

    return enter


class Watch:
    """The rare things somebody wants to know at a node: kept apart so that other nodes do not pay for them."""

    __slots__ = ("hooks", "retained")

    def __init__(self) -> None:
        self.hooks: dict[int, dict[int, Callable[[Tensor], Any]]] = {}  # by output, then by handle
        self.retained: dict[int, weakref.ref[Tensor]] = {}  # by output; GRADSLOT-18: weak


class Node:
    """One recorded operation.

    Attributes:
        order: the smaller, the later it was recorded; hence smaller than those of its operands. Positive for leaves.
        label: the name of its rule in `VJP`.
        edges: for each operand the node (or `Slot`) that made it, None if it needs no gradient.
        saved: the values the rule needs, in the places of their operands (None: not needed), then outputs and others.
        versions: the versions of the saved values when they were saved; None stands for all zero.
        attrs: what else the rule wants to know (axes, shapes).
        shape, dtype: those of the output, hence of its gradient; a list of shapes where there are several outputs.
        watch: hooks and retained gradients, if any.
    """

    __slots__ = ("__weakref__", "attrs", "dtype", "edges", "label", "order", "saved", "shape", "versions", "watch")

    order: int
    label: str
    edges: tuple[Any, ...]
    saved: tuple[Any, ...]
    versions: tuple[int, ...] | None
    attrs: Any
    shape: Any
    dtype: Any
    watch: Watch | None
    node: Node
    slot = None  # a plain edge points to the only output

    def name(self) -> str:
        """The name torch would print, as far as it has one."""
        return "".join(part.capitalize() for part in self.label.split("_")) + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes of the operands, each with the number of the output that was used."""
        return tuple((None, 0) if e is None else (node_of(e), e.slot or 0) for e in self.edges)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class AccumulateGrad(Node):
    """The node of a leaf: where gradients for it arrive. It holds the leaf; the leaf knows it weakly."""

    __slots__ = ("variable",)

    def __init__(self, leaf: Tensor) -> None:
        self.variable = leaf
        self.order, self.label, self.edges, self.saved = -next_order(), "accumulate_grad", (), ()
        self.versions = self.attrs = self.watch = None
        self.shape, self.dtype = leaf._data.shape, leaf._data.dtype
        if leaf._meta is not None and leaf._meta.grad_dtype is not None:
            self.dtype = leaf._meta.grad_dtype  # GRADSLOT-19

    def name(self) -> str:
        """Torch's name of this node."""
        return "AccumulateGrad"


class Slot:
    """An edge to one output of a node that has several."""

    __slots__ = ("dtype", "node", "shape", "slot")

    def __init__(self, node: Node, slot: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.node, self.slot, self.shape, self.dtype = node, slot, shape, dtype


class GradientEdge(NamedTuple):
    """One output of a node, named without its tensor: a root or an input of a pass (BACKWARD-35)."""

    node: Node
    output_nr: int


class SavedOutput:
    """An output that its own node needs: the array, and the version counter it shares with the output tensor."""

    __slots__ = ("_counter", "_data")

    def __init__(self, data: Any, counter: list[int]) -> None:
        self._data, self._counter = data, counter


class _Freed(tuple[Any, ...]):
    """What takes the place of saved values once a pass has used them."""

    __slots__ = ()


FREED = _Freed((None,))


def node_of(edge: Any) -> Node:
    """The node an edge points to."""
    found: Node = edge if edge.slot is None else edge.node
    return found


first_use = threading.RLock()  # re-entrant: a collection inside may run anything


def leaf_edge(leaf: Tensor) -> AccumulateGrad:
    """The node at which gradients for `leaf` arrive: one, as long as some graph uses it."""
    meta = leaf._meta or leaf._rare()
    known: AccumulateGrad | None = None if meta.accumulator is None else meta.accumulator()
    if known is not None:
        return known
    with first_use:  # ENGINE-03: threads that meet a leaf at once get one node
        known = None if meta.accumulator is None else meta.accumulator()
        if known is None:
            known = AccumulateGrad(leaf)
            meta.accumulator = weakref.ref(known)  # ENGINE-20: the leaf does not keep graphs alive
    return known


def edge_of(tensor: Tensor) -> Any:
    """Where gradients for `tensor` go: its creator, its accumulation node, or None if it needs none."""
    if not tensor._tracked:
        return None
    return tensor._node if tensor._node is not None else leaf_edge(tensor)


def edge_to(place: GradientEdge) -> Any:
    """The internal edge for a public one."""
    node = place.node
    if isinstance(node.shape, list):
        return Slot(node, place.output_nr, node.shape[place.output_nr], node.dtype)
    return node


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where gradients for a tensor arrive: its creator, or the accumulation node of a leaf.

    Raises:
        NotRequiringGradError: if it does not require grad.
    """
    edge = edge_of(tensor)
    if edge is None:
        raise NotRequiringGradError("a tensor that does not require grad has no gradient edge; set requires_grad first")
    return GradientEdge(node_of(edge), edge.slot or 0)


def versions_of(saved: Sequence[Any]) -> tuple[int, ...] | None:
    """The versions to compare with later; None if no saved value has ever been shared or written."""
    for value in saved:
        if value is not None and value._counter is not None:
            return tuple([0 if v is None or v._counter is None else v._counter[0] for v in saved])
    return None


def check_version(node: Node, position: int, value: Any) -> None:
    """Refuses a saved value that was written in place since (INPLACE-04)."""
    expected = 0 if node.versions is None else node.versions[position]
    if value._counter[0] != expected:
        raise ModifiedInPlaceError(
            f"a tensor of shape {value._data.shape} that {node.name()} saved for its derivative is at version "
            f"{value._counter[0]}, expected {expected}: it was modified in place since; "
            "write to a clone of it, or after the backward"
        )


def saved_by(node: Node) -> tuple[Any, ...]:
    """What the node saved, read once: another thread may free it (ENGINE-04)."""
    saved = node.saved
    check_not_freed(node, saved)
    return saved


def check_not_freed(node: Node, saved: tuple[Any, ...]) -> None:
    """Refuses a second pass through a node whose saved values are gone (RETAIN-01)."""
    if saved is FREED:
        raise GraphFreedError(
            f"{node.name()} was passed before and its saved values are freed; "
            "pass retain_graph=True to the first backward, or compute the result again"
        )


def saved_arrays(node: Node) -> list[Any]:
    """The saved values as ndarrays, after the checks."""
    values: list[Any] = []
    for value in saved_by(node):
        if value is None:
            values.append(None)
        else:
            if value._counter is not None:
                check_version(node, len(values), value)
            values.append(value._data)
    return values


def free_saved(node: Node) -> None:
    """Lets go of the saved values of a node that ran; one that saved nothing can run again (RETAIN-02)."""
    if node.saved:
        node.saved = FREED
        node.versions = None
