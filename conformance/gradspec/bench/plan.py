"""Who is measured on what, and in which order.

The base stands in the plan twice, under two slots: the ratio of the second to the first is the noise of the run. Each
repeat walks through every workload and size and measures all slots one after another there, in an order that changes
from repeat to repeat, so that whatever disturbs the machine for a while disturbs all of them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gradspec.adapter import Adapter
from gradspec.bench.workloads import ELEMENTS, WORKLOADS, Setting, Workload
from gradspec.errors import GradspecError
from gradspec.options import one_of


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        repeats: how often every slot is measured on every workload and size.
        seconds: about how long one measurement goes on.
        quick: whether the small sizes are taken.
    """

    repeats: int
    seconds: float
    quick: bool


FULL, QUICK = Effort(12, 0.03, quick=False), Effort(6, 0.01, quick=True)


_FEW = 3
"""Repeats in a quick run of what starts processes."""


@dataclass(frozen=True)
class Slot:
    """One who is measured.

    Attributes:
        label: its name in reports, which no other slot has.
        argument: what the user wrote.
        version: of the implementation.
        again: whether it is the base a second time.
    """

    label: str
    argument: str
    version: str = ""
    again: bool = False


@dataclass(frozen=True)
class Item:
    """One measurement: a slot on a workload at a size, in a repeat."""

    workload: str
    size: int
    repeat: int
    slot: str


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        slots: the base, the base again, the others in the order of the user.
        workloads: the names of those that at least one slot offers.
        settings: the tensors of each workload.
        lacks: by workload and label, what is not offered.
        effort: how much is measured.
    """

    slots: tuple[Slot, ...]
    workloads: tuple[str, ...]
    settings: Mapping[str, Setting]
    lacks: Mapping[str, Mapping[str, str]]
    effort: Effort

    @property
    def base(self) -> Slot:
        """What the others are compared with."""
        return self.slots[0]

    def slot(self, label: str) -> Slot:
        """The slot of this label."""
        return next(slot for slot in self.slots if slot.label == label)

    def offering(self, workload: str) -> tuple[Slot, ...]:
        """The slots that offer a workload."""
        return tuple(slot for slot in self.slots if slot.label not in self.lacks.get(workload, {}))

    def sizes(self, workload: str) -> tuple[int, ...]:
        """The sizes at which a workload is measured."""
        row = WORKLOADS[workload]
        return row.quick if self.effort.quick else row.sizes

    def items(self) -> Iterator[Item]:
        """Every measurement in the order in which they are made."""
        for repeat in range(self.effort.repeats):
            for name in self.workloads:
                most = WORKLOADS[name].repeats
                if most is not None and repeat >= (min(most, _FEW) if self.effort.quick else most):
                    continue
                for size in self.sizes(name):
                    for slot in in_turn(self.offering(name), repeat):
                        yield Item(name, size, repeat, slot.label)

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote."""
        return cls.of(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The plan from JSON data; KeyError or TypeError where it is none."""
        return cls(
            tuple(Slot(**slot) for slot in data["slots"]),
            tuple(data["workloads"]),
            {name: Setting(tuple(s["shape"]), s["dtype"]) for name, s in data["settings"].items()},
            data["lacks"],
            Effort(**data["effort"]),
        )


def in_turn(slots: Sequence[Slot], repeat: int) -> list[Slot]:
    """The slots in the order of a repeat: each comes first once, then the same backwards."""
    if not slots:
        return []
    start = repeat % len(slots)
    order = [*slots[start:], *slots[:start]]
    return order[::-1] if repeat // len(slots) % 2 else order


def make_plan(adapters: Sequence[tuple[str, Adapter]], base: str | None, only: Sequence[str], effort: Effort) -> Plan:
    """The plan for what the user named.

    Args:
        adapters: the argument and the declarations of each.
        base: argument or name of the base; None for torch if it is among them, else the first.
        only: names of workloads; empty for all.
        effort: how much is measured.

    Raises:
        GradspecError: the base is not among the adapters, a workload does not exist, or nobody offers any of them.
    """
    chosen = workloads_named(only)
    labels = _labels([adapter.name for _, adapter in adapters])
    first = _base(adapters, base)
    order = [first, *(n for n in range(len(adapters)) if n != first)]
    slots = [Slot(labels[n], adapters[n][0], adapters[n][1].version()) for n in order]
    slots.insert(1, dataclasses.replace(slots[0], label=f"{slots[0].label} again", again=True))
    declared = {slot.argument: adapters[n][1] for slot, n in zip((slots[0], *slots[2:]), order, strict=True)}
    lacks = {row.name: {s.label: why for s in slots if (why := row.lacks(declared[s.argument]))} for row in chosen}
    offered = [row for row in chosen if len(lacks[row.name]) < len(slots)]
    if not offered:
        why = lacks[chosen[0].name][slots[0].label]
        raise GradspecError(f"no adapter offers what is to be measured: {chosen[0].name} needs {why}")
    settings = {
        row.name: _setting(row, [declared[s.argument] for s in slots if s.label not in lacks[row.name]])
        for row in offered
    }
    return Plan(tuple(slots), tuple(row.name for row in offered), settings, lacks, effort)


def workloads_named(only: Sequence[str]) -> list[Workload]:
    """The workloads of these names, all where there are none; GradspecError where one does not exist."""
    for name in only:
        one_of("workload", name, WORKLOADS)
    return [row for row in WORKLOADS.values() if not only or row.name in only]


def _labels(names: Sequence[str]) -> list[str]:
    """The names, numbered where two are alike."""
    return [name if name not in names[:n] else f"{name} ({names[: n + 1].count(name)})" for n, name in enumerate(names)]


def _base(adapters: Sequence[tuple[str, Adapter]], base: str | None) -> int:
    wanted = "torch" if base is None else base
    for number, (argument, adapter) in enumerate(adapters):
        if wanted in (argument, adapter.name):
            return number
    if base is None:
        return 0
    names = ", ".join(argument for argument, _ in adapters)
    raise GradspecError(f"--base {base}: it is not among the adapters that are measured, which are {names}")


def _setting(row: Workload, adapters: Sequence[Adapter]) -> Setting:
    """Arrays of float32 where everyone has them; else what all have."""
    arrays = all(a.max_rank > 0 and "array" in a.features and "sum" in a.operations for a in adapters)
    common = set.intersection(*(set(adapter.dtypes) for adapter in adapters))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        if dtype in common:
            return Setting((ELEMENTS,) if arrays else (), dtype)
    names = ", ".join(sorted({adapter.name for adapter in adapters}))
    raise GradspecError(f"{row.name}: {names} have no floating element type in common: measure them one at a time")
