"""The server: an implementation in a process of its own, spoken to in JSON lines on stdin and stdout.

    gradspec serve ADAPTER

It takes the descriptors of the protocol for itself before it imports the implementation, so that nothing that the
implementation prints, in C either, gets between the messages (`messages.py`). It ends when its input does.

This module and all that it imports need the standard library only: an environment that serves an implementation needs
no more than that implementation.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import platform
import select
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from gradspec import __version__
from gradspec.adapter import ACTS, ActInfo, Adapter, Native, Unsupported
from gradspec.adapters import load_adapter
from gradspec.declared import declarations
from gradspec.descriptors import write_all
from gradspec.errors import GradspecError
from gradspec.journal import limit_memory
from gradspec.messages import HANDLES, VERSION, line_of, raised, reduced, unpack
from gradspec.results import fault_of
from gradspec.wire import MAX_ITEMS, bounded, encode

ORPHAN = 3.0
"""A server whose client is gone ends by itself after so many times the limit of an example."""

_NOTHING = ActInfo("", "none", {})


def serve(argument: str, *, timeout: float = 0.0, memory: int = 0, owner: int = 0) -> NoReturn:
    """Serve an adapter on stdin and stdout until stdin ends, then end the process.

    Args:
        argument: a shipped name, `module:attr` or `file.py[:attr]`.
        timeout: seconds that one example may take, which the client watches: a server that hangs in one although its
            client is gone ends by itself some time later. 0 for no limit.
        memory: MiB that the process may use, where the system can hold it to that; 0 for no limit.
        owner: the process that starts this one, in a thread that lives as long as it does; this one is killed when
            that one ends, where the system can do it. 0 for none.

    Raises:
        GradspecError: the implementation could not be started; the greeting has said so too.
    """
    requests, answers = _channel()
    watched = not (owner and _die_with(owner, requests)) and timeout > 0
    limit_memory(memory)
    who = {"message": VERSION, "gradspec": __version__, "python": platform.python_version()}
    try:
        adapter = load_adapter(argument)
        greeting = line_of(who | {"declared": declarations(adapter, argument)})
    except GradspecError as error:
        told = {"status": error.status, "text": error.message, "path": error.path, "line": error.line}
        write_all(answers, line_of(who | {"refused": told}))
        raise
    server = Server(adapter)
    write_all(answers, greeting)
    for line in requests:
        if watched:
            faulthandler.dump_traceback_later(ORPHAN * timeout, exit=True)
        write_all(answers, server.answer(line))
        if watched:
            faulthandler.cancel_dump_traceback_later()
    os._exit(0)  # an implementation may hang or crash at exit, which is nothing to do with its verdicts


def _channel() -> tuple[io.BufferedReader, int]:
    """The descriptors of the protocol; what used to be them leads nowhere and to stderr."""
    requests, answers = os.dup(0), os.dup(1)  # not inherited by what the implementation starts
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # stderr is closed
        os.dup2(nowhere, 1)
    os.close(nowhere)
    return open(requests, "rb"), answers  # noqa: PTH123 - for the life of the process


def _die_with(owner: int, requests: io.BufferedReader) -> bool:
    """Whether a hang, also one that holds the interpreter's lock, will not survive the kill -9 of who waits for it."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # noqa: PLC0415 - not every interpreter has it

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (ImportError, OSError, AttributeError):
        return False
    poll = select.poll()
    poll.register(requests, 0)
    if poll.poll(0):  # it was gone before
        os._exit(0)
    return os.getppid() == owner  # else the interpreter was started by a script, which may survive


class Server:
    """Performs the acts of one client.

    Args:
        adapter: the implementation, loaded; what it may change for the whole process is put back to what it is now at
            the start of each example.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.objects: dict[str, Native] = {}
        self.names: dict[str, str] = {}
        self._process = _Process()
        adapter.lookup = self._called

    def answer(self, line: bytes) -> bytes:
        """The line that answers a line. Whatever goes wrong in it is said there."""
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                answer = self._outcome(line)
            except Unsupported as error:
                answer = {"unsupported": bounded(str(error))}
            except BaseException as error:  # noqa: BLE001 - whatever an implementation raises is data
                answer = {"raised": raised(*reduced(error, self.adapter.error_kinds))}
            drawn = [w.message for w in noted if isinstance(w.message, Warning)]
            if drawn:
                found = [reduced(warning, self.adapter.warning_kinds) for warning in drawn[:MAX_ITEMS]]
                answer["warnings"] = [raised(*parts) for parts in found]
        return line_of(answer)

    def _outcome(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        for name in request.get("frees", ()):
            self.objects.pop(name, None)
        self.names.update(request.get("names", {}))
        info, result = self._perform(request)
        try:
            return self._returned(info, request.get("result", ""), result)
        except Exception:  # noqa: BLE001 - a result that breaks when it is read
            return _nonsense(f"{info.name} returned what cannot be read")

    def _perform(self, request: Mapping[str, Any]) -> tuple[ActInfo, Any]:
        name = request["act"]
        if name == "start":
            self.names.clear()
            self._process.restore()
            return _NOTHING, self.adapter.start()  # type: ignore[func-returns-value] # whatever it is
        arguments = [self._read(item) for item in request.get("arguments", ())]
        if name == "enter":
            return _NOTHING, arguments[0].__enter__()
        if name == "leave":
            return _NOTHING, arguments[0].__exit__(None, None, None)
        if name not in ACTS:
            raise Unsupported(f"the act {name!r}")
        keywords = {key: self._read(item) for key, item in request.get("keywords", {}).items()}
        return ACTS[name], getattr(self.adapter, name)(*arguments, **keywords)

    def _read(self, item: Any) -> Any:
        return unpack(item, self.objects.__getitem__, self.adapter.callable)

    def _called(self, name: str) -> Native:
        """What a handle stands for that the client knows by this name."""
        held = self.names.get(name, "")
        if held not in self.objects:
            raise KeyError(f"no living handle is called {name!r}")
        return self.objects[held]

    def _returned(self, info: ActInfo, name: str, result: Any) -> dict[str, Any]:
        if info.returns == "none":
            return {"returned": None}
        if info.returns in HANDLES:
            several = info.returns == "tensors" and isinstance(result, list | tuple)
            if several and len(result) > MAX_ITEMS:
                return _nonsense(f"{info.name} returned {len(result)} tensors")
            if not several:
                return {"returned": self._kept(name, result)}
            return {"returned": [self._kept(f"{name}_{n}", part) for n, part in enumerate(result)]}
        if fault := fault_of(info.returns, result):
            return _nonsense(f"{info.name} returned {fault}")
        return {"returned": encode(result)}

    def _kept(self, name: str, native: Native) -> dict[str, Any]:
        if native is None:
            return {"none": True}
        self.objects[name] = native
        return {"ref": name}


def _nonsense(text: str) -> dict[str, Any]:
    """The session says it in the same words, of an implementation in its own process."""
    return {"raised": raised(frozenset({"nonsense"}), "nonsense", text)}


class _Process:
    """What an implementation may change for the whole process, as it was found."""

    def __init__(self) -> None:
        self.folder = os.getcwd()  # noqa: PTH109 - a plain string is put back
        self.streams = sys.stdout, sys.stderr
        self.limit = sys.getrecursionlimit()
        self.errors: Any = None
        self._numpy()

    def _numpy(self) -> None:
        """NumPy's error state, once the implementation has loaded it; nothing here does."""
        numpy = sys.modules.get("numpy")
        with contextlib.suppress(Exception):  # not loaded, or not quite
            if self.errors is None:
                self.errors = numpy.geterr()  # type: ignore[union-attr]
            else:
                numpy.seterr(**self.errors)  # type: ignore[union-attr]

    def restore(self) -> None:
        """Put it back."""
        self._numpy()
        sys.stdout, sys.stderr = self.streams
        sys.setrecursionlimit(self.limit)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
