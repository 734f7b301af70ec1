"""What a test holds: the contract over opaque handles, with every act written down.

The session wraps an adapter. Tests call the acts on it; it unwraps handles, drops keywords that equal their default,
turns whatever an implementation raises into `NativeError` at once (kinds, type and text, no traceback that would keep
objects alive), checks that results are what the contract says, and writes every act into a trace by names only, so that
recording never keeps an object alive.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradspec.adapter import ACTS, OPTIONAL, ActInfo, Adapter, Gone, Native, Unsupported
from gradspec.behaviour import Act, Behaviour, Late, Ref
from gradspec.judge import Judge
from gradspec.messages import raised, reduced
from gradspec.results import fault_of
from gradspec.wire import bounded, encode, encode_act


class NativeError(Exception):
    """An exception of the implementation, reduced to data at the act that raised it.

    Attributes:
        act: the name of the act. step: its place in the trace, from 1.
        kinds: the kinds of error that it may stand for. type: the name of its type. text: its message, bounded.
    """

    def __init__(self, act: str, step: int, kinds: frozenset[str], type_name: str, text: str) -> None:
        self.act, self.step, self.kinds, self.type, self.text = act, step, kinds, type_name, text
        super().__init__(f"{act} (act {step}) raised {type_name}: {text}")


class Misuse(Exception):
    """A test used the session wrongly: a released handle, an unknown name."""


class Handle:
    """Stands for a native object in a test. Only the session looks inside.

    `handle_name` is unique in an example and what the trace says; `label` is what messages say, by default the same.
    """

    __slots__ = ("__weakref__", "handle_name", "label", "native")

    def __init__(self, name: str, native: Native) -> None:
        self.handle_name = self.label = name
        self.native = native

    def __repr__(self) -> str:
        return self.label

    def __bool__(self) -> bool:
        return True


_RELEASED = object()


@dataclass(frozen=True)
class Step:
    """One act of a trace with its outcome: the data it returned, or the error it raised."""

    act: Act
    returned: Any = None
    raised: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The step in the wire format."""
        data = encode_act(self.act)
        if self.returned is not None:
            data["returned"] = self.returned
        if self.raised is not None:
            data["raised"] = dict(self.raised)
        return data


@dataclass
class Caught:
    """The kinds of warning that one act drew."""

    kinds: frozenset[str] = field(default_factory=frozenset)
    texts: tuple[str, ...] = ()


class Session(Adapter):
    """The contract as a test sees it: handles in, handles and data out."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.name = adapter.name  # type: ignore[misc] # what is a constant of a class is a fact of this instance
        self.features, self.operations, self.keywords = adapter.features, adapter.operations, adapter.keywords
        self.max_rank, self.dtypes, self.devices = adapter.max_rank, adapter.dtypes, adapter.devices
        self.trace: list[Step] = []
        self.judge = Judge("")
        self._names: weakref.WeakValueDictionary[str, Handle] = weakref.WeakValueDictionary()
        self._counts: dict[str, int] = {}
        self._caught: Caught | None = None
        adapter.lookup = self._native_of

    def start(self) -> None:
        """Begin an example: an empty trace, fresh names, the implementation's modes at their defaults."""
        self.trace = []
        self._names = weakref.WeakValueDictionary()
        self._counts = {}
        self._guarded(ActInfo("start", "none", {}), self.adapter.start, (), {})

    def release(self, *handles: Handle | None) -> None:
        """Give objects up: the suite holds nothing of them any more, and the handles cannot be used again."""
        for handle in handles:
            if handle is not None:
                handle.native = _RELEASED
                self.trace.append(Step(Act("release", (Ref(handle.handle_name),))))

    @contextlib.contextmanager
    def warnings(self) -> Iterator[Caught]:
        """Collect the kinds of warning of the acts inside (feature `warnings`)."""
        caught = self._caught = Caught()
        try:
            yield caught
        finally:
            self._caught = None

    def callable(self, behaviour: Behaviour) -> Any:
        """Behaviours are made native by the adapter only."""
        raise Misuse(f"a test asked for a native callable of {behaviour.name}")

    def perform(self, info: ActInfo, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """One act: unwrap, run, write down, wrap."""
        given = {
            key: value
            for key, value in keywords.items()
            if key not in info.defaults or (value is not info.defaults[key] and value != info.defaults[key])
        }
        for key in given:
            keyword = f"{info.name}.{key}"
            if keyword in OPTIONAL and keyword not in self.keywords:
                raise Unsupported(f"keyword {keyword}")
        noted = tuple(sorted((key, _noted(value)) for key, value in given.items()))
        step = Act(info.name, tuple(_noted(a) for a in arguments), noted)
        method = getattr(self.adapter, info.name)
        native_arguments = tuple(self._unwrap(a) for a in arguments)
        native_keywords = {key: self._unwrap(value) for key, value in given.items()}
        try:
            result = self._guarded(info, method, native_arguments, native_keywords)
        except NativeError as error:
            self.trace.append(Step(step, raised=raised(error.kinds, error.type, error.text)))
            raise
        except Gone:
            self.trace.append(Step(step))
            raise
        finally:
            # a test may keep the error: the frames in its traceback must not keep native objects alive
            del native_arguments, native_keywords
        return self._wrap(info, step, result)

    def _guarded(self, info: ActInfo, method: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        failure: NativeError | None = None
        unsupported: str | None = None
        try:
            with self._collecting():
                return method(*arguments, **keywords)
        except Unsupported as error:
            unsupported = bounded(str(error))
        except Gone:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever an implementation raises is its own verdict
            failure = self._reduced(info.name, error)
        # raised here, outside the handler: no context and no traceback may keep native objects alive
        del arguments, keywords, method
        if unsupported is not None:
            raise Unsupported(unsupported)
        assert failure is not None
        raise failure

    def _reduced(self, act: str, error: BaseException) -> NativeError:
        kinds, type_name, text = reduced(error, self.adapter.error_kinds)
        return NativeError(act, len(self.trace) + 1, kinds, type_name, text)

    @contextlib.contextmanager
    def _collecting(self) -> Iterator[None]:
        """Inside `warnings()`: note the warnings of one act, also of one that fails."""
        caught = self._caught
        if caught is None:
            yield
            return
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                self._note_warnings(caught, [w.message for w in noted if isinstance(w.message, Warning)])

    def _note_warnings(self, caught: Caught, found: Sequence[Warning]) -> None:
        kinds = (self.adapter.warning_kinds(w) for w in found)
        caught.kinds = caught.kinds.union(*kinds)
        caught.texts += tuple(bounded(f"{type(w).__name__}: {w}") for w in found)

    def _unwrap(self, item: Any) -> Any:
        if isinstance(item, Handle):
            if item.native is _RELEASED:
                raise Misuse(f"{item} was released and is used again")
            return item.native
        if isinstance(item, list | tuple):
            return type(item)(self._unwrap(part) for part in item)
        if isinstance(item, Behaviour):
            # captured handles are replaced by what they stand for, as a native closure would hold them
            return self.adapter.callable(item.mapped(self._unwrap))
        if isinstance(item, Mapping):
            unwrapped = {key: self._unwrap(value) for key, value in item.items()}
            # a mapping that is no dict stays none: BACKWARD-22 tells them apart
            return unwrapped if isinstance(item, dict) else MappingProxyType(unwrapped)
        return item

    def _native_of(self, name: str) -> Native:
        handle = self._names.get(name)
        if handle is None or handle.native is _RELEASED:
            raise KeyError(f"no living handle is called {name!r}")
        return handle.native

    def _wrap(self, info: ActInfo, step: Act, result: Any) -> Any:
        wanted = info.returns
        if wanted == "none":  # whatever came back, a test never sees it
            self.trace.append(Step(step))
            return None
        if wanted in ("tensor", "tensor?", "handle", "context", "tensors"):
            return self._wrap_handles(info, step, result)
        if fault := fault_of(wanted, result):
            raise self._nonsense(step, f"{info.name} returned {fault}")
        self.trace.append(Step(step, returned=encode(result)))
        return result

    def _wrap_handles(self, info: ActInfo, step: Act, result: Any) -> Any:
        if info.returns == "tensors" and isinstance(result, list | tuple):
            handles = tuple(None if part is None else self._handle(info, part) for part in result)
            names = tuple("_" if h is None else h.handle_name for h in handles)
            self._trace_result(step, names)
            return handles
        if result is None and info.returns == "tensor?":
            self.trace.append(Step(step, returned={"none": True}))
            return None
        if result is None:
            raise self._nonsense(step, f"{info.name} returned None")
        handle = self._handle(info, result)
        self._trace_result(step, handle.handle_name)
        if info.returns == "context":
            return self._entered(handle)
        return handle

    def _trace_result(self, step: Act, names: str | tuple[str, ...]) -> None:
        self.trace.append(Step(Act(step.method, step.arguments, step.keywords, names)))

    def _nonsense(self, step: Act, text: str) -> NativeError:
        self.trace.append(Step(step, raised=raised(frozenset({"nonsense"}), "nonsense", text)))
        return NativeError(step.method, len(self.trace), frozenset({"nonsense"}), "nonsense", text)

    def _handle(self, info: ActInfo, native: Native) -> Handle:
        prefix = _PREFIXES.get(info.name, "y" if info.returns in ("tensor", "tensors") else "h")
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        handle = Handle(f"{prefix}{self._counts[prefix]}", native)
        self._names[handle.handle_name] = handle
        self.adapter.named(handle.handle_name, native)
        return handle

    @contextlib.contextmanager
    def _entered(self, handle: Handle) -> Iterator[Handle]:
        self._switch(handle, "enter")
        try:
            yield handle
        finally:
            self._switch(handle, "leave")

    def _switch(self, handle: Handle, name: str) -> None:
        step = Act(name, (Ref(handle.handle_name),))
        self._guarded(ActInfo(name, "none", {}), _enter if name == "enter" else _leave, (handle.native,), {})
        self.trace.append(Step(step))


_PREFIXES = {
    "tensor": "x",
    "grad": "g",
    "detach": "d",
    "register_hook": "hook",
    "gradients": "g",
    "vjp": "g",
    "gradient_edge": "edge",
}


def _enter(context: Native) -> None:
    context.__enter__()


def _leave(context: Native) -> None:
    context.__exit__(None, None, None)


def _noted(item: Any) -> Any:
    """The item with names instead of handles, so that the trace keeps nothing alive."""
    if isinstance(item, Handle):
        return Ref(item.handle_name)
    if isinstance(item, list | tuple):
        return tuple(_noted(part) for part in item)
    if isinstance(item, Behaviour):
        return item.mapped(_noted)
    if isinstance(item, Mapping):
        return {key: _noted(value) for key, value in item.items()}
    if item is None or isinstance(item, bool | int | float | complex | str | Ref | Late) or hasattr(item, "steps"):
        return item
    return encode(item)


def _recorded(info: ActInfo) -> Any:
    def method(self: Session, *arguments: Any, **keywords: Any) -> Any:
        return self.perform(info, arguments, keywords)

    method.__name__ = info.name
    return method


for _info in ACTS.values():
    setattr(Session, _info.name, _recorded(_info))
