"""What an implementation declares, and whether its adapter can be believed, found out in a process of its own.

    python -m gradspec.probe ADAPTER [REQUEST]

loads the adapter and prints lines of JSON: the declarations, or the sentence that says why it could not be started;
where REQUEST asks for an examination, then a line for each operation that is tried alone and for each check of the
self-test, and one before it. An implementation may print, hang, crash or end the interpreter in any of them: that costs
this one step. The process is started anew for what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradspec.adapter import Adapter, Gone
from gradspec.adapters import CouldNotStart
from gradspec.bundle import remove
from gradspec.declared import Declared, check_features, declarations
from gradspec.descriptors import own_output, write_all
from gradspec.errors import GradspecError
from gradspec.remote import Remote, open_adapter

if TYPE_CHECKING:
    from gradspec.capabilities import Capabilities
    from gradspec.report.record import Finding, Qualification

__all__ = ["Declared", "Examined", "check_features", "declarations", "examine", "probe"]

TIMEOUT = 60.0
"""Seconds that an implementation may take to start."""

CHECK_TIMEOUT = 30.0
"""Seconds for one operation or check where nothing else is asked for."""

RESTARTS = 5
"""So many processes that died or hung in an examination end it; what is left is not tried."""

_LARGEST = 1 << 24
"""Bytes of answers; an implementation that writes more into their channel is cut off."""

_TICK = 0.02


@dataclass(frozen=True)
class Examined:
    """What was found out about an implementation before the suite runs.

    Attributes:
        declared: its declarations. findings: what the checks of the self-test said, in their order.
        qualification: which operations failed when they were tried alone.
        served: the version of the Python that serves it, "" where that is the one that runs the suite.
    """

    declared: Declared
    findings: tuple[Finding, ...]
    qualification: Qualification
    served: str = ""


def probe(argument: str, timeout: float = TIMEOUT, python: str | None = None) -> Declared:
    """Load an adapter in a process of its own and return what it declares.

    Args:
        argument: the adapter as the user named it.
        timeout: seconds that loading may take.
        python: the interpreter that serves it, None for the one that runs the suite.

    Raises:
        GradspecError: the name leads nowhere, or the declarations are malformed.
        CouldNotStart: loading it raised, crashed, hung for `timeout` seconds or ended the interpreter.
    """
    with contextlib.closing(_answers(argument, {"python": python}, timeout, 0.0)) as answers:
        return _declared(argument, next(answers), timeout)


def examine(
    argument: str,
    python: str | None = None,
    *,
    timeout: float = CHECK_TIMEOUT,
    memory: int | None = None,
    start: float = TIMEOUT,
) -> Examined:
    """Load an adapter in processes of its own, try each operation alone and run the self-test.

    Args:
        argument: the adapter as the user named it.
        python: the interpreter that serves it, None for the one that runs the suite.
        timeout: seconds that one operation or check may take; 0 for no limit.
        memory: MiB that the process may use; None or 0 for no limit.
        start: seconds that loading may take.

    Raises:
        GradspecError: the name leads nowhere, or the declarations are malformed.
        CouldNotStart: it could not be loaded.
    """
    tried: dict[str, Any] = {}
    request: dict[str, Any] = {"python": python, "timeout": timeout, "memory": memory or 0, "examine": True}
    # an example may take `timeout` where it is served, and a step has several
    limit = 2 * timeout + 5 if python else timeout
    first: dict[str, Any] = {}
    lost = ""
    for _ in range(RESTARTS):
        told = request | {"tried": list(tried), "failed": [step for step, said in tried.items() if _failed(step, said)]}
        with contextlib.closing(_answers(argument, told, start, limit)) as answers:
            first = next(answers)
            declared = _declared(argument, first, start)
            lost = _gathered(answers, tried)
        if not lost:
            break
    return _concluded(declared, first.get("served", ""), tried, lost)


# --- the parent ---------------------------------------------------------------------------------------------------


def _answers(
    argument: str, request: Mapping[str, Any], start: float, limit: float
) -> Generator[dict[str, Any], None, None]:
    """What the child says; the last is {"ended": how} where it did not come to its end by itself."""
    with tempfile.TemporaryDirectory(prefix="gradspec-", ignore_cleanup_errors=True) as folder:
        # a file, not a pipe: what the implementation starts may outlive the child and would keep a pipe open
        path = Path(folder) / "answers"
        with path.open("wb") as writing, path.open("rb") as reading:
            child = _started(argument, request, writing)
            try:
                yield from _read(child, reading, start, limit)
            finally:
                _end(child)


def _started(argument: str, request: Mapping[str, Any], answers: Any) -> subprocess.Popen[bytes]:
    search = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "gradspec.probe", argument, json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=answers,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": search},
        start_new_session=True,  # so that it can be ended with all that it started
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()


def _read(child: subprocess.Popen[bytes], reading: Any, start: float, limit: float) -> Iterator[dict[str, Any]]:
    rest, size, patience = b"", 0, start
    deadline = time.monotonic() + patience
    while True:
        status = child.poll()  # before reading: what it said last is read all the same
        new = reading.read(_LARGEST)
        size += len(new)
        *lines, rest = (rest + new).split(b"\n")
        for line in lines:
            said = _understood(line)
            if said is None:
                yield {"ended": "it wrote into the channel of its answer"}
                return
            yield said
            if "act" not in said:  # an act has no time of its own: a check may go round in a circle of them
                patience = limit if "begin" in said else start
                deadline = time.monotonic() + patience
            if "end" in said or "status" in said:
                return
        if status is not None:
            yield {"ended": "it wrote into the channel of its answer" if rest.strip() else _status(status)}
            return
        if size >= _LARGEST:
            yield {"ended": "it wrote into the channel of its answer"}
            return
        if patience and time.monotonic() > deadline:
            yield {"ended": f"no end after {patience:g} seconds", "silent": True}
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)


def _understood(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        data = json.loads(line.decode("utf-8"))
        if isinstance(data, dict):
            return data
    return None


def _status(status: int) -> str:
    return f"the signal {-status} ended the process" if status < 0 else f"it ended the interpreter (status {status})"


def _declared(argument: str, said: Mapping[str, Any], start: float) -> Declared:
    if "declared" in said:
        return Declared(said["declared"])
    if "status" in said:
        kind = CouldNotStart if said["status"] == CouldNotStart.status else GradspecError
        raise kind(said["message"], path=said["path"], line=said["line"])
    if said.get("silent"):
        raise CouldNotStart(f"{argument} could not be started: nothing came back for {start:g} seconds")
    how = said.get("ended", "it wrote into the channel of its answer")
    while_ = "" if "channel" in how else " while it was loaded"
    raise CouldNotStart(f"{argument} could not be started: {how}{while_}")


def _gathered(answers: Iterator[dict[str, Any]], tried: dict[str, Any]) -> str:
    """Take in what a child says; how it ended where it did not say all, "" where it did."""
    step, act = "", ""
    for said in answers:
        if "end" in said:
            return ""
        if "ended" in said:
            if step:
                tried[step] = {"ended": said["ended"], "act": act}
            return str(said["ended"])
        if "begin" in said:
            step, act = said["begin"], ""
        elif "act" in said:
            act = said["act"]
        elif "step" in said:
            tried[said["step"]] = said
            step = ""
    return "the process ended"


def _failed(step: str, said: Mapping[str, Any]) -> bool:
    return step.startswith(_OPERATION) and bool(said.get("misfits") or "ended" in said)


_OPERATION, _CHECK = "operation ", "check "


def _concluded(declared: Declared, served: str, tried: Mapping[str, Any], lost: str) -> Examined:
    from gradspec.capabilities import Capabilities  # noqa: PLC0415 - `probe` alone is light
    from gradspec.qualify import qualification_of, untried  # noqa: PLC0415
    from gradspec.report.record import Finding  # noqa: PLC0415
    from gradspec.selftest import CHECKS, miscalled  # noqa: PLC0415

    offered = Capabilities.of(declared)
    misfits: dict[str, Any] = {}
    for name in offered.operations:
        said = tried.get(_OPERATION + name, {"ended": f"not tried: {RESTARTS} processes had ended before"})
        misfits[name] = said["misfits"] if "misfits" in said else untried(offered, name, said["ended"])
    qualification = qualification_of(misfits)
    findings: list[Finding] = []
    for name in CHECKS:
        said = tried.get(_CHECK + name)
        if said is not None:
            findings += [Finding(**one) for one in said["findings"]] if "findings" in said else [_ended(name, said)]
    if lost:
        left = sum(_CHECK + name not in tried for name in CHECKS)
        text = f"{RESTARTS} processes of the self-test ended before their time, the last since {lost}; {left} checks"
        text += " were not run: mend the first ones"
        findings.append(Finding("the examination comes to its end", "wrong", text))
    return Examined(declared, (*findings, *miscalled(qualification)), qualification, served)


def _ended(name: str, said: Mapping[str, Any]) -> Finding:
    from gradspec.report.record import Finding  # noqa: PLC0415

    what = f"`{said['act']}`" if said.get("act") else "`start`"
    text = f"in {what}, {said['ended']}: try that act by itself in the implementation, then in the adapter, and"
    return Finding(name, "wrong", f"{text} take what ends or blocks a process out of either")


# --- the child ----------------------------------------------------------------------------------------------------


class _Channel:
    """Where the answers go; the descriptor of the output is the implementation's from here on, and leads nowhere."""

    def __init__(self) -> None:
        self._out = own_output()

    def say(self, **said: Any) -> None:
        """One line."""
        write_all(self._out, json.dumps(said).encode() + b"\n")


def _loaded(argument: str, request: Mapping[str, Any], channel: _Channel) -> Adapter | None:
    try:
        limits = {"timeout": request.get("timeout", 0.0), "memory": request.get("memory")}
        adapter = open_adapter(argument, request.get("python"), **limits)
        served = {"served": adapter.python} if isinstance(adapter, Remote) else {}
        channel.say(declared=declarations(adapter, argument), **served)
    except GradspecError as error:
        channel.say(status=error.status, message=error.message, path=error.path, line=error.line)
        return None
    return adapter


def _examine(adapter: Adapter, request: Mapping[str, Any], channel: _Channel) -> None:
    from gradspec.capabilities import Capabilities  # noqa: PLC0415 - a probe that only asks what is declared is light
    from gradspec.qualify import misfits_of, untried  # noqa: PLC0415
    from gradspec.selftest import CHECKS, Subject, run_check  # noqa: PLC0415

    offered, failed = Capabilities.of(adapter), {step.removeprefix(_OPERATION) for step in request["failed"]}
    session = Subject(adapter, offered)
    for name in offered.operations:
        step = _OPERATION + name
        if step in request["tried"]:
            continue
        channel.say(begin=step)
        try:
            misfits = misfits_of(session, offered, name)
        except Gone as gone:
            misfits = untried(offered, name, gone.reason)
        failed |= {name} if misfits else set()
        channel.say(step=step, misfits=misfits)
    subject = Subject(adapter, _working(adapter, failed), lambda act: channel.say(act=act))
    for one in CHECKS.values():
        step = _CHECK + one.name
        if step in request["tried"]:
            continue
        channel.say(begin=step)
        try:
            channel.say(step=step, findings=[asdict(finding) for finding in run_check(subject, one)])
        except Gone as gone:
            channel.say(step=step, ended=gone.reason, act=subject.asked)
    channel.say(end=True)


def _working(adapter: Adapter, failed: set[str]) -> Capabilities:
    """What is declared less what failed, as the suite draws it: all of it where too little is left."""
    from gradspec.capabilities import Capabilities  # noqa: PLC0415

    void = 2 * len(failed) > len(adapter.operations)
    return Capabilities.of(adapter, frozenset() if void else frozenset(failed))


def main() -> None:
    """The child: keep the channel of the answers for itself, load the adapter, do what is asked."""
    from gradspec.journal import limit_memory  # noqa: PLC0415

    channel = _Channel()
    argument, request = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    limit_memory(request.get("memory") or 0)
    adapter = _loaded(argument, request, channel)
    if adapter is not None and request.get("examine"):
        _examine(adapter, request, channel)
    sys.stdout.flush()
    remove()
    os._exit(0)  # an implementation may hang or crash at exit, which is nothing to do with its declarations


if __name__ == "__main__":
    main()
