"""What an implementation declares, as JSON data: checked where it is loaded, read where it is not.

This module imports the standard library only: the process that serves an implementation has nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from gradspec.adapter import OPTIONAL, Adapter
from gradspec.adapters import guarded
from gradspec.errors import GradspecError
from gradspec.programs.operations import OPERATIONS

MAX_RANK = 64
DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}) | {
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
}
"""The element types that can be declared."""

_SETS = ("features", "operations", "keywords")
_SEQUENCES = ("dtypes", "devices")
_TEXTS = ("name", "distribution", "version")


class Declared(Adapter):
    """What an implementation declares, without the implementation: every act is missing.

    Args:
        data: what `declarations` returned.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__()
        self.name, self.distribution = data["name"], data["distribution"]  # type: ignore[misc] # of this instance
        self.features, self.operations = frozenset(data["features"]), frozenset(data["operations"])
        self.keywords, self.max_rank = frozenset(data["keywords"]), data["max_rank"]
        self.dtypes, self.devices = tuple(data["dtypes"]), tuple(data["devices"])
        self._version = data["version"]

    def version(self) -> str:
        """The version that was declared."""
        return str(self._version)


def declarations(adapter: Adapter, argument: str) -> dict[str, Any]:
    """What an adapter declares, as JSON data with sorted names.

    Args:
        adapter: the loaded adapter.
        argument: how the user named it, for messages.

    Raises:
        GradspecError: a declaration has the wrong type, or names an operation, keyword or dtype that does not exist.
        CouldNotStart: asking for the version raised.
    """
    data: dict[str, Any] = {}
    for name in _SETS:
        data[name] = _names(argument, name, getattr(adapter, name), (set, frozenset))
    for name in _SEQUENCES:
        data[name] = _names(argument, name, getattr(adapter, name), (list, tuple))
    data["max_rank"] = adapter.max_rank
    if type(adapter.max_rank) is not int or not 0 <= adapter.max_rank <= MAX_RANK:
        raise GradspecError(f"{argument}: max_rank is {adapter.max_rank!r}: write a number from 0 to {MAX_RANK}")
    for name in _TEXTS:
        data[name] = guarded(argument, None, adapter.version) if name == "version" else getattr(adapter, name)
        if not isinstance(data[name], str):
            raise GradspecError(f"{argument}: {name} is {type(data[name]).__name__}, not a text")
    if not data["name"]:
        raise GradspecError(f"{argument}: the adapter has no name: give its class an attribute `name`")
    if not data["dtypes"]:
        raise GradspecError(f"{argument}: dtypes is empty: name the element types, such as float64")
    _known(argument, "dtypes", data["dtypes"], DTYPES)
    _known(argument, "operations", data["operations"], OPERATIONS)
    _known(argument, "keywords", data["keywords"], OPTIONAL)
    return data


def check_features(argument: str, declared: Adapter, known: Collection[str]) -> None:
    """GradspecError where a declared feature is not one of spec/features.toml."""
    _known(argument, "features", sorted(declared.features), known)


def _names(argument: str, what: str, found: Any, wanted: tuple[type, ...]) -> list[str]:
    names: list[Any] = list(cast("Collection[Any]", found)) if isinstance(found, wanted) else [None]
    if not all(isinstance(name, str) for name in names):
        raise GradspecError(f"{argument}: {what} is {type(found).__name__}: write a {wanted[-1].__name__} of names")
    return names if what in _SEQUENCES else sorted(names)


def _known(argument: str, what: str, names: Collection[str], known: Collection[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GradspecError(f"{argument}: {what} declares {unknown[0]!r}, which does not exist")
