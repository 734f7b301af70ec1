"""Grad modes: whether operations of this thread are recorded."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    """What a thread is doing; every thread starts in grad mode (ENGINE-01)."""

    recording = True


state = _State()


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded."""
    return state.recording


class _GradMode:
    """A mode for the extent of a `with` block or of the calls of a decorated function."""

    mode = True

    def __init__(self) -> None:
        self._former: list[bool] = []

    def __enter__(self) -> None:
        self._former.append(state.recording)  # a stack: one object may be entered again inside its own block
        state.recording = self.mode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state.recording = self._former.pop()  # MODE-05, MODE-06

    def fresh(self) -> _GradMode:
        """Another manager of the same mode: calls of a decorated function may overlap between threads."""
        return type(self)()

    def __call__(self, function: F) -> F:
        """The function, with the mode holding while its body runs (MODE-07)."""
        if inspect.isgeneratorfunction(function):
            return cast("F", _generator(self.fresh, function))

        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self.fresh():
                return function(*args, **kwargs)

        return cast("F", decorated)


def _generator(fresh: Callable[[], _GradMode], function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose body, and only its body, sees the mode (MODE-10, MODE-11)."""

    @functools.wraps(function)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        body = function(*args, **kwargs)
        inner = fresh().mode
        step: Callable[[], Any] = functools.partial(next, body)
        try:
            while True:
                outer, state.recording = state.recording, inner
                try:
                    item = step()
                except StopIteration as stop:
                    return stop.value
                finally:
                    inner, state.recording = state.recording, outer
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001
                    step = functools.partial(body.throw, error)
                else:
                    step = functools.partial(body.send, sent)
        finally:
            outer, state.recording = state.recording, inner
            try:
                body.close()
            finally:
                state.recording = outer

    return decorated


class _Parenless(type):
    """Lets `@no_grad` stand for `@no_grad()` (MODE-08)."""

    def __call__(cls, function: Any = None) -> Any:
        manager = super().__call__()
        return manager if function is None else manager(function)


class no_grad(_GradMode, metaclass=_Parenless):  # noqa: N801  torch's name
    """Nothing is recorded: a `with` block, or a decorator with or without parentheses."""

    mode = False


class enable_grad(_GradMode, metaclass=_Parenless):  # noqa: N801  torch's name
    """Operations are recorded, also inside `no_grad`."""

    mode = True


class set_grad_enabled(_GradMode):  # noqa: N801  torch's name
    """Switches recording on or off, at once; as a manager it puts the former mode back at exit (MODE-12, MODE-27)."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._found = state.recording
        state.recording = self.mode

    def __enter__(self) -> None:
        self._former.append(self._found)
        state.recording = self.mode

    def fresh(self) -> _GradMode:
        """A manager that enters the mode without having switched it before."""
        manager = _GradMode()
        manager.mode = self.mode
        return manager

    def __call__(self, function: F) -> F:
        """The function, run in the mode; decorating leaves the caller's mode alone (MODE-09)."""
        state.recording = self._found
        return super().__call__(function)
