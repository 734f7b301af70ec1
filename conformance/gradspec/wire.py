"""One JSON format for traces, behaviours and messages between processes.

Lists are sequences; every other composite is an object with one tag, so that nothing can be taken for something else:

    {"ref": "x1"}              a handle, parameter or result, by name
    {"late": "hook1"}          a handle that is looked up when a behaviour runs
    {"behaviour": {...}}       a behaviour: name, parameters, acts, result
    {"value": {...}}           the value of a tensor: shape, dtype, data
    {"program": {...}}         a program (`programs/program.py`)
    {"dict": [[key, item], ...]}
    {"complex": [re, im]}      a complex number
    {"float": "nan"}           a number that JSON cannot write: nan, inf, -inf
    {"none": true}             None where a tensor may be absent, as what an act returned
    {"opaque": "text"}         something that is none of these, bounded text

The schema is `schemas/trace.schema.json`. This module imports the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gradspec.adapter import Value
from gradspec.behaviour import Act, Behaviour, Late, Ref

MAX_TEXT = 300
"""Longest text of an implementation that is kept in a trace or record."""

MAX_ITEMS = 10_000
"""Most elements of one sequence that are kept; a longer one becomes opaque."""


class MalformedMessage(ValueError):
    """Data that is not of the format; the message says what was found."""


def bounded(text: str) -> str:
    """Text of an implementation, cut to a safe length."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def encode(item: Any) -> Any:
    """JSON data for an item of the contract. An object with a `handle_name` is written as its name only."""
    if isinstance(item, float):
        return item if math.isfinite(item) else {"float": repr(item)}
    if isinstance(item, str):
        return bounded(item)
    if item is None or isinstance(item, int):
        return item
    if isinstance(item, complex):
        return {"complex": [encode(item.real), encode(item.imag)]}
    name = getattr(item, "handle_name", None)
    if isinstance(name, str):
        return {"ref": name}
    return _encode_composite(item)


def _encode_composite(item: Any) -> Any:
    if isinstance(item, list | tuple):
        if len(item) > MAX_ITEMS:
            return {"opaque": f"{len(item)} items"}
        return [encode(part) for part in item]
    if isinstance(item, Ref):
        return {"ref": item.name}
    if isinstance(item, Late):
        return {"late": item.name}
    if isinstance(item, Behaviour):
        return {"behaviour": encode_behaviour(item)}
    if isinstance(item, Value):
        return {"value": {"shape": list(item.shape), "dtype": item.dtype, "data": encode(item.data)}}
    if isinstance(item, Mapping):
        return {"dict": [[encode(key), encode(value)] for key, value in item.items()]}
    to_json = getattr(item, "to_json", None)
    if callable(to_json) and hasattr(item, "steps"):
        return {"program": to_json()}
    return {"opaque": bounded(f"an object of type {type(item).__name__}")}


def encode_act(act: Act) -> dict[str, Any]:
    """One act; keywords and result are left out where there are none."""
    data: dict[str, Any] = {"act": act.method, "arguments": [encode(a) for a in act.arguments]}
    if act.keywords:
        data["keywords"] = {key: encode(value) for key, value in act.keywords}
    if act.result is not None:
        data["result"] = list(act.result) if isinstance(act.result, tuple) else act.result
    return data


def encode_behaviour(behaviour: Behaviour) -> dict[str, Any]:
    """A behaviour as an object."""
    return {
        "name": behaviour.name,
        "parameters": list(behaviour.parameters),
        "acts": [encode_act(act) for act in behaviour.acts],
        "result": encode(behaviour.result),
    }


def decode(data: Any) -> Any:
    """The item that `encode` wrote: lists become tuples, handles become `Ref`. MalformedMessage otherwise."""
    if isinstance(data, list):
        return tuple(decode(part) for part in data)
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise MalformedMessage(f"an object with one tag was expected, not {sorted(data)}")
    ((tag, body),) = data.items()
    try:
        return _DECODERS[tag](body)
    except KeyError as error:
        raise MalformedMessage(f"{tag!r} is no tag, or its object lacks {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise MalformedMessage(f"the object tagged {tag!r} is malformed: {error}") from None


def decode_act(data: Mapping[str, Any]) -> Act:
    """The inverse of `encode_act`. MalformedMessage where it is no act."""
    if not isinstance(data, dict) or not isinstance(data.get("act"), str):
        raise MalformedMessage("an act is an object with the name of the act under 'act'")
    result = data.get("result")
    return Act(
        data["act"],
        tuple(decode(a) for a in data.get("arguments", ())),
        tuple(sorted((key, decode(value)) for key, value in data.get("keywords", {}).items())),
        tuple(result) if isinstance(result, list) else result,
    )


def _decode_behaviour(body: Mapping[str, Any]) -> Behaviour:
    acts = tuple(decode_act(act) for act in body["acts"])
    parameters = tuple(_text(name) for name in _list(body["parameters"]))
    return Behaviour(_text(body["name"]), parameters, acts, decode(body["result"]))


def _decode_value(body: Mapping[str, Any]) -> Value:
    shape = _list(body["shape"])
    if not all(isinstance(n, int) for n in shape):
        raise MalformedMessage(f"a shape is a list of whole numbers, not {shape}")
    return Value(tuple(shape), _text(body["dtype"]), _lists(body["data"]))


def _text(body: Any) -> str:
    if not isinstance(body, str):
        raise MalformedMessage(f"a text was expected, not {bounded(repr(body))}")
    return body


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise MalformedMessage(f"a list was expected, not {bounded(repr(body))}")
    return body


def _lists(data: Any) -> Any:
    return [_lists(part) for part in data] if isinstance(data, list) else decode(data)


def _decode_complex(body: Any) -> complex:
    real, imaginary = (decode(part) for part in body)
    return complex(real, imaginary)


def _decode_dict(body: Any) -> dict[Any, Any]:
    return {decode(key): decode(value) for key, value in body}


def _decode_none(_body: Any) -> None:
    return None


def _decode_program(body: Any) -> Any:
    # imported here: only a process that receives programs needs the module
    from gradspec.programs.program import Program  # noqa: PLC0415

    return Program.from_json(body)


_DECODERS: Mapping[str, Any] = {
    "ref": lambda body: Ref(_text(body)),
    "late": lambda body: Late(_text(body)),
    "behaviour": _decode_behaviour,
    "value": _decode_value,
    "program": _decode_program,
    "dict": _decode_dict,
    "complex": _decode_complex,
    "float": float,
    "none": _decode_none,
    "opaque": _text,
}
