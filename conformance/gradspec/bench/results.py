"""From pytest-benchmark's file to one result, and back from the file where it was kept.

The kept file is pytest-benchmark's own, whole, with one more key `gradspec`: the plan, what failed, the machine, and
the result. Everything in the result is computed anew from the measurements when the file is read.
"""

from __future__ import annotations

import collections
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradspec.bench.estimates import Estimate, growth, ratio
from gradspec.bench.plan import Plan
from gradspec.bench.workloads import WORKLOADS, Workload
from gradspec.errors import GradspecError

SCHEMA = "gradspec-bench-1"

_ESTIMATE: Mapping[str, Callable[[Sequence[float]], float]] = {"min": min, "median": statistics.median}


@dataclass(frozen=True)
class Cell:
    """One slot at one point.

    Attributes:
        value: the median over the repeats, in seconds or bytes; None where nothing was measured.
        numbers: by repeat, what stands for its rounds.
        ratio: to the base, with its interval; None for the base itself and where there is none.
        reason: why nothing was measured.
    """

    value: float | None
    numbers: Mapping[int, float] = field(default_factory=dict)
    ratio: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class Point:
    """A workload at a size.

    Attributes:
        workload: the workload.
        size: the size.
        cells: by the label of the slot, in the order of the plan.
    """

    workload: Workload
    size: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Result:
    """What a run found.

    Attributes:
        plan: what was measured.
        points: in the order of the table.
        growth: by workload and label, the exponent of growth with the size.
        machine: what it ran on, in words by subject.
        complete: whether every measurement was made.
    """

    plan: Plan
    points: tuple[Point, ...]
    growth: Mapping[tuple[str, str], Estimate]
    machine: Mapping[str, str]

    def noise(self) -> list[tuple[Point, Estimate]]:
        """The ratio of the base to itself at each point that has one."""
        again = self.plan.slots[1].label
        return [(p, r) for p in self.points if again in p.cells and (r := p.cells[again].ratio) is not None]

    @property
    def failures(self) -> list[tuple[Point, str, str]]:
        """Point, label and reason of what could not be measured though it is offered."""
        return [(p, label, c.reason) for p in self.points for label, c in p.cells.items() if c.reason]


def read_result(raw: Mapping[str, Any]) -> Result:
    """The result in a kept file; GradspecError where it is none."""
    try:
        own = raw["gradspec"]
        if own["schema"] != SCHEMA:
            raise GradspecError(f"it is {own['schema']!r}, this gradspec reads {SCHEMA}: measure again")
        plan = Plan.of(own["plan"])
        failed = {(f["workload"], f["size"], f["slot"]): str(f["reason"]) for f in own["failed"]}
        points = tuple(_points(plan, _numbers(raw["benchmarks"]), failed))
        return Result(plan, points, dict(_growths(plan, points)), {str(k): str(v) for k, v in own["machine"].items()})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise GradspecError(f"it holds no benchmark of gradspec ({type(error).__name__}: {error})") from None


def _numbers(benchmarks: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str], dict[int, float]]:
    """By workload, size and label: the number of each repeat."""
    found: dict[tuple[str, int, str], dict[int, float]] = collections.defaultdict(dict)
    for benchmark in benchmarks:
        about = benchmark["extra_info"]["gradspec"]
        data = benchmark["stats"]["data"]
        stands = _ESTIMATE[WORKLOADS[about["workload"]].estimate](data)
        found[about["workload"], about["size"], about["slot"]][int(about["repeat"])] = float(stands)
    return found


def _points(
    plan: Plan,
    numbers: Mapping[tuple[str, int, str], Mapping[int, float]],
    failed: Mapping[tuple[str, int, str], str],
) -> list[Point]:
    points = []
    for name in plan.workloads:
        for size in plan.sizes(name):
            base = numbers.get((name, size, plan.base.label), {})
            cells = {}
            for slot in plan.offering(name):
                key = (name, size, slot.label)
                own = {} if key in failed else numbers.get(key, {})
                cells[slot.label] = _cell(own, None if slot == plan.base else base, failed.get(key, ""))
            points.append(Point(WORKLOADS[name], size, cells))
    return points


def _cell(own: Mapping[int, float], base: Mapping[int, float] | None, reason: str) -> Cell:
    if not own:
        return Cell(None, reason=reason or "nothing was measured")
    common = sorted(set(own) & set(base or ()))
    found = ratio([own[n] for n in common], [(base or {})[n] for n in common])
    return Cell(statistics.median(own.values()), own, found)


def _growths(plan: Plan, points: Sequence[Point]) -> list[tuple[tuple[str, str], Estimate]]:
    found = []
    for name in plan.workloads:
        for slot in plan.offering(name):
            of = [p for p in points if p.workload.name == name and p.cells[slot.label].value is not None]
            repeats = sorted(set.intersection(*(set(p.cells[slot.label].numbers) for p in of))) if of else []
            if len(of) < 2 or not repeats:
                continue
            exponent = growth([p.size for p in of], [[p.cells[slot.label].numbers[n] for n in repeats] for p in of])
            if exponent is not None:
                found.append(((name, slot.label), exponent))
    return found


def keep(raw: dict[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The file of pytest-benchmark with what `read_result` needs beside it, and the result for other readers."""
    kept = raw | {
        "gradspec": {
            "schema": SCHEMA,
            "plan": plan,
            "machine": machine(raw.get("machine_info", {})),
            "failed": raw.get("gradspec", {}).get("failed", []),
        }
    }
    kept["gradspec"]["result"] = summary(read_result(kept))
    return kept


def machine(info: Mapping[str, Any]) -> dict[str, str]:
    """What a run stands on, in words; nothing that names the machine."""
    cpu = info.get("cpu", {})
    return {
        "processor": str(cpu.get("brand_raw") or platform.processor() or platform.machine()),
        "processors": str(os.cpu_count() or 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "threads": "one for each implementation (OMP_NUM_THREADS and its like are 1)",
    }


def summary(result: Result) -> list[dict[str, Any]]:
    """The result as rows of plain data."""
    rows = []
    for point in result.points:
        for label, cell in point.cells.items():
            row: dict[str, Any] = {"workload": point.workload.name, "size": point.size, "slot": label}
            row |= {"unit": point.workload.unit, "value": cell.value, "reason": cell.reason}
            row["ratio"] = None if cell.ratio is None else [cell.ratio.value, cell.ratio.low, cell.ratio.high]
            exponent = result.growth.get((point.workload.name, label))
            row["growth"] = None if exponent is None else [exponent.value, exponent.low, exponent.high]
            rows.append(row)
    return rows


def read_kept(path: Path) -> Result:
    """The result that was kept in a file; GradspecError with the place where there is none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GradspecError(f"the benchmark cannot be read: {error.strerror or error}", path=path) from None
    except (ValueError, RecursionError):
        raise GradspecError("the benchmark is not JSON: name a file that --json wrote", path=path) from None
    try:
        return read_result(raw)
    except GradspecError as error:
        raise GradspecError(error.message, path=path) from None
