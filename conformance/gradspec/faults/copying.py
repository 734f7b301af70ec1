"""A second copy of refgrad under a private name, which a fault may change without touching the installed one.

refgrad uses relative imports only, so importing its files under another name gives a complete, independent package: its
own classes, its own grad mode, its own table of derivative rules.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import weakref
from types import ModuleType
from typing import Any

PREFIX = "_gradspec_fault_"


def private_copy(name: str) -> ModuleType:
    """Import the installed refgrad once more, as `_gradspec_fault_<name>`.

    Args:
        name: an identifier. A former copy of that name is forgotten; who holds it can go on using it.

    Returns:
        The copy, registered in `sys.modules` together with its submodules.
    """
    alias = PREFIX + name
    found = importlib.util.find_spec("refgrad")
    assert found is not None, "refgrad is part of the distribution"
    assert found.origin is not None, "refgrad is a package with a file"
    for known in [each for each in sys.modules if each == alias or each.startswith(f"{alias}.")]:
        del sys.modules[known]
    spec = importlib.util.spec_from_file_location(
        alias, found.origin, submodule_search_locations=list(found.submodule_search_locations or ())
    )
    assert spec is not None, "a file that ends in .py has a loader"
    assert spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module


def part(copy: ModuleType, name: str) -> Any:
    """The submodule of a copy, as "tensor" or "ops.pointwise": some names of the package hide their module."""
    return importlib.import_module(f"{copy.__name__}.{name}")


class Notes:
    """What a fault remembers about tensors, by identity (they compare element by element) and without keeping them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self._known

    def __setitem__(self, tensor: object, note: Any) -> None:
        key, known = id(tensor), self._known
        known[key] = weakref.ref(tensor, lambda _: known.pop(key, None)), note

    def pop(self, tensor: object, default: Any = None) -> Any:
        """The note about a tensor, which is forgotten."""
        return self._known.pop(id(tensor), (None, default))[1]

    def add(self, *tensors: object) -> None:
        """Mark tensors."""
        for tensor in tensors:
            self[tensor] = True

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def living(self) -> list[Any]:
        """The tensors that are noted and still exist, in the order in which they were noted."""
        return [tensor for tensor in (ref() for ref, _ in list(self._known.values())) if tensor is not None]
