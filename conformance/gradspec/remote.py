"""The contract over a second transport: an implementation in another interpreter, spoken to in JSON lines.

The session finds no difference: handles are names of objects over there, behaviours travel as data, errors and warnings
come back with their kinds, type and text. A process that ends, or an example that takes too long, raises `Gone`; the
next example has a fresh process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import select
import signal
import subprocess
import threading
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gradspec.adapter import ACTS, ActInfo, Adapter, Gone, Native, Unsupported
from gradspec.adapters import CouldNotStart, load_adapter
from gradspec.behaviour import Behaviour
from gradspec.bundle import command, environment
from gradspec.declared import Declared
from gradspec.descriptors import status_in_words
from gradspec.errors import GradspecError
from gradspec.messages import HANDLES, LARGEST, VERSION, line_of, pack, read_answer, read_greeting, read_raised
from gradspec.wire import MalformedMessage, decode

PATIENCE = 60.0
"""Seconds that an implementation may take to start."""

_TICK = 0.25
"""Seconds after which a silent process is looked at: what it started may hold its end of a pipe open."""


def open_adapter(
    argument: str, python: str | None = None, *, timeout: float = 0.0, memory: int | None = None
) -> Adapter:
    """The adapter that the user named, here or in a process of another interpreter.

    Args:
        argument: a shipped name, `module:attr` or `file.py[:attr]`.
        python: the interpreter that serves it; None for this process.
        timeout: seconds that one example may take in another interpreter; 0 for no limit.
        memory: MiB that the process of another interpreter may use, None or 0 for no limit.

    Raises:
        GradspecError: the name leads nowhere, to something that is no adapter, or to malformed declarations.
        CouldNotStart: the implementation or the interpreter could not be started.
    """
    if python is None:
        return load_adapter(argument)
    return Remote(argument, python, timeout=timeout, memory=memory or 0)


class RemoteError(Exception):
    """What an implementation raised in its process; the name of the subclass is that of its type there."""

    def __init__(self, text: str, kinds: frozenset[str]) -> None:
        super().__init__(text)
        self.kinds = kinds


class RemoteWarning(Warning):
    """A warning of an implementation in its process; the name of the subclass is that of its type there."""

    def __init__(self, text: str, kinds: frozenset[str]) -> None:
        super().__init__(text)
        self.kinds = kinds


class RemoteObject:
    """Stands for an object in the process of the implementation, which drops it when nothing here holds this."""

    __slots__ = ("__weakref__", "_frees", "handle_name")

    def __init__(self, name: str, frees: list[str]) -> None:
        self.handle_name, self._frees = name, frees

    def __del__(self) -> None:
        self._frees.append(self.handle_name)


class RemoteContext(RemoteObject):
    """Stands for a context manager over there."""

    __slots__ = ("_remote",)

    def __init__(self, name: str, frees: list[str], remote: Remote) -> None:
        super().__init__(name, frees)
        self._remote = remote

    def __enter__(self) -> None:
        self._remote.perform(ActInfo("enter", "none", {}), (self,), {})

    def __exit__(self, *_: object) -> None:
        self._remote.perform(ActInfo("leave", "none", {}), (self,), {})


class Remote(Declared):
    """An adapter that is served by another interpreter.

    Args:
        argument: a shipped name, `module:attr` or `file.py[:attr]`, as seen from the current folder.
        python: the interpreter: a path or a command. Only the implementation must be installed there.
        timeout: seconds from `start` to the end of the last act of an example; 0 for no limit.
        memory: MiB that its process may use, where the system can hold it to that; 0 for no limit.

    Attributes:
        python: the version of the interpreter.
        pid: the number of its process, 0 where there is none just now.

    Raises:
        GradspecError: the name leads nowhere, to something that is no adapter, or to malformed declarations.
        CouldNotStart: the implementation or the interpreter could not be started.
    """

    def __init__(self, argument: str, python: str, *, timeout: float = 0.0, memory: int = 0) -> None:
        self._argument, self._interpreter = argument, python
        self._timeout, self._memory = timeout, memory
        self._deadline: float | None = None
        self._gone = Gone("crashed", "the process was ended")
        self._lock = threading.RLock()
        self._count = 0
        self._names: dict[str, str] = {}
        self._child: _Child | None
        self._child, greeting = self._started()
        self._data, self.python = greeting["declared"], str(greeting["python"])
        super().__init__(self._data)

    @property
    def pid(self) -> int:
        """The number of the process of the implementation, 0 where there is none just now."""
        return 0 if self._child is None else self._child.pid

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    # -- the process -------------------------------------------------------------------------------------------------

    def _started(self) -> tuple[_Child, dict[str, Any]]:
        """A process that has greeted, and its greeting."""
        # only the end of the thread that starts it can be noticed over there
        owner = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        words = command(self._interpreter, self._argument, timeout=self._timeout, memory=self._memory, owner=owner)
        try:
            child = _Child(words)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise CouldNotStart(f"--python {self._interpreter}: it cannot be run: {why}") from None
        try:
            return child, self._understood(child.receive(time.monotonic() + PATIENCE))
        except (Gone, MalformedMessage) as error:
            child.end()
            raise self._explained(error) from None
        except BaseException:
            child.end()
            raise

    def _understood(self, line: bytes) -> dict[str, Any]:
        """A greeting. GradspecError where it is a refusal, MalformedMessage where it is none."""
        greeting = read_greeting(line)
        refused = greeting.get("refused")
        if refused is not None:
            kind = CouldNotStart if refused["status"] == CouldNotStart.status else GradspecError
            raise kind(refused["text"], path=refused["path"], line=refused["line"])
        if greeting["message"] != VERSION:
            raise CouldNotStart(f"{self._argument}: its server speaks version {greeting['message']}, not {VERSION}")
        return greeting

    def _explained(self, error: BaseException) -> CouldNotStart:
        """Why a process did not greet."""
        if isinstance(error, Gone) and error.verdict == "timed_out":
            return CouldNotStart(f"{self._argument} could not be started: nothing came back for {PATIENCE:g} seconds")
        probe = [self._interpreter, "-c", "import sys; print('Python', sys.version_info[0])"]
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            done = subprocess.run(  # noqa: S603 - what the user named
                probe, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL, env=environment()
            )
            if done.stdout.startswith(b"Python"):
                return CouldNotStart(f"{self._argument} could not be started: {error} while it was loaded")
        return CouldNotStart(f"--python {self._interpreter}: this is no Python interpreter that works")

    # -- acts --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin an example, in a fresh process where the one before has ended."""
        with self._lock:
            if self._child is None:
                self._restart()
            self._names = {}
            self._deadline = time.monotonic() + self._timeout if self._timeout else None
            self._result(ActInfo("start", "none", {}), "", self._ask({"act": "start"}))

    def _restart(self) -> None:
        try:
            self._child, greeting = self._started()
        except GradspecError as error:
            raise Gone("crashed", f"its process ended and cannot be started again: {error}") from None
        if greeting["declared"] != self._data:
            self.close()
            raise Gone("crashed", "its process ended, and the next one declares something else")

    def perform(self, info: ActInfo, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """One act over there. What it returned, or raises what it raised there.

        Raises:
            Gone: the process ended or took too long.
            Unsupported: the adapter said so, or an argument cannot be sent.
            RemoteError: the implementation raised.
        """
        request: dict[str, Any] = {"act": info.name, "arguments": [pack(item) for item in arguments]}
        if keywords:
            request["keywords"] = {key: pack(item) for key, item in keywords.items()}
        with self._lock:
            name = ""
            if info.returns in HANDLES:
                self._count += 1
                name = request["result"] = f"_{self._count}"
            return self._result(info, name, self._ask(request))

    def alive(self, watch: Native) -> bool:
        """Whether the object still exists, after collection of garbage here too: handles may be part of it."""
        info = ACTS["alive"]
        lives: bool = self.perform(info, (watch,), {})
        if lives is True:
            gc.collect()
            lives = self.perform(info, (watch,), {})
        return lives

    def named(self, name: str, native: Native) -> None:
        """The suite calls an object by this name, which a behaviour over there may look up."""
        if isinstance(native, RemoteObject):
            self._names[name] = native.handle_name

    def callable(self, behaviour: Behaviour) -> Any:
        """Behaviours travel as data."""
        return behaviour

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        """As the adapter over there said."""
        return error.kinds if isinstance(error, RemoteError) else frozenset()

    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        """As the adapter over there said."""
        return warning.kinds if isinstance(warning, RemoteWarning) else frozenset()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        child = self._child
        if child is None:
            raise self._gone
        if child.frees:
            dropped = len(child.frees)  # a finaliser may add to them at any time
            request["frees"] = child.frees[:dropped]
            del child.frees[:dropped]
        if self._names:
            request["names"], self._names = self._names, {}
        try:
            child.send(line_of(request), self._deadline)
            return read_answer(child.receive(self._deadline))
        except Gone as gone:
            reason = f"no end after {self._timeout:g} seconds" if gone.verdict == "timed_out" else gone.reason
            self._lose(gone.verdict, reason)
        except MalformedMessage:
            self._nonsense()
        except BaseException:  # an interrupt: what the process answers later would be taken for something else
            self.close()
            raise

    def _lose(self, verdict: str, reason: str) -> NoReturn:
        self.close()
        self._gone = Gone(verdict, reason)
        raise self._gone from None

    def _nonsense(self) -> NoReturn:
        self._lose("crashed", "what came back is no message of the protocol, the process was ended")

    def _result(self, info: ActInfo, name: str, answer: Mapping[str, Any]) -> Any:
        """What an answer says. Warnings are issued again before it."""
        try:
            result: Any = None
            if "returned" in answer and info.returns != "none":
                result = self._returned(info, name, answer["returned"])
            drawn = [read_raised(one) for one in answer.get("warnings", ())]
            failure = _error(*read_raised(answer["raised"])) if "raised" in answer else None
            noted = [_warning(*parts) for parts in drawn]
        except (MalformedMessage, ValueError):
            self._nonsense()
        for warning in noted:
            warnings.warn(warning, stacklevel=4)
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if failure is not None:
            raise failure
        return result

    def _returned(self, info: ActInfo, name: str, data: Any) -> Any:
        if info.returns not in HANDLES:
            return decode(data)
        if isinstance(data, list):
            return tuple(self._object(info, f"{name}_{n}", part) for n, part in enumerate(data))
        return self._object(info, name, data)

    def _object(self, info: ActInfo, name: str, data: Any) -> RemoteObject | None:
        if data == {"none": True}:
            return None
        if data != {"ref": name} or self._child is None:
            raise MalformedMessage(f"an object was expected under the name {name!r}")
        frees = self._child.frees
        return RemoteContext(name, frees, self) if info.returns == "context" else RemoteObject(name, frees)


def _error(kinds: frozenset[str], name: str, text: str) -> RemoteError:
    error: RemoteError = _subclass(RemoteError, name)(text, kinds)
    return error


def _warning(kinds: frozenset[str], name: str, text: str) -> RemoteWarning:
    warning: RemoteWarning = _subclass(RemoteWarning, name)(text, kinds)
    return warning


@functools.lru_cache(maxsize=1000)
def _subclass(base: type[Any], name: str) -> Any:
    return type(name, (base,), {})


def _sent(info: ActInfo) -> Any:
    def method(self: Remote, *arguments: Any, **keywords: Any) -> Any:
        return self.perform(info, arguments, keywords)

    method.__name__ = info.name
    return method


for _info in ACTS.values():
    if _info.name not in vars(Remote):
        setattr(Remote, _info.name, _sent(_info))


# --- lines to and from a process ----------------------------------------------------------------------------------


class _Child:
    """A process that answers each line with a line. It never survives this one: it ends when its input does.

    Attributes:
        frees: the names of objects over there that nothing here holds any more.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.frees: list[str] = []
        self._process = subprocess.Popen(  # noqa: S603 - what the user named
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for this process; what that one starts ends with it
        )
        assert self._process.stdin is not None, "it was asked for"
        assert self._process.stdout is not None, "it was asked for"
        self.pid = self._process.pid
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._out, select.POLLIN)
        self._writable.register(self._in, select.POLLOUT)
        self.end = weakref.finalize(self, _end, self._process)

    def send(self, line: bytes, deadline: float | None) -> None:
        """Write a line. Gone where it cannot be before the deadline (of the monotonic clock; None for none)."""
        while line:
            try:
                line = line[os.write(self._in, line) :]
            except BlockingIOError:
                self._wait(self._writable, deadline)
            except OSError:
                raise Gone("crashed", self._ending()) from None

    def receive(self, deadline: float | None) -> bytes:
        """The next line. Gone where there is none before the deadline; MalformedMessage where it is no single line."""
        parts, size = [], 0
        while True:
            self._wait(self._readable, deadline)
            part = os.read(self._out, 1 << 16)
            if not part:
                raise Gone("crashed", self._ending())
            parts.append(part)
            size += len(part)
            end = part.find(b"\n")
            if end >= 0:
                if end + 1 < len(part):
                    raise MalformedMessage("several lines came back for one")
                return b"".join(parts)
            if size > LARGEST:
                raise MalformedMessage(f"a message is longer than {LARGEST} bytes")

    def _wait(self, poll: select.poll, deadline: float | None) -> None:
        while True:
            left = _TICK if deadline is None else min(_TICK, deadline - time.monotonic())
            if left <= 0:
                raise Gone("timed_out", "it takes too long")
            if poll.poll(1000 * left):
                return
            if self._process.poll() is not None and not poll.poll(0):
                raise Gone("crashed", self._ending())

    def _ending(self) -> str:
        """How the process ended, in words."""
        try:
            status = self._process.wait(2 * _TICK)
        except subprocess.TimeoutExpired:
            return "the process closed the channel of its answers"
        return f"the process ended ({status_in_words(status)})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
