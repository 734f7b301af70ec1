"""The JSON format of traces and messages: everything comes back, everything malformed is refused in words."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gradspec.adapter import Adapter, Value
from gradspec.behaviour import Act, Behaviour, Late, Ref
from gradspec.programs.program import Input, Program, Root, Step
from gradspec.wire import (
    MAX_ITEMS,
    MAX_TEXT,
    MalformedMessage,
    bounded,
    decode,
    decode_act,
    encode,
    encode_act,
    encode_behaviour,
)

PROGRAM = Program((Input((2,), (1.0, math.inf), requires_grad=True),), (Step("neg", (0,)),), (Root(1, (1.0, 0.5)),))
INNER = Behaviour("log", ("g",), (Act("record", ("seen", Ref("g"))),))
SCALE = Behaviour(
    "scale",
    ("g",),
    (
        Act("record", ("scaled", Ref("g"), (1, 2.5, None)), result="v0"),
        Act("apply", ("split", Ref("g")), (("dim", 0), ("split_size", 1)), ("v1_0", "v1_1")),
        Act("register_hook", (Ref("x3"), INNER), result="v2"),
        Act("remove", (Late("hook1"),), (), "v3"),
    ),
    Ref("v1_0"),
)
ITEMS = [
    None,
    True,
    False,
    0,
    -(2**70),
    0.1,
    -0.0,
    math.inf,
    -math.inf,
    2.5 - 1j,
    complex(-0.0, math.inf),
    "",
    "a text, ünïcode\n",
    (),
    (1, (2.5, "x", (None,))),
    Ref("x1"),
    Late("hook1"),
    (Ref("x1"), Late("hook2")),
    Value((2, 1), "float64", [[1.0], [math.inf]]),
    Value((), "complex128", 1 - 2j),
    Value((0, 3), "int64", []),
    {"a": 1, 2: (Ref("x1"), None), "nested": {"b": math.inf}},
    {},
    PROGRAM,
    INNER,
    SCALE,
]


def sent(item: Any) -> Any:
    return decode(json.loads(json.dumps(encode(item), allow_nan=False)))


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: repr(item)[:30])
def test_every_kind_comes_back(item: Any) -> None:
    back = sent(item)
    assert back == item
    assert type(back) is type(item)
    assert repr(back) == repr(item)  # tells -0.0 from 0.0, True from 1


def test_not_a_number_comes_back() -> None:
    assert math.isnan(sent(math.nan))
    pair = sent(complex(math.nan, -math.inf))
    assert math.isnan(pair.real)
    assert pair.imag == -math.inf
    assert math.isnan(sent(Value((1,), "float32", [math.nan])).data[0])


def test_lists_and_mappings_come_back_as_tuples_and_dicts() -> None:
    assert sent([1, [2]]) == (1, (2,))
    assert sent(MappingProxyType({"a": [1]})) == {"a": (1,)}


def test_handles_are_written_by_name() -> None:
    class Named:
        handle_name = "x7"

    assert encode(Named()) == {"ref": "x7"}
    assert encode((Named(), 1)) == [{"ref": "x7"}, 1]


@pytest.mark.parametrize("item", [object(), {1, 2}, b"bytes", np.zeros(2), lambda: None, iter(())])
def test_what_is_no_item_is_opaque_and_shows_no_address(item: Any) -> None:
    data = encode(item)
    assert list(data) == ["opaque"]
    assert "0x" not in data["opaque"]
    assert type(item).__name__ in data["opaque"]
    assert sent(item) == data["opaque"]


def test_text_is_bounded() -> None:
    assert encode("a" * MAX_TEXT) == "a" * MAX_TEXT
    cut = encode("a" * (MAX_TEXT + 1))
    assert len(cut) == MAX_TEXT
    assert cut.endswith("a…")
    assert bounded("short") == "short"
    huge = type("T" * 1000, (), {})()
    assert len(encode(huge)["opaque"]) == MAX_TEXT


def test_long_sequences_are_opaque() -> None:
    assert len(encode([0] * MAX_ITEMS)) == MAX_ITEMS
    assert encode([0] * (MAX_ITEMS + 1)) == {"opaque": f"{MAX_ITEMS + 1} items"}


def test_an_act_leaves_out_what_it_does_not_have() -> None:
    assert encode_act(Act("events")) == {"act": "events", "arguments": []}
    full = Act("apply", ("split", Ref("x")), (("dim", 0),), ("a", "b"))
    data = {"act": "apply", "arguments": ["split", {"ref": "x"}], "keywords": {"dim": 0}, "result": ["a", "b"]}
    assert encode_act(full) == data
    assert decode_act(data) == full
    assert decode_act({"act": "events"}) == Act("events")


def behaviour(**changes: Any) -> dict[str, Any]:
    return {"behaviour": encode_behaviour(SCALE) | changes}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "one tag"),
        ({"ref": "x", "late": "y"}, r"one tag was expected, not \['late', 'ref'\]"),
        ({"thing": 1}, "'thing' is no tag"),
        ({"ref": 5}, "a text was expected, not 5"),
        ({"late": None}, "a text was expected, not None"),
        ({"opaque": 1}, "a text was expected, not 1"),
        ({"float": "much"}, "'float' is malformed"),
        ({"float": None}, "'float' is malformed"),
        ({"complex": [1]}, "'complex' is malformed"),
        ({"complex": ["a", "b"]}, "'complex' is malformed"),
        ({"dict": [[1]]}, "'dict' is malformed"),
        ({"dict": 3}, "'dict' is malformed"),
        ({"dict": [[{"dict": []}, 1]]}, "'dict' is malformed"),
        ({"value": {"shape": [2], "dtype": "float64"}}, "lacks 'data'"),
        ({"value": {"shape": "ab", "dtype": "float64", "data": []}}, "a list was expected, not 'ab'"),
        ({"value": {"shape": ["a"], "dtype": "float64", "data": []}}, "whole numbers"),
        ({"value": {"shape": [], "dtype": 64, "data": 1}}, "a text was expected, not 64"),
        ({"value": 1}, "'value' is malformed"),
        ({"program": {"inputs": [], "steps": [{"op": "nothing", "operands": []}]}}, "no operation is called"),
        ({"program": {}}, "a program has inputs"),
        (behaviour(acts=[{}]), "an act is an object"),
        (behaviour(acts=["record"]), "an act is an object"),
        (behaviour(acts=[{"act": "record", "arguments": [{"ref": 1}]}]), "a text was expected, not 1"),
        (behaviour(parameters="g"), "a list was expected, not 'g'"),
        (behaviour(name=1), "a text was expected, not 1"),
        ({"behaviour": {"name": "f"}}, "lacks 'acts'"),
        ([1, {"ref": "x"}, {"nothing": 2}], "'nothing' is no tag"),
    ],
)
def test_malformed_data_is_refused(data: Any, text: str) -> None:
    with pytest.raises(MalformedMessage, match=text):
        decode(data)


@pytest.mark.parametrize("data", [{}, {"act": 1}, [], "act", None])
def test_malformed_acts_are_refused(data: Any) -> None:
    with pytest.raises(MalformedMessage, match="name of the act"):
        decode_act(data)


class Numbers(Adapter):
    """An implementation whose tensors are numbers."""

    def value(self, x: Any) -> Value:
        return Value((), "float64", x)

    def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
        if op == "split":
            return tuple(operands[0] / 2 for _ in range(2 * attributes["split_size"]))
        return operands[0] * operands[1]

    def register_hook(self, x: Any, hook: Any) -> Any:
        hook(x)

    def remove(self, handle: Any) -> None:
        self.record("removed", handle)


def test_a_behaviour_that_was_sent_does_the_same() -> None:
    seen = []
    for data in (SCALE, sent(SCALE)):
        adapter = Numbers()
        adapter.lookup = {"x3": 3.0, "hook1": 1.0}.__getitem__
        seen.append((adapter.callable(data)(8.0), adapter.events()))
    assert seen[0] == seen[1]
    assert seen[0][0] == 4.0
    assert [event[0] for event in seen[0][1]] == ["scaled", "seen", "removed"]
