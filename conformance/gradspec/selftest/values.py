"""Values, flags, slots, events, modes, objects and memory: what goes in comes out, and from the right place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from gradspec.adapter import Value
from gradspec.behaviour import Act, Behaviour, Ref
from gradspec.programs.operations import Shape
from gradspec.selftest.checks import Remark, Sentences, Subject, Wrong, check, refusal
from gradspec.session import Handle, NativeError

# --- values -------------------------------------------------------------------------------------------------------

_DATA: Mapping[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "uint8": (3, 200),
    "int8": (3, -100),
    "int16": (3, -300),
    "int32": (3, -70000),
    "int64": (3, -(2**40) - 1),
    "float16": (0.5, -1.25),
    "bfloat16": (0.5, -1.25),
    "float32": (0.5, -1.0 - 2.0**-20),
    "float64": (0.5, -1.0 - 2.0**-50),
    "complex64": (0.5 - 1.25j, -1.0 - 2.0**-20 + 2j),
    "complex128": (0.5 - 1.25j, -1.0 - 2.0**-50 + 2j),
}
"""For each element type two numbers that it holds exactly, and the next narrower type does not."""

_SHAPES: tuple[Shape, ...] = ((), (3,), (2, 3), (0,), (0, 3))


def _nested(numbers: Iterator[Any], shape: Shape) -> Any:
    return [_nested(numbers, shape[1:]) for _ in range(shape[0])] if shape else next(numbers)


def _shapes(subject: Subject) -> list[Shape]:
    return [shape for shape in _SHAPES if len(shape) <= subject.max_rank]


@check("values go in and come out")
def _values(subject: Subject) -> Sentences:
    for dtype in subject.dtypes:
        for shape in _shapes(subject):
            numbers = reversed(_DATA[dtype]) if shape == () else itertools.cycle(_DATA[dtype])
            data = _nested(iter(numbers), shape)
            found: Value = subject.value(subject.tensor(data, shape=shape, dtype=dtype))
            given = f"tensor({data}, shape={shape}, dtype={dtype!r})"
            if found.dtype != dtype:
                text = f"value of {given} has dtype {found.dtype}: hand `dtype` on in `tensor`, or read it in `value`"
                yield Wrong(f"{text}; or leave {dtype} out of `dtypes`")
                break
            if found.shape != shape:
                text = f"value of {given} has shape {found.shape}: hand `shape` on in `tensor` (nested lists cannot"
                yield Wrong(f"{text} tell (0, 3) from (0,)), or read it in `value`")
                break
            if found.data != data:
                text = f"value of {given} is {found.data}: look whether `tensor` or `value` of the adapter rounds,"
                yield Wrong(f"{text} reorders or copies wrongly; every element must come out as it went in")
                break


@check("shape and dtype agree with value")
def _shape_and_dtype(subject: Subject) -> Sentences:
    for shape in _shapes(subject):
        x = subject.leaf(shape, grad=False)
        value = subject.value(x)
        for act, found, wanted in (
            ("shape", subject.shape(x), value.shape),
            ("dtype", subject.dtype(x), value.dtype),
        ):
            if found != wanted:
                yield Wrong(
                    f"{act} of a tensor is {found!r} where its value has {wanted!r}: look at `{act}` of the adapter"
                    " (without one of its own it reads `value`)"
                )
                return


@check("a fresh tensor has the flag that was asked for", "requires_grad")
def _fresh_flags(subject: Subject) -> Sentences:
    for flag in (False, True) if "frozen" in subject.features else (True,):
        found = subject.requires_grad(subject.leaf(grad=flag))
        if found != flag:
            yield Wrong(
                f"requires_grad of tensor(2.0, requires_grad={flag}) is {found}: hand the flag on in `tensor`, or read"
                " the right attribute in `requires_grad` (is it inverted there?)"
            )


@check(".grad is None before a backward and a tensor after it", "scalar")
def _slot(subject: Subject) -> Sentences:
    x = subject.leaf()
    y = subject.step(x)
    before = subject.grad(x)
    if before is not None:
        yield from _no_tensor(before)
        yield Remark(
            f"grad of a leaf is {_shown(subject, before)} before any backward, where None says that nothing has come:"
            " let `grad` return None for the mark that the implementation uses, unless it has no such mark"
        )
    subject.backward(y)
    after = subject.grad(x)
    if after is None:
        yield Wrong(
            "grad of a leaf is None after a backward through one operation: look whether `grad` reads where the"
            " implementation writes and `backward` starts it, and whether `tensor` asks for gradients; else it is the"
            " implementation that leaves the slot empty"
        )
        return
    yield from _no_tensor(after)
    found = subject.value(after)
    if found.shape != ():
        yield Remark(f"grad of a 0-d leaf has shape {found.shape}: if `grad` wraps a number, give it the leaf's shape")


def _no_tensor(held: Handle) -> Sentences:
    if type(held.native) in (float, complex):  # a subclass, as NumPy's, may be a tensor of its implementation
        raise Wrong(
            f"grad returned the bare number {held.native!r}, on which no further act works: wrap it in a tensor of the"
            " implementation in `grad`, and return None where nothing has come"
        )
    yield from ()


def _shown(subject: Subject, held: Handle) -> str:
    return repr(subject.value(held).data)


# --- events, behaviours, modes ------------------------------------------------------------------------------------


def _hook(name: str, *acts: Any) -> Any:
    """A behaviour of one parameter `g` with these acts, which returns nothing."""
    parts = tuple(Act(method, tuple(Ref("g") if a == "g" else a for a in arguments)) for method, *arguments in acts)
    return Behaviour(name, ("g",), parts, None)


@check("what record writes down comes back from events, once")
def _events(subject: Subject) -> Sentences:
    x = subject.leaf(grad=False)
    subject.record("seen", x, 3)
    first, second = subject.events(), subject.events()
    wanted = (("seen", subject.value(x), 3),)
    if first != wanted:
        yield Wrong(
            f"after record('seen', x, 3) events returned {_brief(first)}, not one event with the label, the value of x"
            " and 3: leave `record` and `events` to the base class, or do the same"
        )
    if second != ():
        yield Wrong(
            f"events returned {_brief(second)} when it was asked again: it must forget what it has told, as the base"
            " class does"
        )


@check("start forgets events")
def _start_forgets(subject: Subject) -> Sentences:
    subject.record("before")
    subject.start()
    found = subject.events()
    if found:
        yield Wrong(f"events returned {_brief(found)} after start: call super().start() in `start` of the adapter")


@check("start puts the grad mode back", "no_grad")
def _start_resets(subject: Subject) -> Sentences:
    left = subject.no_grad()
    left.__enter__()
    try:
        subject.start()
        enabled = subject.is_grad_enabled()
    finally:
        left.__exit__(None, None, None)
        subject.start()
    if not enabled:
        yield Wrong(
            "is_grad_enabled is False after start where a no_grad context was left open: an example that fails inside"
            " one would spoil the next, so switch recording on in `start` of the adapter"
        )


@check("no_grad and enable_grad are contexts that is_grad_enabled follows", "no_grad")
def _modes(subject: Subject) -> Sentences:
    found = [subject.is_grad_enabled()]
    with subject.no_grad():
        found.append(subject.is_grad_enabled())
        with subject.enable_grad():
            found.append(subject.is_grad_enabled())
        found.append(subject.is_grad_enabled())
    found.append(subject.is_grad_enabled())
    places = ("at the start", "inside no_grad", "inside enable_grad", "after enable_grad", "after no_grad")
    for seen, wanted, place in zip(found, (True, False, True, False, True), places, strict=True):
        if seen != wanted:
            yield Wrong(
                f"is_grad_enabled is {seen} {place}: look whether `no_grad` and `enable_grad` return contexts that"
                " switch the mode when they are entered and back when they are left, and whether `is_grad_enabled`"
                " reads that mode; else the implementation does not switch it"
            )
            return


@check("hooks are called and can record", "hooks.tensor")
def _hooks(subject: Subject) -> Sentences:
    y = subject.step(subject.leaf())  # leaves have hooks of their own in some engines
    handle = subject.register_hook(y, _hook("noted", ("record", "hook", "g")))
    subject.backward(subject.step(y))
    found = subject.events()
    subject.remove(handle)
    if not found:
        yield Wrong(
            "a hook that records was registered, and no event came back after a backward: look whether `register_hook`"
            " hands its behaviour to the implementation as it is; else the implementation never calls it"
        )
    elif not (isinstance(found[0], tuple) and found[0][:1] == ("hook",) and isinstance(found[0][-1], Value)):
        yield Wrong(
            f"the event of a hook is {_brief(found[0])}, not its label and the value of the gradient: look whether"
            " `register_hook` hands the gradient on as a tensor; else the implementation gives its hooks something else"
        )


@check("what a hook raises comes out", "hooks.tensor")
def _raising(subject: Subject) -> Sentences:
    plain = refusal(lambda: subject.raise_("on purpose"))
    if plain is None or "behaviour_error" not in plain.kinds:
        came = "nothing came" if plain is None else f"{plain.type}: {plain.text} came, with {_kinds(plain)}"
        yield Wrong(
            f"raise_ must raise BehaviourError, of the kind behaviour_error, and {came}: leave `raise_` to the base"
            " class, and begin `error_kinds` with super().error_kinds(error)"
        )
        return
    y = subject.step(subject.leaf())
    subject.register_hook(y, _hook("raises", ("raise_", "on purpose")))
    z = subject.step(y)
    error = refusal(lambda: subject.backward(z))
    if error is not None and "behaviour_error" not in error.kinds:
        yield Wrong(
            f"a hook raised BehaviourError, and backward raised {error.type}: {error.text}, with {_kinds(error)}: if"
            " the implementation wraps what its hooks raise, let `error_kinds` add behaviour_error for it; else look"
            " at `register_hook`"
        )


def _kinds(error: NativeError) -> str:
    return f"the kinds {', '.join(sorted(error.kinds))}" if error.kinds else "no kind"


def _brief(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:79]}…"


# --- objects and memory -------------------------------------------------------------------------------------------


@check("a tensor that was given up is dead, one that is held is alive", "liveness")
def _liveness(subject: Subject) -> Sentences:
    held, given_up = subject.leaf(), subject.leaf()
    watches = subject.watch(held), subject.watch(given_up)
    subject.release(given_up)
    if not subject.alive(watches[0]):
        yield Wrong(
            "alive is False for a tensor that is still held: watch the very object that the contract handles, not a"
            " copy or a wrapper of it, in `watch` of the adapter"
        )
    if subject.alive(watches[1]):
        yield Wrong(
            "alive is True for a fresh tensor that nothing holds any more: look whether the adapter keeps tensors (a"
            " list, a cache, the watch itself) and whether `alive` collects garbage; else the implementation keeps"
            " them, and cannot offer 'liveness'"
        )


@check("same tells one object from two", "layout")
def _same(subject: Subject) -> Sentences:
    a, b = subject.leaf(), subject.leaf()
    for found, wanted, what in (
        (subject.same(a, a), True, "a tensor and itself"),
        (subject.same(a, b), False, "two tensors with equal values"),
    ):
        if found != wanted:
            yield Wrong(f"same of {what} is {found}: compare the objects by identity in `same` of the adapter")


@check("shares_storage tells shared memory from separate", "aliasing")
def _storage(subject: Subject) -> Sentences:
    shape = (2,) if subject.max_rank else ()
    a, b = subject.leaf(shape, grad=False), subject.leaf(shape, grad=False)
    for found, wanted, what in (
        (subject.shares_storage(a, a), True, "a tensor and itself"),
        (subject.shares_storage(a, b), False, "two fresh tensors"),
    ):
        if found != wanted:
            yield Wrong(
                f"shares_storage of {what} is {found}: compare where the elements lie in `shares_storage` of the"
                " adapter, not the objects in front of them"
            )


@check("strides count elements", "layout", "rank:2")
def _strides(subject: Subject) -> Sentences:
    found = subject.strides(subject.leaf((2, 3), grad=False))
    if found not in ((3, 1), (1, 2)):
        size = {"float64": 8, "float32": 4, "float16": 2}[subject.real]
        why = " (these are bytes)" if found in ((3 * size, size), (size, 2 * size)) else ""
        yield Wrong(
            f"strides of a fresh tensor of shape (2, 3) are {found}{why}, where rows after each other give (3, 1):"
            " count steps in elements in `strides` of the adapter"
        )
