"""Behaviours: tracing small functions to data, and running the data."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
from gradspec.adapter import Adapter, BehaviourError, Value
from gradspec.behaviour import Act, Behaviour, BehaviourCallable, Late, NotStraight, Ref, behaviour
from gradspec.session import Handle


class Numbers(Adapter):
    """An implementation whose tensors are numbers."""

    def value(self, x: Any) -> Value:
        return Value((), "float64", x)

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        if op == "split":
            return operands[0] - attributes["split_size"], float(attributes["split_size"])
        return operands[0] * operands[1] if op == "mul" else operands[0] + operands[1]

    def register_hook(self, x: Any, hook: Any) -> Any:
        return (x, hook)


def log_and_scale(c: Any, g: Any) -> Any:
    c.record("seen", g)
    return c.apply("mul", g, 2.0)


def part(c: Any, x: Any, y: Any) -> Any:
    first, second = c.apply("split", x, split_size=3, dim=0, results=2)
    return [c.apply("add", first, y), second]


def test_a_function_is_traced_to_its_acts() -> None:
    acts = (Act("record", ("seen", Ref("g")), (), "v0"), Act("apply", ("mul", Ref("g"), 2.0), (), "v1"))
    assert behaviour(log_and_scale) == Behaviour("log_and_scale", ("g",), acts, Ref("v1"))


def test_several_results_are_named() -> None:
    split = Act("apply", ("split", Ref("x")), (("dim", 0), ("split_size", 3)), ("v0_0", "v0_1"))
    add = Act("apply", ("add", Ref("v0_0"), Ref("y")), (), "v1")
    assert behaviour(part) == Behaviour("part", ("x", "y"), (split, add), (Ref("v1"), Ref("v0_1")))


def test_a_function_without_acts_or_result() -> None:
    def nothing(c: Any) -> None: ...

    assert behaviour(nothing) == Behaviour("nothing", ())


def test_equal_functions_give_equal_data() -> None:
    assert behaviour(log_and_scale) == behaviour(log_and_scale)
    assert hash(behaviour(part)) == hash(behaviour(part))
    assert behaviour(part) != behaviour(log_and_scale)
    # plain references stay comparable once tracing is over
    assert all(type(a) is Ref for a in behaviour(log_and_scale).acts[1].arguments[1:2])


def test_a_lambda_has_no_name_for_a_script() -> None:
    with pytest.raises(NotStraight, match="lambda"):
        behaviour(lambda _c, g: g)


def branches(c: Any, g: Any) -> Any:
    return c.apply("neg", g) if g else g


def branches_on_a_result(c: Any, g: Any) -> Any:
    return g if c.is_leaf(g) else None


def negates(c: Any, g: Any) -> Any:
    return c.record("x", not g)


def compares(c: Any, g: Any) -> Any:
    return c.apply("neg", g) if g == 0.0 else g


def differs(_c: Any, g: Any) -> Any:
    return g if g != 1.0 else None


def orders(_c: Any, g: Any) -> Any:
    return g if g < 1.0 else None


def searches(_c: Any, g: Any) -> Any:
    return 1.0 if g in (0.0, 1.0) else g


def iterates(c: Any, g: Any) -> Any:
    for x in g:
        c.record("x", x)


def unpacks(c: Any, g: Any) -> Any:
    a, _ = c.apply("split", g, split_size=1, dim=0)
    return a


@pytest.mark.parametrize(
    "function", [branches, branches_on_a_result, negates, compares, differs, orders, searches, iterates, unpacks]
)
def test_branching_and_iterating_on_a_value_is_refused(function: Any) -> None:
    with pytest.raises(NotStraight, match=r"a behaviour cannot .*(v0|g)"):
        behaviour(function)


def test_a_number_outside_may_be_branched_on() -> None:
    def made(factor: float) -> Behaviour:
        def scale(c: Any, g: Any) -> Any:
            return c.apply("mul", g, factor) if factor != 1 else g

        return behaviour(scale)

    assert made(1.0).acts == ()
    assert made(2.0).acts[0].arguments == ("mul", Ref("g"), 2.0)


def test_a_captured_handle_stays_in_the_data() -> None:
    outside = Handle("x3", 5.0)

    def uses(c: Any, g: Any) -> Any:
        return c.apply("mul", g, outside)

    assert behaviour(uses).acts[0].arguments == ("mul", Ref("g"), outside)


def test_running_does_the_acts_in_order() -> None:
    adapter = Numbers()
    assert adapter.callable(behaviour(log_and_scale))(4.0) == 8.0
    assert adapter.events() == (("seen", 4.0),)
    assert adapter.callable(behaviour(part))(5.0, 1.0) == (3.0, 3.0)


def test_events_are_read_once_and_in_order() -> None:
    adapter = Numbers()
    for at in range(3):
        adapter.record("at", at, (at, None, "text"))
    assert adapter.events() == tuple(("at", at, (at, None, "text")) for at in range(3))
    assert adapter.events() == ()


def test_late_names_are_looked_up_when_it_runs() -> None:
    def late(c: Any, g: Any) -> Any:
        return c.apply("add", g, Late("x9"))

    adapter, names = Numbers(), {"x9": 1.0}
    adapter.lookup = names.__getitem__
    native = adapter.callable(behaviour(late))
    assert native(1.0) == 2.0
    names["x9"] = 10.0
    assert native(1.0) == 11.0
    names.clear()
    with pytest.raises(KeyError, match="x9"):
        native(1.0)


def test_without_a_session_nothing_is_named() -> None:
    with pytest.raises(KeyError, match="no handle is called 'x9'"):
        Numbers().callable(Behaviour("late", (), (), Late("x9")))()


def test_a_parameter_wins_over_a_name_outside() -> None:
    adapter = Numbers()
    adapter.lookup = {"g": 1.0, "x1": 7.0}.__getitem__
    assert adapter.callable(Behaviour("f", ("g",), (), (Ref("g"), Ref("x1"))))(3.0) == (3.0, 7.0)


def test_raising_comes_out_as_itself() -> None:
    def fails(c: Any, g: Any) -> Any:
        c.record("before", g)
        c.raise_("on purpose")
        c.record("after", g)

    adapter = Numbers()
    with pytest.raises(BehaviourError, match=r"^on purpose$") as caught:
        adapter.callable(behaviour(fails))(1.0)
    assert adapter.error_kinds(caught.value) == {"behaviour_error"}
    assert [event[0] for event in adapter.events()] == ["before"]


def test_events_of_one_example_are_gone_in_the_next() -> None:
    adapter = Numbers()
    adapter.record("seen", 1.0)
    adapter.start()
    assert adapter.events() == ()


def test_a_behaviour_inside_becomes_a_callable_too() -> None:
    inner = behaviour(log_and_scale)

    def registers(c: Any, x: Any) -> Any:
        return c.register_hook(x, inner)

    x, hook = Numbers().callable(behaviour(registers))(3.0)
    assert isinstance(hook, BehaviourCallable)
    assert hook(x) == 6.0


@pytest.mark.parametrize("method", ["interpret", "callable", "aply", "start", "__init__"])
def test_only_acts_can_be_performed(method: str) -> None:
    with pytest.raises(TypeError, match=f"f: '{method}' is no act of the contract"):
        Numbers().callable(Behaviour("f", (), (Act(method),)))()


@pytest.mark.parametrize("arguments", [(), (1.0,), (1.0, 2.0, 3.0)])
def test_a_wrong_number_of_arguments_is_refused(arguments: tuple[float, ...]) -> None:
    with pytest.raises(TypeError, match=f"part was called with {len(arguments)} arguments"):
        Numbers().callable(behaviour(part))(*arguments)


def test_a_callable_has_a_name_and_a_signature() -> None:
    native = Numbers().callable(behaviour(part))
    assert native.__name__ == "part"
    assert list(inspect.signature(native).parameters) == ["x", "y"]
    kinds = {p.kind for p in inspect.signature(native).parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_deepcopy_copies_by_reference() -> None:
    native = Numbers().callable(behaviour(part))
    assert copy.deepcopy([native])[0] is native


def test_pickling_carries_the_data() -> None:
    native = Numbers().callable(behaviour(part))
    back = pickle.loads(pickle.dumps(native))  # noqa: S301 - our own bytes
    assert back is not native
    assert back.data == native.data
    assert type(back.adapter) is Numbers
    assert back(5.0, 1.0) == native(5.0, 1.0)
