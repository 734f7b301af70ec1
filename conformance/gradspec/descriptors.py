"""Descriptors and statuses of processes that hold an implementation.

This module imports the standard library only: the process that serves an implementation has nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it: one call of the system may take a part only."""
    while data:
        data = data[os.write(descriptor, data) :]


def own_output() -> int:
    """What standard output was, for this process alone, not inherited by what it starts; prints go to stderr now."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor


def muffle() -> None:
    """What an implementation writes to the descriptors 1 and 2 goes nowhere, however much it is."""
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def status_in_words(status: int) -> str:
    """An exit status, negative for a signal: "exit status 3", "SIGKILL"."""
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
