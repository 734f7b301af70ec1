"""What is made of the rows of a run: verdicts, the record, the board. Also the schemas of its file formats."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry, Resource

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
FORMATS = ("case", "trace", "message-1", "expectations-1", "record-1")
"""The formats of gradspec that have a schema of their own; they refer to one another as `urn:gradspec:NAME`."""


@functools.cache
def validator(name: str, definition: str = "") -> Draft202012Validator:
    """The validator of one format of FORMATS, or of one of the definitions in it ("step" of "trace")."""
    resources = []
    for known in FORMATS:
        schema = json.loads((SCHEMAS / f"{known}.schema.json").read_text(encoding="utf-8"))
        resources.append((schema["$id"], Resource.from_contents(schema)))
    registry: Registry[Any] = Registry().with_resources(resources)
    fragment = f"#/$defs/{definition}" if definition else ""
    return Draft202012Validator({"$ref": f"urn:gradspec:{name}{fragment}"}, registry=registry)


def first_violation(name: str, data: Any, definition: str = "") -> ValidationError | None:
    """The first thing in `data`, in the order of its places, that the format does not allow; None where it is valid."""
    found = list(validator(name, definition).iter_errors(data))
    first = min(found, key=lambda error: [str(part) for part in error.absolute_path], default=None)
    return None if first is None else best_match([first])  # of several forms that were allowed, the nearest
