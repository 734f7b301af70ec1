"""The process that measures, seen from outside: it is started, listened to, and ended where it hangs."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from gradspec.adapters import CouldNotStart
from gradspec.bench.plan import Item, Plan
from gradspec.errors import GradspecError
from gradspec.report.board import LiveLine, duration

SILENCE = 180.0
"""Seconds without a finished measurement after which the process is given up."""

_EXCEPTION = re.compile(r"^(?:E +)?(\w+(?:Error|Exception)\b.*)$", re.MULTILINE)

_STEP = 10
"""Per cent between two lines of progress where a line cannot be redrawn."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Progress(LiveLine):
    """One line: measurements done, what is measured, time gone and left.

    Args:
        title: what is measured.
        items: every measurement in its order.
        console: where to.
    """

    def __init__(self, title: str, items: list[Item], console: Console) -> None:
        super().__init__(console)
        self._title, self._items = title, items
        self._done, self._told = 0, 0

    def done(self, number: int) -> None:
        """So many measurements are done."""
        if not number:
            self._started = time.monotonic()  # loading is not measuring
        self._done = number
        step = 100 * number // len(self._items) // _STEP
        if self._live is None and step > self._told:
            self._told = step
            self.console.print(self.status(), soft_wrap=True)

    @property
    def current(self) -> Item:
        """What is being measured."""
        return self._items[min(self._done, len(self._items) - 1)]

    def status(self) -> Text:
        """The line."""
        gone, total = time.monotonic() - self._started, len(self._items)
        now = f", {self.current.workload} {self.current.size}" if self._done < total else ""
        left = f", about {duration(gone * (total - self._done) / self._done)} left" if 0 < self._done < total else ""
        return Text(f"{self._title}: {self._done}/{total} measurements{now}; {duration(gone)}{left}")


def measure(plan: Plan, progress: Progress) -> dict[str, Any]:
    """Run a plan in a process of its own and return pytest-benchmark's file.

    Raises:
        CouldNotStart: an adapter could not be loaded, or the process died or hung; the text tells of what.
    """
    with tempfile.TemporaryDirectory(prefix="gradspec-bench-") as folder:
        plan_file, raw = Path(folder, "plan.json"), Path(folder, "raw.json")
        plan.write(plan_file)
        with tempfile.TemporaryFile() as said:
            status = _run([str(plan_file), str(raw)], said, progress)
            if not raw.exists():
                raise _ended(f"status {status}{_error_line(said)}", progress)
        data: dict[str, Any] = json.loads(raw.read_text(encoding="utf-8"))
        return data


def _run(arguments: list[str], said: IO[bytes], progress: Progress) -> int:
    child = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "gradspec.bench.child", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=said,
        env=environment(),
    )
    assert child.stdout is not None, "a pipe was asked for"
    try:
        for message in _messages(child.stdout, progress):
            if "done" in message:
                progress.done(message["done"])
            else:
                kind = CouldNotStart if message["status"] == CouldNotStart.status else GradspecError
                raise kind(message["message"])
        status = child.wait(SILENCE)
    except subprocess.TimeoutExpired:
        raise CouldNotStart("nothing was measured: the process did not end after its last measurement") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if status < 0:
        raise _ended(f"signal {-status}", progress)
    return status


def _ended(how: str, progress: Progress) -> CouldNotStart:
    item = progress.current
    return CouldNotStart(
        f"the process that measures ended ({how}) at {item.slot} on {item.workload} {item.size}:"
        " nothing was kept; measure other workloads with --only"
    )


def _messages(stream: IO[bytes], progress: Progress) -> Iterator[dict[str, Any]]:
    """What the child says, line by line, to its end. CouldNotStart where it is silent for too long."""
    lines: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with contextlib.suppress(OSError), stream:
            for line in stream:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=SILENCE)
        except queue.Empty:
            item = progress.current
            raise CouldNotStart(
                f"{item.slot} hangs on {item.workload} {item.size}: nothing came back for {SILENCE:g} seconds"
            ) from None
        if not line:
            return
        yield json.loads(line)


def environment() -> dict[str, str]:
    """The environment of the process: one thread, our search path, and no settings of the user's pytest."""
    search = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own = {"PYTHONPATH": search, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return kept | own | dict.fromkeys(_THREADS, "1")


def _error_line(said: IO[bytes]) -> str:
    """The last line that names an exception, with a colon before it."""
    said.seek(0)
    found = _EXCEPTION.findall(said.read().decode("utf-8", "replace"))
    return f": {found[-1][:200]}" if found else ""


Measure = Callable[[Plan, Progress], dict[str, Any]]
"""What measures a plan: `measure`, or something else in a test."""
