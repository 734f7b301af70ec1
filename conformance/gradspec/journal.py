"""What a process that runs items was doing, written down before it does it.

An implementation may crash, or hang while it holds the interpreter's lock: then nothing in its process can tell what
happened. So each example is noted in a file before it is run, `faulthandler` writes to a second file where a fatal
signal hit or where the time ran out (a thread of its own in C, which needs no lock), and the process that gathers the
rows reads both when the other one is gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradspec.descriptors import status_in_words, write_all

if TYPE_CHECKING:
    from gradspec.programs.program import Case

GRACE = 5.0
"""Seconds that a process may take to end by itself."""

_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_FATAL = re.compile(r"Fatal Python error: (?P<what>.*)")
_TIMEOUT = re.compile(r"Timeout \(")
_OURS = Path(__file__).resolve().parent


class Journal:
    """The notes of this process, of which there is one.

    Args:
        folder: where the files go: `PID.json` and `PID.faults`.
        timeout: seconds that one example may take; the process ends where one takes longer. 0 for no limit.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self.timeout = timeout
        stem = folder / str(os.getpid())
        self._note = os.open(stem.with_suffix(".json"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._faults = os.open(stem.with_suffix(".faults"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.enable(self._faults, all_threads=True)

    def of(self, item: str) -> Examples:
        """The notes on the examples of one item."""
        self._write({"item": item, "example": 0, "case": None})
        return Examples(self, item)

    def note(self, item: str, number: int, case: Any) -> None:
        """Note the example that is going to be run, and give it its time; see `Ending` for the arguments."""
        self._write({"item": item, "example": number, "case": case})
        if self.timeout:
            self.limit(self.timeout)

    def limit(self, seconds: float) -> None:
        """The process ends if nothing else is said for so long."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._faults)

    def rest(self) -> None:
        """Nothing of the implementation is running."""
        faulthandler.cancel_dump_traceback_later()

    def ends(self) -> None:
        """The work is done: what the implementation does while its process ends has GRACE seconds."""
        self.limit(GRACE)

    def _write(self, note: dict[str, Any]) -> None:
        os.ftruncate(self._note, 0)
        os.lseek(self._note, 0, os.SEEK_SET)
        write_all(self._note, json.dumps(note).encode())


@dataclass(frozen=True)
class Examples:
    """Notes on the examples of one item: an `engine.Watch`."""

    journal: Journal
    item: str

    def begin(self, number: int, case: Case) -> None:
        """Note it."""
        self.journal.note(self.item, number, case.to_json())

    def end(self) -> None:
        """Its time is no more counted; the note stays, as what runs on in the background may still end the process."""
        self.journal.rest()


@dataclass(frozen=True)
class Ending:
    """How a process ended, as its files and its exit status tell.

    Attributes:
        item: the item whose example ran, "" where none did.
        example: how many examples of it ran before. case: the JSON of the case, None where none is known.
        verdict: "crashed" or "timed_out". reason: a sentence.
    """

    item: str = ""
    example: int = 0
    case: Any = None
    verdict: str = "crashed"
    reason: str = "the process ended"


def ending(folder: Path, pid: int, status: int | None, timeout: float) -> Ending:
    """Read what a process left behind.

    Args:
        folder: of its journal.
        pid: its number.
        status: its exit status, negative for a signal; None where it is not known.
        timeout: the limit that it had, in seconds.
    """
    note, faults = _read(folder / f"{pid}.json"), _text(folder / f"{pid}.faults")
    place = _place(faults)
    where = f", at {place}" if place else ""
    if _TIMEOUT.search(faults):
        verdict, reason = "timed_out", f"no end after {timeout:g} seconds{where}"
    else:
        fatal = _FATAL.search(faults)
        how = fatal["what"].strip() if fatal else "" if status is None else status_in_words(status)
        verdict, reason = "crashed", f"the process ended ({how}){where}" if how else f"the process ended{where}"
    return Ending(str(note.get("item", "")), int(note.get("example", 0)), note.get("case"), verdict, reason)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict):
            return data
    return {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _place(faults: str) -> str:
    """File, line and function where the example was: the innermost frame that is not of Python's own library."""
    threads: list[list[re.Match[str]]] = [[]]
    for line in faults.splitlines():
        if found := _FRAME.fullmatch(line):
            threads[-1].append(found)
        elif "most recent call first" in line:
            threads.append([])
    ours = [frames for frames in threads if any(_within(frame["file"], _OURS) for frame in frames)]
    if not ours:
        return ""
    best = next((frame for frame in ours[-1] if not _standard(frame["file"])), ours[-1][0])
    return f"{Path(best['file']).name}:{best['line']} in {best['function']}"


def _standard(file: str) -> bool:
    paths = sysconfig.get_paths()
    installed = _within(file, Path(paths["purelib"])) or _within(file, Path(paths["platlib"]))
    return file.startswith("<") or (_within(file, Path(paths["stdlib"])) and not installed)


def _within(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)


# --- memory -------------------------------------------------------------------------------------------------------

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SHARE = 0.8


def memory_share(jobs: int) -> int:
    """MiB that each of `jobs` processes may use, so that together they leave a fifth of the machine alone."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no POSIX
        return 0
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_CGROUP.read_text(encoding="ascii")))
    return int(_SHARE * total / jobs) >> 20


def limit_memory(mebibytes: int) -> None:
    """What this process asks for beyond the limit is refused (MemoryError); nothing where the system cannot do it."""
    if not mebibytes:
        return
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:
        return
    limit = mebibytes << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
