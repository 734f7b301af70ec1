"""What is measured: small programs over the contract, each at several sizes.

A workload is written against `Adapter` only and measures the implementation, not the adapter: operations are the
implementation's own callables (`Adapter.native_operation`), looked up before anything is timed; one call of `backward`
is one method call more than the implementation's own. Hooks are plain functions of one argument.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradspec.adapter import Adapter, Native

ELEMENTS = 10
"""Elements of a tensor in the chains: so few that an engine's own work is what is measured."""

_PROCESS_TIMEOUT = 120.0
"""Seconds that a fresh interpreter may take."""

_STATM = Path("/proc/self/statm")

Timed = Callable[[Any], None]
"""What is timed: takes what the untimed preparation returned."""


@dataclass(frozen=True)
class Setting:
    """What the tensors of a chain are: the same for all implementations that are compared.

    Attributes:
        shape: (10,), or () where one of them has no arrays.
        dtype: the name of an element type that all of them offer.
    """

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Task:
    """A workload of one size over one implementation, ready to be measured.

    Attributes:
        prepare: run before each timed run; what it returns is handed over. It is not timed.
        run: what is timed, unless `own` is given.
        own: measures by itself and returns the number: seconds, or bytes.
    """

    prepare: Callable[[], Any] = lambda: None
    run: Timed | None = None
    own: Callable[[], float] | None = None


Build = Callable[[Adapter, str, Setting, int], Task]
"""Makes the task of an adapter (and the argument that it was loaded by) in a setting at a size."""


@dataclass(frozen=True)
class Workload:
    """One thing that is measured.

    Attributes:
        name: its name on the command line and in reports.
        about: what it does, in one sentence.
        build: makes the task.
        sizes: the sizes of a full run; quick: those of a quick one.
        each: what the size counts, so that a figure can be given for each ("node"); "" where it counts nothing.
        unit: of the numbers: "s" or "bytes".
        estimate: which number of an item's rounds stands for them: "min" where disturbances only ever add,
            "median" for differences.
        operations: those that it needs; an array setting needs `sum` besides.
        features: those that it needs.
        keywords: keywords of acts that it needs.
        rank: the rank that it needs.
        repeats: at most so many repeats; None for as many as the plan has.
        measures_itself: whether its tasks have `own`.
        processes: whether each round starts a process, so that one round is measured.
    """

    name: str
    about: str
    build: Build
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    each: str = "node"
    unit: str = "s"
    estimate: str = "min"
    operations: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    rank: int = 0
    repeats: int | None = None
    measures_itself: bool = False
    processes: bool = False

    def lacks(self, adapter: Adapter) -> str:
        """What the adapter does not offer of what is needed, in words; "" where it offers all."""
        needs = (
            (sorted(self.operations - adapter.operations), "operation"),
            (sorted(self.features - adapter.features), "feature"),
            (sorted(self.keywords - adapter.keywords), "keyword"),
        )
        lacking = [f"{kind} {name}" for names, kind in needs for name in names]
        if adapter.max_rank < self.rank:
            lacking.append(f"tensors of rank {self.rank}")
        if self.unit == "bytes" and not _STATM.exists():
            lacking.append("memory of a process on this system")
        return ", ".join(lacking)


# --- the parts of a chain -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chain:
    """Two operations in turn on one value; their second operands are constants, None for an operation of one operand.

    Values and gradients stay finite, and far from numbers so small that processors are slow with them: the factors
    multiply to about one over any length that is measured.
    """

    steps: tuple[tuple[str, float | None], ...]
    start: float = 1.0

    @property
    def operations(self) -> frozenset[str]:
        return frozenset(op for op, _ in self.steps)


_MUL_ADD = _Chain((("mul", 1.0001), ("add", 0.5)))
_CHAINS: Mapping[str, _Chain] = {
    "chain": _MUL_ADD,
    "chain-sub": _Chain((("mul", 1.0001), ("sub", 0.5))),
    "chain-div": _Chain((("div", 1.0001), ("add", 0.5))),
    # exp(-e * y) has its fixed point at 1/e, where its slope is -1
    "chain-exp": _Chain((("mul", -2.718281828), ("exp", None)), start=0.3678794412),
}


def _filled(adapter: Adapter, setting: Setting, number: float, *, requires_grad: bool = False) -> Native:
    data: Any = number
    for size in reversed(setting.shape):
        data = [data] * size
    return adapter.tensor(data, shape=setting.shape, dtype=setting.dtype, requires_grad=requires_grad)


def _total(adapter: Adapter, setting: Setting) -> Callable[[Native], Native]:
    """From a value to a root of one element: a sum, or the value itself where it is a scalar."""
    if not setting.shape:
        return lambda x: x
    function = adapter.native_operation("sum")
    return lambda x: function(x, dim=None, keepdim=False)


def _forward(adapter: Adapter, setting: Setting, chain: _Chain, size: int) -> Callable[[Native], Native]:
    """The chain of `size` operations, as a function of its leaf."""
    calls: list[tuple[Callable[..., Native], tuple[Native, ...]]] = [
        (adapter.native_operation(op), () if constant is None else (_filled(adapter, setting, constant),))
        for op, constant in chain.steps
    ]
    (first, first_constant), (second, second_constant) = calls

    def forward(y: Native) -> Native:
        for _ in range(size // 2):
            y = first(y, *first_constant)
            y = second(y, *second_constant)
        return y

    return forward


def _leaf(adapter: Adapter, setting: Setting, chain: _Chain) -> Callable[[], Native]:
    return lambda: _filled(adapter, setting, chain.start, requires_grad=True)


# --- the workloads ------------------------------------------------------------------------------------------------


def _chain(name: str) -> Build:
    def build(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
        chain, total = _CHAINS[name], _total(adapter, setting)
        forward = _forward(adapter, setting, chain, size)

        def run(x: Native) -> None:
            adapter.backward(total(forward(x)))

        return Task(_leaf(adapter, setting, chain), run)

    return build


def _do_nothing(_gradient: Native) -> None:
    """What the hooks do."""


_ignored: Any = _do_nothing
"""A plain function where the contract has a behaviour: no interpreter of behaviours is measured."""


def _hooked(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    total, half = _total(adapter, setting), _forward(adapter, setting, _MUL_ADD, size // 2)

    def run(x: Native) -> None:
        middle = half(x)
        adapter.register_hook(middle, _ignored)
        adapter.backward(total(half(middle)))

    return Task(_leaf(adapter, setting, _MUL_ADD), run)


def _one_leaf(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    total, add = _total(adapter, setting), adapter.native_operation("add")

    def run(x: Native) -> None:
        y = x
        for _ in range(size):
            y = add(y, x)
        adapter.backward(total(y))

    return Task(_leaf(adapter, setting, _MUL_ADD), run)


def _many_leaves(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    total, add, leaf = _total(adapter, setting), adapter.native_operation("add"), _leaf(adapter, setting, _MUL_ADD)

    def run(leaves: list[Native]) -> None:
        y = leaves[0]
        for x in leaves[1:]:
            y = add(y, x)
        adapter.backward(total(y))

    return Task(lambda: [leaf() for _ in range(size)], run)


def _matmul(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    square = Setting((size, size), setting.dtype)
    total, matmul = _total(adapter, square), adapter.native_operation("matmul")

    def prepare() -> tuple[Native, Native]:
        x = _filled(adapter, square, 1.0, requires_grad=True)
        return x, _filled(adapter, square, 1.0 / size, requires_grad=True)

    def run(operands: tuple[Native, Native]) -> None:
        y, weight = operands
        for _ in range(4):
            y = matmul(y, weight)
        adapter.backward(total(y))

    return Task(prepare, run)


RETAINED = 250
"""Operations of the graph that is walked several times."""


def _retain(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    total, leaf = _total(adapter, setting), _leaf(adapter, setting, _MUL_ADD)
    forward = _forward(adapter, setting, _MUL_ADD, RETAINED)

    def run(root: Native) -> None:
        for _ in range(size):
            adapter.backward(root, retain_graph=True)

    return Task(lambda: total(forward(leaf())), run)


HOOKED = 10
"""Operations of the chain whose values are hooked: few, so that the hooks are most of the work."""


def _hooks(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    """With `size` hooks in all, as many on each value, minus without: measured one after the other."""
    total, leaf = _total(adapter, setting), _leaf(adapter, setting, _MUL_ADD)
    step, register = _forward(adapter, setting, _MUL_ADD, 2), adapter.register_hook

    def seconds(hooks: int) -> float:
        y = leaf()
        start = time.perf_counter()
        for _ in range(HOOKED // 2):
            y = step(y)
            for _ in range(hooks):
                register(y, _ignored)
        adapter.backward(total(y))
        del y
        return time.perf_counter() - start

    return Task(own=lambda: seconds(2 * size // HOOKED) - seconds(0))


def _state(adapter: Adapter, _argument: str, setting: Setting, size: int) -> Task:
    forward = _forward(adapter, setting, _MUL_ADD, size)
    return Task(_leaf(adapter, setting, _MUL_ADD), lambda x: _dropped(forward(x)))


def _dropped(_root: Native) -> None:
    """The graph of the root is freed when this returns: nothing else holds it."""


# --- in a fresh interpreter ---------------------------------------------------------------------------------------


def _in_process(kind: str, argument: str, *numbers: object) -> float:
    """The number that `main` prints in an interpreter of its own."""
    command = [sys.executable, "-P", "-m", __name__, kind, argument, *map(str, numbers)]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROCESS_TIMEOUT, check=True
    )
    return float(done.stdout.split()[-1])


def _memory(_adapter: Adapter, argument: str, setting: Setting, size: int) -> Task:
    return Task(own=lambda: _in_process("memory", argument, size, setting.dtype, *setting.shape))


def _import(_adapter: Adapter, argument: str, _setting: Setting, _size: int) -> Task:
    return Task(own=lambda: _in_process("import", argument))


def _resident() -> int:
    """Bytes of this process that are in memory."""
    import resource  # noqa: PLC0415 - not on every system; those that lack it are not asked

    return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def _growth(adapter: Adapter, setting: Setting, size: int) -> int:
    """Bytes by which the process grows while it holds a chain of `size` operations."""
    leaf = _leaf(adapter, setting, _MUL_ADD)
    forward = _forward(adapter, setting, _MUL_ADD, size)
    adapter.backward(_total(adapter, setting)(_forward(adapter, setting, _MUL_ADD, 100)(leaf())))
    gc.collect()
    before = _resident()
    root = forward(leaf())
    grown = _resident() - before
    _dropped(root)
    return grown


def main(kind: str, argument: str, *rest: str) -> None:
    """Measure in this fresh interpreter and print one number: seconds of an import, or bytes of a graph."""
    from gradspec.adapters import load_adapter, torch_like  # noqa: F401, PLC0415 - ours is not what is measured

    start = time.perf_counter()
    adapter = load_adapter(argument)
    seconds = time.perf_counter() - start
    if kind == "import":
        print(seconds)  # noqa: T201 - the answer
        return
    size, dtype, *shape = rest
    adapter.start()
    print(_growth(adapter, Setting(tuple(map(int, shape)), dtype), int(size)))  # noqa: T201 - the answer


# --- the table ----------------------------------------------------------------------------------------------------

_LENGTHS, _SHORT = (250, 1000, 4000), (100, 300, 1000)


def _chain_row(name: str, about: str) -> Workload:
    return Workload(name, about, _chain(name), _LENGTHS, _SHORT, operations=_CHAINS[name].operations)


_ROWS = (
    _chain_row("chain", "n operations, mul and add in turn, then backward"),
    _chain_row("chain-sub", "the same with mul and sub"),
    _chain_row("chain-div", "the same with div and add"),
    _chain_row("chain-exp", "the same with mul and exp"),
    Workload(
        "chain-hook",
        "the chain of mul and add with one hook on its middle value",
        _hooked,
        _LENGTHS,
        _SHORT,
        operations=_MUL_ADD.operations,
        features=frozenset({"hooks.tensor"}),
    ),
    Workload(
        "sum-one-leaf",
        "one leaf added up n times, then backward",
        _one_leaf,
        _LENGTHS,
        _SHORT,
        each="use",
        operations=frozenset({"add"}),
    ),
    Workload(
        "sum-leaves",
        "n leaves added up, then backward",
        _many_leaves,
        _LENGTHS,
        _SHORT,
        each="leaf",
        operations=frozenset({"add"}),
    ),
    Workload(
        "matmul",
        "four products of n by n matrices one after another, then backward",
        _matmul,
        (16, 32, 64, 128, 256),
        (16, 32, 64),
        each="",
        operations=frozenset({"matmul", "sum"}),
        rank=2,
    ),
    Workload(
        "retain",
        f"n passes with retain_graph=True over one graph of {RETAINED} operations",
        _retain,
        (1, 4, 16),
        (1, 2, 4),
        each="pass",
        operations=_MUL_ADD.operations,
        features=frozenset({"graph.retain"}),
        keywords=frozenset({"backward.retain_graph"}),
    ),
    Workload(
        "hooks",
        f"what n hooks on the values of a chain of {HOOKED} operations add: with them minus without",
        _hooks,
        (100, 300, 1000),
        (100, 300, 1000),
        each="hook",
        estimate="median",
        measures_itself=True,
        operations=_MUL_ADD.operations,
        features=frozenset({"hooks.tensor"}),
    ),
    Workload(
        "state",
        "a chain of n operations built, then freed without backward",
        _state,
        (1000, 4000, 16000),
        (500, 1000, 2000),
        operations=_MUL_ADD.operations,
    ),
    Workload(
        "state-memory",
        "the memory by which a fresh process grows while it holds a chain of n operations",
        _memory,
        (20_000, 80_000),
        (20_000,),
        unit="bytes",
        estimate="median",
        operations=_MUL_ADD.operations,
        repeats=6,
        measures_itself=True,
        processes=True,
    ),
    Workload(
        "import",
        "the implementation imported in a fresh interpreter",
        _import,
        (1,),
        (1,),
        each="",
        repeats=6,
        measures_itself=True,
        processes=True,
    ),
)

WORKLOADS: Mapping[str, Workload] = {row.name: row for row in _ROWS}
"""Every workload by name, in the order of reports."""


if __name__ == "__main__":
    main(*sys.argv[1:])
