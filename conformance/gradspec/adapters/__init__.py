"""From what the user writes on the command line to an adapter.

    torch              a shipped adapter, by name
    module:attr        a class, instance or zero-argument factory in an importable module
    file.py[:attr]     the same in a file; without attr the one adapter class that the file defines

Loading runs code that the user chose, which may do anything: whatever it raises becomes `CouldNotStart` with the place.
This module imports the standard library only.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Self

from gradspec.adapter import Adapter
from gradspec.errors import GradspecError

__all__ = ["CouldNotStart", "Interrupts", "guarded", "load_adapter", "shipped"]

_FILE = re.compile(r"(?P<path>.*\.py)(?::(?P<attr>[^:\\/]*))?")
_NOT_ADAPTERS = frozenset({"torch_like"})
_LONGEST = 300


class CouldNotStart(GradspecError):
    """The implementation could not be started: exit status 3, never a verdict about it."""

    status = 3


def shipped() -> list[str]:
    """The names of the adapters in this package."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in _NOT_ADAPTERS)


def load_adapter(argument: str) -> Adapter:
    """The adapter that the user named.

    Args:
        argument: a shipped name, `module:attr` or `file.py[:attr]`. The attribute is an adapter class, an instance, or
            a function without parameters that returns one.

    Raises:
        GradspecError: the name leads nowhere, or to something that is no adapter.
        CouldNotStart: the code that it leads to raised.
    """
    if argument.startswith("stdio:"):
        raise GradspecError(
            f"{argument}: programs that speak the protocol on stdin and stdout come later; name a Python adapter"
        )
    file = _FILE.fullmatch(argument)
    if file:
        return _from_file(argument, Path(file["path"]), file["attr"])
    name, colon, attribute = argument.partition(":")
    if colon:
        return _from_module(argument, name, attribute)
    if argument not in shipped():
        raise GradspecError(
            f"there is no adapter {argument!r}{_near(argument, shipped())}; shipped are {', '.join(shipped())};"
            " one of your own is written module:attr or file.py:attr"
        )
    return _from_shipped(argument)


# --- the three ways -----------------------------------------------------------------------------------------------


def _from_shipped(name: str) -> Adapter:
    if name == "torch":
        _the_real_torch()
    module = guarded(name, None, lambda: importlib.import_module(f"{__name__}.{name}"))
    return _made(name, module, _only_class(name, module))


def _from_module(argument: str, name: str, attribute: str) -> Adapter:
    if not name or not attribute.isidentifier():
        raise GradspecError(f"{argument!r} is no adapter: write module:attr, such as mylib.testing:MyAdapter")
    _findable(Path.cwd())

    def load() -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise GradspecError(f"{argument}: no module is called {error.name!r}") from None
            raise

    module = guarded(argument, None, load)
    return _made(argument, module, _attribute(argument, module, attribute))


def _from_file(argument: str, path: Path, attribute: str | None) -> Adapter:
    if not path.is_file():
        raise GradspecError("there is no such file", path=path)
    if attribute == "":
        raise GradspecError(f"{argument!r} names no attribute after the colon: write file.py:attr or file.py")
    _findable(path.resolve().parent)
    name = f"_gradspec_adapter_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None, "a file that ends in .py has a loader"
    assert spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up there
    execute = spec.loader.exec_module
    guarded(argument, path, lambda: execute(module))
    found = _only_class(argument, module) if attribute is None else _attribute(argument, module, attribute)
    return _made(argument, module, found)


def _findable(folder: Path) -> None:
    """Modules in `folder` can be imported, but hide none that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _attribute(argument: str, module: ModuleType, attribute: str) -> Any:
    missing = object()
    found = guarded(argument, _file_of(module), lambda: getattr(module, attribute, missing))
    if found is missing:
        names = [name for name in dir(module) if not name.startswith("_")]
        raise GradspecError(f"{argument}: the module has no attribute {attribute!r}{_near(attribute, names)}")
    return found


def _only_class(argument: str, module: ModuleType) -> type[Adapter]:
    found = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, Adapter) and item.__module__ == module.__name__
    ]
    if not found:
        raise GradspecError(f"{argument} defines no subclass of gradspec.adapter.Adapter: write one, or file.py:attr")
    if len(found) > 1:
        names = ", ".join(item.__name__ for item in found)
        raise GradspecError(
            f"{argument} defines several adapters ({names}): say which, as {argument}:{found[0].__name__}"
        )
    return found[0]


def _made(argument: str, module: ModuleType, found: Any) -> Adapter:
    """The adapter that a class, factory or instance stands for."""
    made = found if isinstance(found, Adapter) or not callable(found) else guarded(argument, _file_of(module), found)
    if not isinstance(made, Adapter):
        came = f"{found!r} is" if made is found else f"it returned {type(made).__name__}, which is"
        raise GradspecError(f"{argument}: {came[:_LONGEST]} no gradspec.adapter.Adapter")
    return made


# --- whose torch is it --------------------------------------------------------------------------------------------


def _the_real_torch() -> None:
    """Refuse a module called torch that another distribution provides: a verdict on it would carry torch's name.

    candle-python, for one, installs a loader that answers to `import torch`.
    """
    try:
        module = guarded("torch", None, lambda: importlib.import_module("torch"))
    except CouldNotStart as error:
        if error.__cause__ is not None and getattr(error.__cause__, "name", None) == "torch":
            raise CouldNotStart("torch is not installed: install it with pip install 'gradspec[torch]'") from None
        raise
    owner = _owner(module)
    if owner != "torch":
        whose = f"the distribution {owner}" if owner else "no installed distribution"
        raise CouldNotStart(
            f"`import torch` is answered by {whose}, not by torch: check it by an adapter of its own, or install torch"
        )


def _owner(module: ModuleType) -> str | None:
    """The distribution that a module's file belongs to."""
    name, file = module.__name__, Path(getattr(module, "__file__", None) or "").resolve()
    own = _folder(name, name)
    if own is not None and own in file.parents:
        return name
    owners = importlib.metadata.packages_distributions()
    for folder in file.parents:
        for owner in owners.get(folder.name, ()):
            if _folder(owner, folder.name) == folder:
                return owner
    # a build from source lies outside site-packages, where nothing else of that name is then
    return name if own is not None and not own.exists() else None


def _folder(distribution: str, package: str) -> Path | None:
    """Where a distribution has put a package; None where it is not installed."""
    try:
        return Path(str(importlib.metadata.distribution(distribution).locate_file(package))).resolve()
    except importlib.metadata.PackageNotFoundError:
        return None


# --- code that may do anything ------------------------------------------------------------------------------------


class Interrupts:
    """Tells a Ctrl-C of the user from a KeyboardInterrupt that an implementation raised.

    Used as a context manager; outside the main thread, where no signal arrives, it only says that there was none.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def _arrived(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


def guarded(argument: str, file: Path | None, code: Callable[[], Any]) -> Any:
    """Run code of the user. CouldNotStart where it raises, with the place; its cause is what was raised.

    What it warns of is its own affair: where warnings are errors (`-W error`), an old import must not keep it out.
    """
    with Interrupts() as interrupts, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return code()
        except GradspecError:
            raise
        except BaseException as error:
            if interrupts.seen:
                raise
            raise CouldNotStart(f"{argument} could not be started: {_told(error, file)}") from error


def _told(error: BaseException, file: Path | None) -> str:
    """Type, text and place of an exception in one line; the place in the adapter's own file, if it came through it."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - a message that cannot even be read
        lines = ["(a message that cannot be read)"]
    text = f"{type(error).__name__}: {lines[0] if lines else '(no message)'}"[:_LONGEST]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg}, at {_shown(error.filename)}:{error.lineno}"
    ours = (str(Path(__file__).resolve()), "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in ours]
    frames = [frame for frame in frames if "importlib" not in Path(frame.filename).parts[-2:-1]]
    own = [frame for frame in frames if file is not None and Path(frame.filename).resolve() == file.resolve()]
    if not frames:
        return text
    place = (own or frames)[-1]
    return f"{text}, at {_shown(place.filename)}:{place.lineno}"


def _shown(filename: str) -> str:
    """A path below the current folder as it is seen from there, else the name of the file."""
    path = Path(filename)
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else path.name


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=2)
    return f", did you mean {' or '.join(close)}?" if close else ""
