"""The process that measures.

    python -m gradspec.bench.child PLAN RAW

loads the adapters of a plan, lets pytest-benchmark measure its items in their order and write its own JSON to RAW, and
prints one line of JSON for each item that is done: how many are, and what failed.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradspec.adapter import Adapter, Unsupported
from gradspec.adapters import guarded, load_adapter
from gradspec.bench.plan import Item, Plan
from gradspec.bench.workloads import WORKLOADS, Task
from gradspec.descriptors import own_output, write_all
from gradspec.errors import GradspecError

LEAST, MOST = 3, 60
"""Bounds of the number of rounds of one measurement."""

EXTRA = "gradspec"
"""Where in `extra_info` of pytest-benchmark's file the item stands."""

Key = tuple[str, int, str]
"""Workload, size and label: what is measured again in every repeat."""


class Clock:
    """A timer for what measures itself: it stands still but for what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """What it was told since it was reset."""
        return self.now

    def reset(self) -> None:
        """Begin a round at zero, where differences of numbers are exact."""
        self.now = 0.0

    def run(self, own: Callable[[], float]) -> None:
        """Show the number that `own` returns."""
        self.now = own()


class Lab:
    """The implementations, and what was learnt of them.

    Args:
        plan: what is measured.
        load: from an argument to its adapter.
    """

    def __init__(self, plan: Plan, load: Callable[[str], Adapter] = load_adapter) -> None:
        self.plan = plan
        self.adapters: dict[str, Adapter] = {}
        for slot in plan.slots:
            if slot.argument not in self.adapters:
                self.adapters[slot.argument] = load(slot.argument)
                guarded(slot.argument, None, self.adapters[slot.argument].start)
        self.failed: dict[Key, str] = {}
        self._rounds: dict[tuple[str, int], int] = {}
        self._tasks: dict[Key, Task | None] = {}

    def task(self, item: Item) -> Task | None:
        """What is measured for an item, tried out once; None where it cannot be done, which is then in `failed`."""
        key = (item.workload, item.size, item.slot)
        if key not in self._tasks:
            slot = self.plan.slot(item.slot)
            adapter, build = self.adapters[slot.argument], WORKLOADS[item.workload].build
            self._tasks[key] = None
            try:
                task = build(adapter, slot.argument, self.plan.settings[item.workload], item.size)
                if task.run is not None:
                    task.run(task.prepare())
                self._tasks[key] = task
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - an implementation may raise anything
                self.failed[key] = told(error)
        return self._tasks[key]

    def rounds(self, item: Item) -> int:
        """How often an item is run: as often for every slot, since the fastest of more rounds is faster."""
        if WORKLOADS[item.workload].processes:
            return 1
        key = (item.workload, item.size)
        if key not in self._rounds:
            slowest = 0.0
            for slot in self.plan.offering(item.workload):
                task = self.task(Item(item.workload, item.size, item.repeat, slot.label))
                if task is not None and not slot.again:
                    slowest = max(slowest, _seconds(task))
            self._rounds[key] = max(LEAST, min(MOST, int(self.plan.effort.seconds / max(slowest, 1e-9))))
        return self._rounds[key]


def _seconds(task: Task) -> float:
    """How long one round takes."""
    start = time.perf_counter()
    if task.own is not None:
        task.own()
    else:
        assert task.run is not None, "a task is run, or measures itself"
        prepared = task.prepare()
        start = time.perf_counter()
        task.run(prepared)
    return time.perf_counter() - start


def told(error: BaseException) -> str:
    """Type and first line of what was raised."""
    if isinstance(error, Unsupported):
        return str(error)
    try:
        line = next(iter(str(error).strip().splitlines()), "")
    except Exception:  # noqa: BLE001 - a message that cannot even be read
        line = ""
    return f"{type(error).__name__}: {line}"[:200].rstrip(": ")


class Measuring:
    """One item in the hands of its test."""

    def __init__(self, lab: Lab, item: Item, clock: Clock) -> None:
        self.lab, self.item, self.clock = lab, item, clock

    def measure(self, benchmark: Any) -> None:
        """Measure, or skip the test where the implementation cannot do it."""
        item = self.item
        task = self.lab.task(item)
        rounds = self.lab.rounds(item) if task is not None else 0
        if task is None:
            pytest.skip(self.lab.failed[item.workload, item.size, item.slot])
        benchmark.extra_info[EXTRA] = {"workload": item.workload, "size": item.size} | {
            "repeat": item.repeat,
            "slot": item.slot,
            "unit": WORKLOADS[item.workload].unit,
        }
        benchmark.group = f"{item.workload} {item.size}"
        gc.collect()
        if task.own is not None:
            benchmark.pedantic(
                functools.partial(self.clock.run, task.own), setup=self.clock.reset, rounds=rounds, iterations=1
            )
            return
        assert task.run is not None, "a task is run, or measures itself"
        prepare = task.prepare
        benchmark.pedantic(task.run, setup=lambda: ((prepare(),), {}), rounds=rounds, warmup_rounds=1, iterations=1)


class Plugin:
    """Makes the tests, hands the items to them and tells what is done.

    Args:
        lab: the implementations.
        tell: is given one JSON object for each item that is done.
    """

    def __init__(self, lab: Lab, tell: Callable[[dict[str, Any]], None]) -> None:
        self.lab, self.tell = lab, tell
        self.done = 0
        self._clock = Clock()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each item."""
        parameters = []
        for item in self.lab.plan.items():
            own = WORKLOADS[item.workload].measures_itself
            timer = self._clock if own else time.perf_counter
            marks = pytest.mark.benchmark(timer=timer, disable_gc=True)
            name = f"{item.workload}-{item.size}-{item.slot}-{item.repeat}"
            parameters.append(pytest.param(item, marks=marks, id=name))
        metafunc.parametrize("measuring", parameters, indirect=True)

    @pytest.fixture
    def measuring(self, request: pytest.FixtureRequest) -> Measuring:
        """The item of this test."""
        return Measuring(self.lab, request.param, self._clock)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell that one more is done; what broke while it was timed counts as failed for its slot."""
        if report.when == "call":
            self.done += 1
            self.tell({"done": self.done})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Keep why an item failed."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None and not isinstance(error, pytest.skip.Exception | KeyboardInterrupt):
            about: Item = item.callspec.params["measuring"]  # type: ignore[attr-defined]
            self.lab.failed.setdefault((about.workload, about.size, about.slot), told(error))
        return report

    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Files are shown to others: they hold no name of this machine."""
        machine_info.pop("node", None)

    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Keep what failed beside what was measured."""
        output_json["gradspec"] = {"failed": self.failures()}

    def failures(self) -> list[dict[str, Any]]:
        """What could not be measured, as plain data."""
        return [
            {"workload": name, "size": size, "slot": label, "reason": reason}
            for (name, size, label), reason in self.lab.failed.items()
        ]


def arguments(raw: Path) -> list[str]:
    """What pytest is run with: nothing of the user's."""
    folder = Path(__file__).resolve().parent
    return [
        f"--config-file={folder / 'pytest.ini'}",
        f"--rootdir={folder}",
        "--noconftest",
        "--import-mode=importlib",
        "--assert=plain",
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler", "-p", "pytest_benchmark.plugin"),
        *("-q", "--benchmark-quiet", "--capture=no", "-W", "ignore"),
        f"--benchmark-json={raw}",
        str(folder / "measured.py"),
    ]


def _tell(channel: int, message: dict[str, Any]) -> None:
    write_all(channel, json.dumps(message).encode() + b"\n")


def main(plan_file: str, raw: str) -> None:
    """The child: keep the channel of the answers for itself, then load and measure."""
    channel = own_output()
    status = 1
    try:
        lab = Lab(Plan.read(Path(plan_file)))
        _tell(channel, {"done": 0})
        gc.collect()
        gc.freeze()  # what is loaded needs no look at each collection
        plugin = Plugin(lab, functools.partial(_tell, channel))
        status = int(pytest.main(arguments(Path(raw)), plugins=[plugin]))
        if plugin.done == len(list(lab.plan.items())) and not Path(raw).exists():  # nothing could be measured
            empty = {"benchmarks": [], "gradspec": {"failed": plugin.failures()}}
            Path(raw).write_text(json.dumps(empty), encoding="utf-8")
    except GradspecError as error:
        _tell(channel, {"status": error.status, "message": str(error)})
    except BrokenPipeError:
        pass  # nobody listens any more
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # an implementation may hang or crash at exit


if __name__ == "__main__":
    main(*sys.argv[1:])
