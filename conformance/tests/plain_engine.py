"""An adapter over plain floats that needs the standard library only, and does what implementations should not do.

`apply(NAME, x)` does what DOINGS says. The tests of the second transport serve it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from gradspec.adapter import Adapter, Value


class Number:
    """A float that can be added and multiplied, and differentiated."""

    def __init__(self, data: float, parents: tuple[tuple[Number, float], ...] = ()) -> None:
        self.data, self.parents = data, parents
        self.grad: float | None = None

    def backward(self, seed: float = 1.0) -> None:
        if not self.parents:
            self.grad = seed + (self.grad or 0.0)
        for parent, factor in self.parents:
            parent.backward(factor * seed)


def write_all(descriptors: Iterable[int], data: bytes) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # not open, or not for writing
            os.write(descriptor, data)


def fork_and_end() -> NoReturn:
    """What is forked holds every descriptor open while its parent is gone."""
    if os.fork() == 0:
        time.sleep(60)
    os._exit(5)


def close_and_hang() -> None:
    os.closerange(3, 20)
    time.sleep(600)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt("not by the user")


def say_much() -> None:
    print("x" * 10**6)  # noqa: T201 - that is what it is for
    write_all((1, 2), b"junk\n" * 10**6)
    ctypes.CDLL(None).puts(b"junk")


def mess() -> None:
    sys.setrecursionlimit(500)
    os.chdir("/")
    sys.stdout = None  # type: ignore[assignment]


DOINGS: Mapping[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(7),
    "hang": lambda: time.sleep(600),
    "hold": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
    "junk": lambda: write_all(range(3, 20), b"junk\n"),
    "wrong": lambda: write_all(range(3, 20), b'{"returned": {"ref": "_x"}}\n'),
    "long": lambda: write_all(range(3, 20), b"x" * 40000),
    "close": close_and_hang,
    "fork": fork_and_end,
    "interrupt": interrupt,
    "quit": lambda: sys.exit("bye"),
    "print": say_much,
    "mess": mess,
}


class Plain(Adapter):
    name = "plain"
    features = frozenset({"scalar"})
    operations = frozenset({"add", "mul"})

    def version(self) -> str:
        """What is loaded beside the standard library."""
        names = {name.partition(".")[0] for name in sys.modules}
        return " ".join(sorted(names - set(sys.stdlib_module_names)))

    def tensor(self, data: Any, **_: Any) -> Number:
        return Number(data)

    def value(self, x: Number) -> Value:
        return Value((), "float64", x.data)

    def shape(self, x: Number) -> Any:
        return [x.data]

    def dtype(self, x: Number) -> str:
        """What `mess` changes."""
        return f"{x.data} {sys.getrecursionlimit()} {os.getcwd()} {sys.stdout is None}"  # noqa: PTH109

    def apply(self, op: str, *operands: Number, **_: Any) -> Number:
        if op in DOINGS:
            DOINGS[op]()
            return operands[0]
        a, b = operands
        if op == "add":
            return Number(a.data + b.data, ((a, 1.0), (b, 1.0)))
        return Number(a.data * b.data, ((a, b.data), (b, a.data)))

    def backward(self, root: Number, gradient: Any = None, **_: Any) -> None:
        del gradient
        root.backward()

    def grad(self, x: Number) -> Number | None:
        return None if x.grad is None else Number(x.grad)
