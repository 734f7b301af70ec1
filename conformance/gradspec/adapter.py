"""The contract between the suite and an implementation: one flat class, every observable act is a method.

An adapter translates acts into an implementation's own calls. It takes and returns that implementation's native
objects; the suite sees them only as opaque handles (`session.py`). Tests, recorded traces, behaviours, faults and
other processes all speak this one vocabulary, so nothing else about an implementation has to be known anywhere.

An adapter maps conventions (an inverted flag, another keyword name). It never builds a tape, a hook mechanism or a
check of its own in order to pass: what an implementation does not offer is not declared.

This module imports the standard library only, so that one small server module can hold it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from gradspec.behaviour import Behaviour, BehaviourCallable, Late, Ref

Native = Any
"""An object of the implementation: a tensor, a hook's handle, a module. The suite never looks inside."""

F = TypeVar("F", bound=Callable[..., Any])


class Unsupported(Exception):
    """Raised by an adapter for what its implementation does not offer; the text names the missing thing."""


class Gone(BaseException):
    """The process that the implementation lives in has ended: no error of the implementation, which cannot catch it.

    Attributes:
        verdict: "crashed" or "timed_out".
        reason: what is known of it, in a sentence.
    """

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason


class BehaviourError(Exception):
    """The exception that a behaviour raises on purpose; a clause may ask that it comes out as itself."""


@dataclass(frozen=True)
class Value:
    """What a tensor holds, as plain data.

    Attributes:
        shape: the sizes of its axes.
        dtype: the name of its element type, such as "float64".
        data: nested lists in row-major order, a bare number for rank 0; Python complex numbers for complex types.
    """

    shape: tuple[int, ...]
    dtype: str
    data: Any


@dataclass(frozen=True)
class ActInfo:
    """What the session must know of one act: the kind of its result and its keyword defaults."""

    name: str
    returns: str
    defaults: Mapping[str, Any]


ACTS: dict[str, ActInfo] = {}
"""Every act of the contract by name."""

LEGACY = frozenset({"backward_many.grad_variables", "gradients.only_inputs"})
"""Keywords that torch keeps for old callers."""

OPTIONAL = LEGACY | frozenset(
    {
        "backward.retain_graph",
        "backward.create_graph",
        "backward.inputs",
        "backward_many.retain_graph",
        "backward_many.create_graph",
        "backward_many.inputs",
        "gradients.retain_graph",
        "gradients.create_graph",
        "gradients.allow_unused",
        "gradients.materialize",
    }
)
"""Keywords that an implementation may lack; it declares those it takes."""


def act(returns: str) -> Callable[[F], F]:
    """Mark a method as an act of the contract.

    Args:
        returns: the kind of its result: "tensor", "tensor?" (or None), "tensors" (one or a tuple of them),
            "handle" (any other native object), "context" (a context manager), "data", "value", "bool", "int",
            "ints", "str" or "none".
    """

    def mark(method: F) -> F:
        defaults = dict(method.__kwdefaults__ or {})
        ACTS[method.__name__] = ActInfo(method.__name__, returns, defaults)
        return method

    return mark


class Adapter:
    """Every act that a test can perform or observe.

    A subclass implements what its implementation offers and declares it in the class attributes. Operands are native
    objects; `dtype` is a name such as "float64"; shapes are tuples of ints. An act that fails raises whatever the
    implementation raises: `error_kinds` says which kinds of error that may stand for.

    Attributes:
        name: the name in reports.
        features: names from `spec/features.toml` that the implementation offers.
        operations: names of the operation table that it offers.
        keywords: keywords of acts that it takes, as "backward.inputs"; one that is not declared is never passed.
        max_rank: the highest rank of a tensor; 0 for scalar engines.
        dtypes: names of the element types that it offers.
        devices: names of the devices that it offers.
        distribution: the name of the distribution that installs it, for the record's version.
    """

    name: ClassVar[str] = ""
    features: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    max_rank: int = 0
    dtypes: tuple[str, ...] = ("float64",)
    devices: tuple[str, ...] = ("cpu",)
    distribution: str = ""

    def __init__(self) -> None:
        self.lookup: Callable[[str], Native] = _nothing_is_named
        """From the name of a handle to its native object; the session sets it. Serves `Late`."""

    # -- life of an example ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin an example: forget recorded events and put the implementation's global modes back to their defaults."""
        self._events.clear()

    def named(self, name: str, native: Native) -> None:
        """The suite calls `native` by this name: told of each new handle.

        An adapter in this process has no use of it: `lookup` finds what it needs.
        """

    def version(self) -> str:
        """The version of the implementation, as installed."""
        return ""

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        """The kinds of error that a native exception may stand for: by type, by its text where that tells more."""
        return frozenset({"behaviour_error"}) if isinstance(error, BehaviourError) else frozenset()

    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        """The kinds of warning that a native warning may stand for."""
        del warning
        return frozenset()

    # -- values ------------------------------------------------------------------------------------------------------

    @act("tensor")
    def tensor(
        self, data: Any, *, shape: tuple[int, ...] = (), dtype: str = "float64", requires_grad: bool = False
    ) -> Native:
        """Make a leaf from nested lists in row-major order (a bare number for rank 0) of the given shape.

        `shape` is given too, since nested lists cannot tell (0, 3) from (0,). `data` may hold bools, ints, floats or
        complex numbers, as `dtype` says.
        """
        raise self.missing("tensor")

    @act("value")
    def value(self, x: Native) -> Value:
        """Shape, dtype and elements of a tensor, read without changing anything."""
        raise self.missing("value")

    @act("ints")
    def shape(self, x: Native) -> tuple[int, ...]:
        """The sizes of the axes of `x`."""
        return self.value(x).shape

    @act("str")
    def dtype(self, x: Native) -> str:
        """The name of the element type of `x`."""
        return self.value(x).dtype

    @act("ints")
    def strides(self, x: Native) -> tuple[int, ...]:
        """Steps in elements from one entry to the next along each axis (feature `layout`)."""
        raise self.missing("strides")

    @act("tensors")
    def apply(self, op: str, *operands: Native, **attributes: Any) -> Native:
        """Perform an operation of the table and record it; an operation with several results returns a tuple.

        Operands are tensors or plain numbers. Attributes are those of `programs/operations.py`.
        """
        raise self.missing("apply")

    @act("tensor")
    def apply_(self, op: str, x: Native, *operands: Native, **attributes: Any) -> Native:
        """Perform an operation in place on `x` and return it (feature `inplace`). Also `copy`, `fill`, `zero`."""
        raise self.missing("apply_")

    @act("bool")
    def same(self, a: Native, b: Native) -> bool:
        """Whether the two handles stand for one object (feature `layout`)."""
        return a is b

    @act("bool")
    def shares_storage(self, a: Native, b: Native) -> bool:
        """Whether the two tensors use the same memory (feature `aliasing`)."""
        raise self.missing("shares_storage")

    @act("handle")
    def watch(self, x: Native) -> Native:
        """A watch on `x` that does not keep it alive (feature `liveness`)."""
        raise self.missing("watch")

    @act("bool")
    def alive(self, watch: Native) -> bool:
        """Whether the object that `watch` was made for still exists, after collection of garbage."""
        raise self.missing("alive")

    # -- flags -------------------------------------------------------------------------------------------------------

    @act("bool")
    def requires_grad(self, x: Native) -> bool:
        """Whether gradients are computed for `x`."""
        raise self.missing("requires_grad")

    @act("none")
    def set_requires_grad(self, x: Native, flag: bool) -> None:
        """Set the flag of a leaf."""
        raise self.missing("set_requires_grad")

    @act("bool")
    def is_leaf(self, x: Native) -> bool:
        """Whether `x` was not made by a recorded operation."""
        raise self.missing("is_leaf")

    @act("tensor")
    def detach(self, x: Native) -> Native:
        """A tensor with the values of `x` that no history leads to."""
        raise self.missing("detach")

    @act("int")
    def version_of(self, x: Native) -> int:
        """The version counter of `x`: how many in-place writes its memory has seen (feature `inplace`)."""
        raise self.missing("version_of")

    # -- gradients ---------------------------------------------------------------------------------------------------

    @act("tensor?")
    def grad(self, x: Native) -> Native | None:
        """What the slot `.grad` of `x` holds: a tensor (not a bare number) or None."""
        raise self.missing("grad")

    @act("none")
    def set_grad(self, x: Native, value: Any) -> None:
        """Assign to the slot `.grad` of `x` (feature `grad.assign`): a tensor, None, or something that is refused."""
        raise self.missing("set_grad")

    @act("none")
    def retain_grad(self, x: Native) -> None:
        """Ask that backward fills the slot of a non-leaf (feature `retain_grad`)."""
        raise self.missing("retain_grad")

    @act("bool")
    def retains_grad(self, x: Native) -> bool:
        """Whether `x` is a non-leaf for which `retain_grad` was asked."""
        raise self.missing("retains_grad")

    @act("str")
    def grad_dtype(self, x: Native) -> str:
        """The dtype that the slot of a leaf must have, "none" where the rule was lifted (feature `grad_dtype`)."""
        raise self.missing("grad_dtype")

    @act("none")
    def set_grad_dtype(self, x: Native, dtype: str) -> None:
        """Set the dtype that the slot of a leaf must have; "none" lifts the rule (feature `grad_dtype`)."""
        raise self.missing("set_grad_dtype")

    # -- engine ------------------------------------------------------------------------------------------------------

    @act("none")
    def backward(
        self,
        root: Native,
        gradient: Any = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Native] | None = None,
    ) -> None:
        """One backward pass from `root`: adds to the slots of the leaves, or of `inputs` only.

        Args:
            root: the tensor to differentiate.
            gradient: the seed, a tensor of the root's shape; None for the implicit seed of a one-element root. Given
                only where the feature `seed` is declared.
            retain_graph: keep what was saved for a further pass; None means the value of create_graph.
            create_graph: record the pass itself (feature `higher`).
            inputs: the tensors to accumulate into (keyword `backward.inputs`).
        """
        raise self.missing("backward")

    @act("none")
    def backward_many(
        self,
        roots: Sequence[Native],
        gradients: Sequence[Any] | None = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Native] | None = None,
        grad_variables: Sequence[Any] | None = None,
    ) -> None:
        """One pass from several roots, each with its seed or None (feature `backward.many`).

        A root is a tensor or what `gradient_edge` returned. `grad_variables` is an old name of `gradients` (keyword
        `backward_many.grad_variables`).
        """
        raise self.missing("backward_many")

    @act("tensors")
    def gradients(
        self,
        outputs: Sequence[Native],
        inputs: Sequence[Native],
        grad_outputs: Sequence[Any] | None = None,
        *,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        allow_unused: bool = False,
        materialize: bool = False,
        only_inputs: bool = True,
    ) -> tuple[Native | None, ...]:
        """The gradients of `outputs` for `inputs`, returned and not accumulated (feature `grad`).

        `only_inputs=False` is an old way to ask for accumulation as well (keyword `gradients.only_inputs`).

        Returns:
            One tensor for each input, None for one that is not reached where `allow_unused` permits it.
        """
        raise self.missing("gradients")

    @act("handle")
    def gradient_edge(self, x: Native) -> Native:
        """The edge at which the gradient of `x` arrives: a root or an input without its tensor (`gradient_edges`)."""
        raise self.missing("gradient_edge")

    @act("tensors")
    def vjp(self, program: Any, inputs: Sequence[Native], seeds: Sequence[Any]) -> tuple[Native | None, ...]:
        """Run a program on `inputs` and pull `seeds` (one for each root, or None) back to the tracked inputs.

        Built from `apply` and backward here; transform-style libraries override it.
        """
        values = list(inputs)
        for step in program.steps:
            result = self.apply(step.op, *(values[o] for o in step.operands), **step.keywords)
            values.extend(result if isinstance(result, tuple) else (result,))
        roots = [values[root.value] for root in program.roots]
        if len(roots) == 1:
            self.backward(roots[0], seeds[0])
        else:
            self.backward_many(roots, seeds)
        return tuple(self.grad(inputs[n]) for n in program.leaves)

    # -- modes -------------------------------------------------------------------------------------------------------

    @act("context")
    def no_grad(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which nothing is recorded (feature `no_grad`)."""
        raise self.missing("no_grad")

    @act("context")
    def enable_grad(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which operations are recorded (feature `no_grad`)."""
        raise self.missing("enable_grad")

    @act("bool")
    def is_grad_enabled(self) -> bool:
        """Whether operations are recorded now."""
        raise self.missing("is_grad_enabled")

    @act("context")
    def inference_mode(self) -> contextlib.AbstractContextManager[Any]:
        """A context whose results can never take part in recording (feature `inference_mode`)."""
        raise self.missing("inference_mode")

    # -- tensor hooks ------------------------------------------------------------------------------------------------

    @act("handle")
    def register_hook(self, x: Native, hook: Behaviour) -> Native:
        """Call `hook(gradient)` when the gradient of `x` is complete; a tensor it returns replaces the gradient."""
        raise self.missing("register_hook")

    @act("none")
    def remove(self, handle: Native) -> None:
        """Remove the hook that `handle` was returned for."""
        raise self.missing("remove")

    # -- what behaviours do besides ----------------------------------------------------------------------------------

    @act("none")
    def record(self, label: str, *items: Any) -> None:
        """Write down an event: a label and the values of `items`, read later by `events`."""
        self._events.append((label, *(self._observed(item) for item in items)))

    @act("none")
    def raise_(self, text: str) -> None:
        """Raise BehaviourError with this text."""
        raise BehaviourError(text)

    @act("data")
    def events(self) -> tuple[Any, ...]:
        """The events recorded since the start of the example, in order, and forget them."""
        events = tuple(self._events)
        self._events.clear()
        return events

    @property
    def _events(self) -> list[Any]:
        # not per thread: an implementation may call hooks from a thread of its own
        events: list[Any] | None = self.__dict__.get("_event_list")
        if events is None:
            events = self.__dict__["_event_list"] = []
        return events

    def _observed(self, item: Any) -> Any:
        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        if isinstance(item, tuple | list):
            return tuple(self._observed(i) for i in item)
        return self.value(item)

    # -- groups whose chapters come later: names and meaning may still change -----------------------------------------

    @act("handle")
    def grad_fn(self, x: Native) -> Native:
        """The node that made `x` (chapter GRAPH)."""
        raise self.missing("grad_fn")

    @act("str")
    def node_name(self, node: Native) -> str:
        """The name of a node (chapter GRAPH)."""
        raise self.missing("node_name")

    @act("handle")
    def next_nodes(self, node: Native) -> Native:
        """The nodes that a node passes gradients to (chapter GRAPH)."""
        raise self.missing("next_nodes")

    @act("context")
    def saved_tensors_hooks(self, pack: Behaviour, unpack: Behaviour) -> contextlib.AbstractContextManager[Any]:
        """A context in which saved tensors go through `pack` and `unpack` (chapter SAVED)."""
        raise self.missing("saved_tensors_hooks")

    @act("handle")
    def custom_function(self, forward: Behaviour, backward: Behaviour) -> Native:
        """A function with a derivative of its own (chapter CUSTOM)."""
        raise self.missing("custom_function")

    @act("handle")
    def module_class(
        self,
        name: str,
        *,
        base: Native | None = None,
        init: Behaviour | None = None,
        forward: Behaviour | None = None,
        methods: Mapping[str, Behaviour] | None = None,
        properties: Mapping[str, Behaviour] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Native:
        """A class of modules (chapter REG)."""
        raise self.missing("module_class")

    @act("handle")
    def new(self, cls: Native, *arguments: Any, **keywords: Any) -> Native:
        """An instance of a class of modules (chapter REG)."""
        raise self.missing("new")

    @act("handle")
    def module_hook(self, module: Native, kind: str, hook: Behaviour, *, prepend: bool = False) -> Native:
        """Register a hook of a module (chapter MHOOK)."""
        raise self.missing("module_hook")

    @act("handle")
    def state_dict(self, module: Native) -> Native:
        """The state of a module (chapter STATE)."""
        raise self.missing("state_dict")

    @act("handle")
    def optimizer(self, kind: str, parameters: Sequence[Native], **options: Any) -> Native:
        """An optimizer over parameters (chapter OPTIM)."""
        raise self.missing("optimizer")

    @act("handle")
    def training_loop(self, module: Native, hooks: Mapping[str, Behaviour]) -> Native:
        """A loop that calls named hooks (chapter TRAIN)."""
        raise self.missing("training_loop")

    # -- helpers for subclasses --------------------------------------------------------------------------------------

    def missing(self, what: str) -> Unsupported:
        """The exception to raise for something that the implementation does not offer."""
        return Unsupported(f"{what} is not offered")

    def native_operation(self, op: str) -> Callable[..., Native]:
        """The implementation's own callable for an operation, for benchmarks: called as `apply` without the name.

        A subclass overrides it where `apply` does more than one call of the implementation.
        """
        return functools.partial(self.apply, op)

    def callable(self, behaviour: Behaviour) -> BehaviourCallable:
        """A native callable that interprets `behaviour`: the one place where behaviours become code."""
        return BehaviourCallable(self, behaviour)

    def interpret(self, behaviour: Behaviour, arguments: Sequence[Native]) -> Native:
        """Perform the acts of a behaviour on native arguments and return its result."""
        if len(arguments) != len(behaviour.parameters):
            raise TypeError(f"{behaviour.name} was called with {len(arguments)} arguments, not {behaviour.parameters}")
        names: dict[str, Native] = dict(zip(behaviour.parameters, arguments, strict=True))
        resolve = functools.partial(self._resolve, names)
        for step in behaviour.acts:
            if step.method not in ACTS:
                raise TypeError(f"{behaviour.name}: {step.method!r} is no act of the contract")
            keywords = {key: resolve(value) for key, value in step.keywords}
            result = getattr(self, step.method)(*map(resolve, step.arguments), **keywords)
            if isinstance(step.result, tuple):
                names.update(zip(step.result, result, strict=True))
            elif step.result is not None:
                names[step.result] = result
        return resolve(behaviour.result)

    def _resolve(self, names: Mapping[str, Native], item: Any) -> Native:
        if isinstance(item, Ref):
            return names[item.name] if item.name in names else self.lookup(item.name)
        if isinstance(item, Late):
            return self.lookup(item.name)
        if isinstance(item, Behaviour):
            return self.callable(item)
        if isinstance(item, tuple):
            return tuple(self._resolve(names, part) for part in item)
        return item


def _nothing_is_named(name: str) -> Native:
    raise KeyError(f"no handle is called {name!r}")
