"""What two processes say to each other: one JSON object a line, in the format of traces (`wire.py`).

    greeting   {"message": 1, "gradspec": "0.1.0", "python": "3.12.1", "declared": {...}}
               {"message": 1, "gradspec": "0.1.0", "python": "3.12.1", "refused": {"status", "text", "path", "line"}}
    request    an act; its "result" is the name that the client gives to what it returns; besides
               "names": {"x1": "_4"} what the suite calls handles (serves `Late`), "frees": ["_2"] what it has dropped
    answer     {"returned": item} | {"raised": {"kinds", "type", "text"}} | {"unsupported": text}, and
               "warnings": [{"kinds", "type", "text"}] where the act drew some

The server greets, then every request has one answer. A handle is returned as {"ref": name} under the name that the
client gave; of several results the n-th is called NAME_n, and one that is absent is {"none": true}. Beside the acts of
the contract there are `start` (an example begins), `enter` and `leave` (of a context).

The schema is `schemas/message-1.schema.json`. This module imports the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

from gradspec.adapter import Native, Unsupported
from gradspec.behaviour import Behaviour, Ref
from gradspec.wire import MAX_ITEMS, MAX_TEXT, MalformedMessage, bounded, decode, encode

VERSION = 1
"""The version of the protocol: a server says it in its greeting."""

LARGEST = 64 * 2**20
"""Most bytes of one message."""

HANDLES = frozenset({"tensor", "tensor?", "tensors", "handle", "context"})
"""What an act may return that stays where it is: the kinds of `adapter.act`."""

DECLARED = frozenset(
    {"name", "distribution", "version", "features", "operations", "keywords", "dtypes", "devices", "max_rank"}
)
"""What a greeting says of an implementation: see `declared.declarations`."""

Resolve = Callable[[str], Native]

_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def line_of(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    return _ENCODE(message).encode("ascii") + b"\n"


def reduced(error: BaseException, kinds_of: Callable[[Any], frozenset[str]]) -> tuple[frozenset[str], str, str]:
    """What is kept of an exception or warning of an implementation: kinds, name of its type, first line of its text."""
    name = type(error).__name__
    try:
        text = bounded(str(error).strip().split("\n")[0].strip())
        kinds = frozenset(kind for kind in kinds_of(error) if isinstance(kind, str))
    except BaseException:  # noqa: BLE001 - a message or kinds that cannot even be read
        return frozenset(), name, "(its message or kinds cannot be read)"
    return kinds, name, text


# --- arguments of acts --------------------------------------------------------------------------------------------


def pack(item: Any) -> Any:
    """JSON data for an argument. Unlike in a trace lists stay lists, and a mapping that is no dict stays none.

    Raises:
        Unsupported: no message holds it.
    """
    kind = type(item)
    if item is None or kind is int or kind is bool:
        return item
    if kind is float:
        return item if isfinite(item) else {"float": repr(item)}
    if kind is str and len(item) <= MAX_TEXT:
        return item
    if kind is tuple or kind is list:
        if len(item) > MAX_ITEMS:
            raise Unsupported(f"an argument with {len(item)} items in another process")
        packed = [pack(part) for part in item]
        return packed if kind is tuple else {"list": packed}
    if isinstance(item, Mapping):
        tag = "dict" if isinstance(item, dict) else "mapping"
        return {tag: [[pack(key), pack(value)] for key, value in item.items()]}
    data = encode(item)
    if kind is str or (isinstance(data, dict) and "opaque" in data):
        raise Unsupported(f"an argument of type {kind.__name__} in another process")
    return data


def unpack(data: Any, resolve: Resolve, callable_of: Callable[[Behaviour], Native]) -> Any:
    """The argument that `pack` wrote: with what handles stand for, and with native callables for behaviours.

    Args:
        data: JSON data.
        resolve: from the name of a handle to what it stands for.
        callable_of: makes a behaviour native.
    """

    def read(data: Any) -> Any:
        if type(data) is list:
            return tuple(map(read, data))
        if type(data) is not dict:
            return data
        if len(data) == 1:
            ((tag, body),) = data.items()
            if tag == "ref" and type(body) is str:
                return resolve(body)
            if tag == "list" and type(body) is list:
                return list(map(read, body))
            if tag in ("dict", "mapping") and type(body) is list:
                made = dict(map(read, body))
                return made if tag == "dict" else MappingProxyType(made)
        item = decode(data)
        return callable_of(_bound(item, resolve, callable_of)) if isinstance(item, Behaviour) else item

    return read(data)


def _bound(behaviour: Behaviour, resolve: Resolve, callable_of: Callable[[Behaviour], Native]) -> Behaviour:
    """The behaviour with what its handles stand for, as a native closure would hold them."""
    local = set(behaviour.parameters)
    for act in behaviour.acts:
        local.update(act.result if isinstance(act.result, tuple) else {act.result or ""})

    def bound(item: Any) -> Any:
        if isinstance(item, Ref):
            return resolve(item.name) if item.name.startswith("_") and item.name not in local else item
        if isinstance(item, tuple):
            return tuple(map(bound, item))
        if isinstance(item, dict):
            return {key: bound(value) for key, value in item.items()}
        return callable_of(_bound(item, resolve, callable_of)) if isinstance(item, Behaviour) else item

    return behaviour.mapped(bound)


# --- answers ------------------------------------------------------------------------------------------------------


def raised(kinds: frozenset[str], name: str, text: str) -> dict[str, Any]:
    """An exception or warning as data."""
    return {"kinds": sorted(kinds), "type": name, "text": text}


def read_raised(data: Any) -> tuple[frozenset[str], str, str]:
    """The inverse of `raised`. MalformedMessage where it is none."""
    if isinstance(data, dict) and set(data) == {"kinds", "type", "text"}:
        kinds, name, text = data["kinds"], data["type"], data["text"]
        if isinstance(kinds, list) and all(isinstance(part, str) for part in (*kinds, name, text)):
            return frozenset(kinds), name, bounded(text)
    raise MalformedMessage("an error is an object with kinds, type and text")


def read_answer(line: bytes) -> dict[str, Any]:
    """An answer as an object of the one form. MalformedMessage where it is none."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedMessage("an answer is one line of JSON") from None
    outcomes = {"returned", "raised", "unsupported"}
    if not isinstance(answer, dict) or len(outcomes & set(answer)) != 1 or set(answer) - outcomes - {"warnings"}:
        raise MalformedMessage("an answer says what was returned, what was raised or what is not supported")
    if not isinstance(answer.get("unsupported", ""), str) or not isinstance(answer.get("warnings", []), list):
        raise MalformedMessage("what is not supported is a text, warnings are a list")
    return answer


def read_greeting(line: bytes) -> dict[str, Any]:
    """A greeting as an object of the one form. MalformedMessage where it is none."""
    try:
        greeting = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedMessage("it wrote into the channel of its answers") from None
    known = {"message": int, "gradspec": str, "python": str}
    if not isinstance(greeting, dict) or not all(isinstance(greeting.get(key), known[key]) for key in known):
        raise MalformedMessage("it wrote into the channel of its answers")
    body = {key: greeting[key] for key in greeting if key not in known}
    if set(body) == {"refused"} and isinstance(body["refused"], dict):
        if set(body["refused"]) == {"status", "text", "path", "line"}:
            return greeting
    elif set(body) == {"declared"} and isinstance(body["declared"], dict) and set(body["declared"]) == DECLARED:
        return greeting
    raise MalformedMessage("its greeting holds neither what it declares nor why it cannot begin")
