"""The session: opaque handles, errors as data, a trace of names that keeps nothing alive."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import warnings
import weakref
from types import MappingProxyType
from typing import Any

import pytest
from gradspec.adapter import ACTS, OPTIONAL, Adapter, Unsupported, Value
from gradspec.behaviour import Act, Behaviour, Late, Ref, behaviour
from gradspec.report import first_violation
from gradspec.session import Handle, Misuse, NativeError, Session
from gradspec.wire import MAX_TEXT


class Hook:
    """What the fake returns for a hook."""

    def __init__(self, on: Any, hook: Any) -> None:
        self.on, self.hook = on, hook


class Box:
    """A tensor of the fake: one number."""

    def __init__(self, number: Any, parents: tuple[Any, ...] = ()) -> None:
        self.number, self.parents = number, parents
        self.grad: Box | None = None


class Fake(Adapter):
    """An implementation in memory that also notes the keywords it is given."""

    name = "fake"
    keywords = frozenset({"tensor.requires_grad", "backward.retain_graph"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.act: Any = lambda *_arguments, **_keywords: None
        self.entered = 0

    def tensor(self, data: Any, **keywords: Any) -> Any:
        self.seen.append(keywords)
        return Box(data)

    def value(self, x: Any) -> Value:
        return Value((), "float64", x.number)

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        self.seen.append((op, operands, attributes))
        boxes = tuple(o for o in operands if isinstance(o, Box))
        return (Box(1.0, boxes), Box(2.0, boxes)) if op == "split" else Box(3.0, boxes)

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
        self.seen.append(keywords)
        self.act(root, gradient)

    def grad(self, x: Any) -> Any:
        return x.grad

    def register_hook(self, x: Any, hook: Any) -> Any:
        self.seen.append(hook)
        return Hook(x, hook)

    def detach(self, x: Any) -> Any:
        return Box(x.number)

    @contextlib.contextmanager
    def no_grad(self) -> Any:
        self.entered += 1
        yield
        self.entered -= 1

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        return frozenset({"graph_freed"}) if "freed" in str(error) else super().error_kinds(error)

    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        return frozenset({"non_leaf_grad"}) if "leaf" in str(warning) else frozenset()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def impl(fake: Fake) -> Session:
    session = Session(fake)
    session.start()
    return session


def steps(impl: Session) -> list[dict[str, Any]]:
    found = [step.to_json() for step in impl.trace]
    assert first_violation("trace", json.loads(json.dumps(found, allow_nan=False))) is None
    return found


# -- handles ---------------------------------------------------------------------------------------------------------


def test_tests_see_handles_and_the_adapter_sees_natives(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.5)
    y = impl.apply("mul", x, 2.0)
    assert (repr(x), repr(y), type(x)) == ("x1", "y1", Handle)
    op, operands, attributes = fake.seen[-1]
    assert (op, operands[1], attributes) == ("mul", 2.0, {})
    assert isinstance(operands[0], Box)
    assert not hasattr(x, "number")
    assert bool(x)


def test_handles_inside_sequences_and_mappings_are_unwrapped(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.5)
    impl.apply("cat", (x, [x]), parts={"a": x}, view=MappingProxyType({"b": x}))
    _, ((first, (second,)),), attributes = fake.seen[-1]
    assert first is second is attributes["parts"]["a"] is attributes["view"]["b"]
    assert type(attributes["parts"]) is dict
    assert type(attributes["view"]) is MappingProxyType


def test_several_results_are_several_handles(impl: Session) -> None:
    first, second = impl.apply("split", impl.tensor(1.0), dim=0, split_size=1)
    assert (repr(first), repr(second)) == ("y1", "y2")
    assert steps(impl)[-1]["result"] == ["y1", "y2"]


def test_no_tensor_is_none_and_written_down(impl: Session) -> None:
    assert impl.grad(impl.tensor(1.0)) is None
    assert steps(impl)[-1]["returned"] == {"none": True}


def test_an_act_that_returns_nothing_gives_nothing_away(impl: Session, fake: Fake) -> None:
    fake.backward = lambda root, _gradient=None: root  # type: ignore[method-assign]
    assert impl.backward(impl.tensor(1.0)) is None
    assert "returned" not in steps(impl)[-1]


def test_names_begin_anew_in_every_example(impl: Session) -> None:
    first = impl.tensor(1.0)
    assert repr(impl.tensor(1.0)) == "x2"
    impl.start()
    assert impl.trace == []
    assert repr(impl.tensor(1.0)) == repr(first) == "x1"


# -- keywords --------------------------------------------------------------------------------------------------------


def test_a_keyword_equal_to_its_default_is_dropped(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.0, shape=(), dtype="float64", requires_grad=False)
    impl.backward(x, None, retain_graph=None, create_graph=False, inputs=None)
    assert fake.seen == [{}, {}]
    assert "keywords" not in steps(impl)[0]
    impl.backward(x, retain_graph=True)
    assert fake.seen[-1] == {"retain_graph": True}
    assert steps(impl)[-1]["keywords"] == {"retain_graph": True}


def test_an_undeclared_keyword_is_not_passed(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.0)
    with pytest.raises(Unsupported, match=r"^keyword backward\.create_graph$"):
        impl.backward(x, create_graph=True)
    with pytest.raises(Unsupported, match=r"^keyword backward\.inputs$"):
        impl.backward(x, inputs=[x])
    assert len(fake.seen) == len(impl.trace) == 1


def test_attributes_of_operations_are_no_keywords_to_declare(impl: Session, fake: Fake) -> None:
    impl.apply("sum", impl.tensor(1.0), dim=None, keepdim=False, inputs=2)
    assert fake.seen[-1][2] == {"dim": None, "keepdim": False, "inputs": 2}


def test_optional_keywords_exist_in_the_contract() -> None:
    for name in OPTIONAL:
        act, _, keyword = name.partition(".")
        assert keyword in ACTS[act].defaults


# -- errors ----------------------------------------------------------------------------------------------------------


class Strange(BaseException):
    """Not an Exception, and without a message that can be read."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "kinds", "text"),
    [
        (RuntimeError("the graph was freed\nsecond line"), {"graph_freed"}, "the graph was freed"),
        (ValueError(""), set(), ""),
        (SystemExit(3), set(), "3"),
        (KeyboardInterrupt(), set(), ""),
        (Strange(), set(), "(its message or kinds cannot be read)"),
        (GeneratorExit("x"), set(), "x"),
        (RuntimeError("a" * 1000), set(), "a" * (MAX_TEXT - 1) + "…"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_whatever_is_raised_becomes_data(impl: Session, fake: Fake, error: Any, kinds: set[str], text: str) -> None:
    def fails(*_: Any) -> None:
        raise error

    fake.act = fails
    x = impl.tensor(1.0)
    with pytest.raises(NativeError) as caught:
        impl.backward(x)
    found = caught.value
    assert (found.act, found.step, found.type, found.text) == ("backward", 2, type(error).__name__, text)
    assert found.kinds == kinds
    assert found.__context__ is found.__cause__ is None
    assert steps(impl)[-1]["raised"] == {"kinds": sorted(kinds), "type": type(error).__name__, "text": text}


def test_what_is_not_offered_stays_unsupported(impl: Session) -> None:
    with pytest.raises(Unsupported, match=r"^inference_mode is not offered$") as caught:
        impl.inference_mode()
    assert caught.value.__context__ is None


def test_an_error_keeps_no_native_object_alive(impl: Session, fake: Fake) -> None:
    def fails(root: Any, gradient: Any) -> None:
        inner = Box(9.0, (root, gradient))
        try:
            raise RuntimeError(inner)  # noqa: TRY301 - a chain of two
        except RuntimeError as error:
            raise ValueError("freed") from error

    fake.act = fails
    x, seed = impl.tensor(1.0), impl.tensor(2.0)
    watches = [weakref.ref(x.native), weakref.ref(seed.native)]
    kept: list[BaseException] = []
    try:
        impl.backward(x, seed, retain_graph=True)
    except NativeError as error:
        kept.append(error)
    impl.release(x, seed)
    fake.seen.clear()
    gc.collect()
    assert [watch() for watch in watches] == [None, None]
    assert kept[0].args == ("backward (act 3) raised ValueError: freed",)


def test_an_unsupported_act_keeps_no_native_object_alive(impl: Session) -> None:
    x = impl.tensor(1.0)
    watch = weakref.ref(x.native)
    with pytest.raises(Unsupported) as caught:
        impl.retain_grad(x)
    impl.release(x)
    gc.collect()
    assert watch() is None
    assert str(caught.value) == "retain_grad is not offered"


@pytest.mark.parametrize("method", ["tensor", "requires_grad", "grad", "apply"])
def test_native_exceptions_of_any_act_are_caught(fake: Fake, method: str) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise LookupError("broken")

    setattr(fake, method, fails)
    impl = Session(fake)
    with pytest.raises(NativeError, match=rf"^{method} \(act 1\) raised LookupError: broken$"):
        getattr(impl, method)("neg")


def test_an_error_while_an_example_starts_is_native_too(fake: Fake) -> None:
    fake.start = lambda: sys.exit(1)  # type: ignore[method-assign]
    with pytest.raises(NativeError, match="SystemExit"):
        Session(fake).start()


# -- results ---------------------------------------------------------------------------------------------------------

NONSENSE = [
    ("tensor", None),
    ("apply", None),
    ("register_hook", None),
    ("no_grad", None),
    ("requires_grad", 1),
    ("requires_grad", None),
    ("is_leaf", "yes"),
    ("version_of", True),
    ("version_of", 1.0),
    ("dtype", 64),
    ("shape", [2]),
    ("shape", (2.0,)),
    ("shape", (True,)),
    ("strides", None),
    ("events", []),
    ("value", 1.0),
    ("value", Value([2], "float64", [1.0, 2.0])),  # type: ignore[arg-type]
    ("value", Value((2,), "float64", [1.0])),
    ("value", Value((2,), "float64", (1.0, 2.0))),
    ("value", Value((), "float64", [1.0])),
    ("value", Value((), 64, 1.0)),  # type: ignore[arg-type]
    ("value", Value((1,), "float64", ["1"])),
]
ARGUMENTS = {"events": 0, "no_grad": 0, "apply": 2, "register_hook": 2}


@pytest.mark.parametrize(("method", "result"), NONSENSE)
def test_results_that_are_not_what_the_contract_says(impl: Session, fake: Fake, method: str, result: Any) -> None:
    setattr(fake, method, lambda *_, **__: result)
    with pytest.raises(NativeError) as caught:
        getattr(impl, method)(*(ARGUMENTS.get(method, 1) * ["neg"]))
    assert caught.value.kinds == {"nonsense"}
    assert caught.value.text.startswith(f"{method} returned ")
    assert "0x" not in caught.value.text
    assert steps(impl)[-1]["raised"]["kinds"] == ["nonsense"]


def test_every_kind_of_result_is_tried_with_nonsense() -> None:
    kinds = {info.returns for info in ACTS.values()}
    # "none" is not looked at; "tensor?" may be None and is otherwise opaque
    assert kinds - {"none", "tensor?"} == {ACTS[method].returns for method, _ in NONSENSE}


@pytest.mark.parametrize(
    ("method", "result"),
    [("value", Value((0, 2), "int64", [])), ("value", Value((), "bool", True)), ("shape", ()), ("version_of", 0)],
)
def test_results_that_are_sound_come_back(impl: Session, fake: Fake, method: str, result: Any) -> None:
    setattr(fake, method, lambda _: result)
    assert getattr(impl, method)("x") == result
    assert "returned" in steps(impl)[-1]


# -- trace -----------------------------------------------------------------------------------------------------------


def test_the_trace_is_written_in_names(impl: Session) -> None:
    x = impl.tensor(1.0, requires_grad=True)
    impl.apply("mul", x, 2.0)
    impl.shape(x)
    impl.release(x)
    assert steps(impl) == [
        {"act": "tensor", "arguments": [1.0], "keywords": {"requires_grad": True}, "result": "x1"},
        {"act": "apply", "arguments": ["mul", {"ref": "x1"}, 2.0], "result": "y1"},
        {"act": "shape", "arguments": [{"ref": "x1"}], "returned": []},
        {"act": "release", "arguments": [{"ref": "x1"}]},
    ]  # fmt: skip


def test_the_trace_keeps_no_object_alive(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.0)
    y = impl.apply("mul", x, x)

    captures = Behaviour("captures", ("g",), (Act("apply", ("mul", Ref("g"), y)),))
    hook = impl.register_hook(x, captures)
    watches = [weakref.ref(handle.native) for handle in (x, y, hook)]
    fake.seen.clear()
    del x, y, hook, captures
    gc.collect()
    assert [watch() for watch in watches] == [None, None, None]
    data = steps(impl)[-1]["arguments"][1]["behaviour"]
    assert data["acts"][0]["arguments"] == ["mul", {"ref": "g"}, {"ref": "y1"}]


def test_released_objects_are_gone_and_their_handles_refused(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.0)
    watch = weakref.ref(x.native)
    impl.release(x, None)
    assert watch() is None
    for use in (lambda: impl.value(x), lambda: impl.apply("cat", [x]), lambda: impl.apply("f", parts={"a": x})):
        with pytest.raises(Misuse, match="x1 was released and is used again"):
            use()
    with pytest.raises(KeyError, match="no living handle is called 'x1'"):
        fake.lookup("x1")


def test_a_native_callable_is_not_for_tests(impl: Session) -> None:
    with pytest.raises(Misuse, match="native callable of f"):
        impl.callable(Behaviour("f", ()))


# -- behaviours ------------------------------------------------------------------------------------------------------


def test_a_behaviour_reaches_the_adapter_as_a_callable(impl: Session, fake: Fake) -> None:
    x, other = impl.tensor(1.0), impl.tensor(5.0)

    @behaviour
    def captures(c: Any, g: Any) -> Any:
        c.record("seen", g, other)
        return c.apply("mul", g, Late("x2"))

    impl.register_hook(x, captures)
    native = fake.seen[-1]
    assert native.data.acts[0].arguments[2] is other.native
    native(Box(7.0))
    assert fake.seen[-1][1][1] is other.native
    assert impl.events() == (("seen", Value((), "float64", 7.0), Value((), "float64", 5.0)),)


def test_a_captured_object_is_held_and_a_late_one_is_not(impl: Session, fake: Fake) -> None:
    x, held, late = impl.tensor(1.0), impl.tensor(2.0), impl.tensor(3.0)
    impl.register_hook(x, Behaviour("f", ("g",), (Act("record", ("held", held)),), Late("x3")))
    native = fake.seen.pop()
    watches = [weakref.ref(held.native), weakref.ref(late.native)]
    impl.release(held, late)
    assert [watch() is None for watch in watches] == [False, True]
    with pytest.raises(KeyError, match="x3"):
        native(Box(1.0))


def test_a_reference_to_a_handle_by_name(impl: Session, fake: Fake) -> None:
    x = impl.tensor(1.0)
    impl.register_hook(x, Behaviour("f", ("g",), (), Ref("x1")))
    assert fake.seen[-1](Box(1.0)) is x.native


# -- contexts and warnings -------------------------------------------------------------------------------------------


def test_a_context_is_entered_and_left(impl: Session, fake: Fake) -> None:
    with impl.no_grad():
        assert fake.entered == 1
        impl.tensor(1.0)
    assert fake.entered == 0
    assert [step["act"] for step in steps(impl)] == ["no_grad", "enter", "tensor", "leave"]


def test_a_context_is_left_after_an_error(impl: Session, fake: Fake) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("inside")

    fake.act = fails
    x = impl.tensor(1.0)
    with pytest.raises(NativeError, match="inside"), impl.no_grad():
        impl.backward(x)
    assert fake.entered == 0


def test_warnings_are_collected_by_kind(impl: Session, fake: Fake) -> None:
    def warns(*_: Any) -> None:
        warnings.warn("the grad of a non-leaf", UserWarning, stacklevel=1)
        warnings.warn("something else", DeprecationWarning, stacklevel=1)

    fake.act = warns
    x = impl.tensor(1.0)
    with impl.warnings() as caught:
        impl.backward(x)
    assert caught.kinds == {"non_leaf_grad"}
    assert caught.texts == ("UserWarning: the grad of a non-leaf", "DeprecationWarning: something else")
    with impl.warnings() as none:
        impl.value(x)
    assert (none.kinds, none.texts) == (frozenset(), ())


def test_warnings_outside_the_block_are_not_collected(impl: Session, fake: Fake) -> None:
    fake.act = lambda *_: warnings.warn("a non-leaf", UserWarning, stacklevel=1)
    x = impl.tensor(1.0)
    with impl.warnings() as caught:
        pass
    with pytest.warns(UserWarning, match="non-leaf"):
        impl.backward(x)
    assert caught.kinds == frozenset()


def test_warnings_before_an_error_are_collected(impl: Session, fake: Fake) -> None:
    def warns_and_fails(*_: Any) -> None:
        warnings.warn("a non-leaf", UserWarning, stacklevel=1)
        raise ValueError("then")

    fake.act = warns_and_fails
    x = impl.tensor(1.0)
    with pytest.raises(NativeError, match="then"), impl.warnings() as caught:
        impl.backward(x)
    assert caught.kinds == {"non_leaf_grad"}


def test_declarations_are_those_of_the_adapter(impl: Session, fake: Fake) -> None:
    for name in ("name", "features", "operations", "keywords", "max_rank", "dtypes", "devices"):
        assert getattr(impl, name) == getattr(fake, name)
