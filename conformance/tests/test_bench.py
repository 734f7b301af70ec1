"""`gradspec bench`: planted numbers come out, turns are taken, what goes wrong is a sentence. No time is asserted."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refgrad
from gradspec import cli
from gradspec.adapter import Adapter
from gradspec.adapters.refgrad import Refgrad
from gradspec.bench import command, estimates, page, plan, process, results, tables
from gradspec.bench.child import Lab
from gradspec.bench.plan import Effort, Item, Plan, in_turn, make_plan
from gradspec.bench.workloads import WORKLOADS, Setting
from gradspec.errors import GradspecError
from gradspec.report.board import make_console

TINY = Effort(2, 0.0005, quick=True)
ARRAYS = Setting((10,), "float32")


def named(name: str, **declared: Any) -> Adapter:
    """An adapter that declares what refgrad does, under another name."""
    return type("Named", (Refgrad,), {"name": name, **declared})()


def planned(*adapters: Adapter, base: str | None = None, only: tuple[str, ...] = (), effort: Effort = TINY) -> Plan:
    return make_plan([(adapter.name, adapter) for adapter in adapters], base, only, effort)


def planted(of: Plan, seconds: Callable[[Item], float]) -> dict[str, Any]:
    """A file of pytest-benchmark in which every item took what `seconds` says."""
    return {
        "machine_info": {"cpu": {"brand_raw": "a processor"}},
        "benchmarks": [
            {
                "extra_info": {"gradspec": dataclasses.asdict(item)},
                "stats": {"data": [seconds(item), 3 * seconds(item)]},
            }
            for item in of.items()
        ],
    }


def result_of(of: Plan, seconds: Callable[[Item], float]) -> results.Result:
    return results.read_result(results.keep(planted(of, seconds), dataclasses.asdict(of)))


def noisy(item: Item) -> float:
    """A factor near one that depends on the item alone."""
    return 1 + 0.01 * ((item.repeat * 7 + len(item.slot) * 3 + item.size) % 5 - 2)


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command measures nothing: everything takes a time in proportion to its size."""
    measure = functools.partial(planted, seconds=lambda item: 1e-6 * item.size)
    monkeypatch.setitem(command.run.__kwdefaults__, "measuring", lambda of, _: measure(of))


def gradspec(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", *map(str, arguments)])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


# --- numbers ------------------------------------------------------------------------------------------------------


def test_a_planted_ratio_is_found_with_its_interval() -> None:
    base = [1.00, 1.02, 0.99, 1.01, 0.98, 1.03, 1.00, 0.97, 1.02, 1.01]
    found = estimates.ratio([1.1 * b * (1 + 0.002 * (n % 3 - 1)) for n, b in enumerate(base)], base)
    assert found is not None
    assert found.value == pytest.approx(1.1, rel=0.003)
    assert found.contains(1.1)
    assert not found.contains(1.0)


def test_one_disturbed_repeat_moves_no_ratio() -> None:
    base = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01]
    found = estimates.ratio([2.0 * b for b in base[:-1]] + [900.0], base)
    assert found is not None
    assert (found.value, found.low) == pytest.approx((2.0, 2.0))


def test_what_has_no_ratio_has_none() -> None:
    assert estimates.ratio([], []) is None
    assert estimates.ratio([1.0, -0.1], [1.0, 1.0]) is None
    assert estimates.ratio([1.0, 1.0], [1.0, 0.0]) is None
    assert estimates.ratio([3.0], [2.0]) == estimates.Estimate(1.5)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_a_planted_exponent_is_found(exponent: float) -> None:
    sizes = (100, 300, 1000)
    numbers = [[c * size**exponent for c in (1.0, 1.1, 0.9, 1.0, 1.05, 0.95)] for size in sizes]
    found = estimates.growth(sizes, numbers)
    assert found is not None
    assert found.value == pytest.approx(exponent, abs=1e-9)
    assert estimates.growth((5, 5), numbers[:2]) is None
    assert estimates.growth(sizes, [[0.0]] * 3) is None


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    draws = np.random.default_rng(7)
    inside = sum(estimates._middle([draws.normal(1.0, 0.1) for _ in range(15)]).contains(1.0) for _ in range(300))
    assert 0.93 <= inside / 300 <= 0.99


# --- the plan -----------------------------------------------------------------------------------------------------


def test_repeats_take_turns_in_both_directions() -> None:
    slots = planned(named("a"), named("b")).slots
    orders = [tuple(slot.label for slot in in_turn(slots, repeat)) for repeat in range(6)]
    assert len(set(orders)) == 6
    assert collections.Counter(order[0] for order in orders) == {"a": 2, "a again": 2, "b": 2}
    assert in_turn((), 3) == []


def test_each_repeat_measures_all_slots_side_by_side() -> None:
    items = list(planned(named("a"), named("b"), only=("chain", "retain")).items())
    groups = [items[n : n + 3] for n in range(0, len(items), 3)]
    assert all({item.slot for item in group} == {"a", "a again", "b"} for group in groups)
    assert all(len({(item.workload, item.size, item.repeat) for item in group}) == 1 for group in groups)
    assert [group[0].repeat for group in groups] == [0] * 6 + [1] * 6


def test_the_base_is_torch_or_the_first_or_what_is_named() -> None:
    a, torch, b = named("a"), named("torch"), named("b")
    assert [slot.label for slot in planned(a, torch, b).slots] == ["torch", "torch again", "a", "b"]
    assert planned(a, b).base.label == "a"
    assert planned(a, torch, b, base="b").base.label == "b"
    assert [slot.label for slot in planned(a, a, base="a").slots] == ["a", "a again", "a (2)"]
    with pytest.raises(GradspecError, match="--base c: it is not among the adapters"):
        planned(a, b, base="c")


def test_tensors_are_what_everybody_has() -> None:
    scalars = named("s", max_rank=0, dtypes=("float64",), features=frozenset({"scalar"}))
    assert planned(named("a")).settings["chain"] == ARRAYS
    shared = planned(named("a"), scalars)
    assert shared.settings["chain"] == Setting((), "float64")
    assert shared.settings["matmul"] == ARRAYS  # the scalar engine takes no part in it
    assert shared.lacks["matmul"]["s"] == "tensors of rank 2"
    assert shared.lacks["hooks"]["s"] == "feature hooks.tensor"
    with pytest.raises(GradspecError, match="no floating element type in common"):
        planned(scalars, named("f", dtypes=("float32",)))


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    of = planned(named("a"), named("b", operations=frozenset({"mul"})))
    of.write(tmp_path / "p.json")
    assert Plan.read(tmp_path / "p.json") == of


# --- results ------------------------------------------------------------------------------------------------------


def test_an_implementation_twice_as_slow_is_shown_as_that() -> None:
    of = planned(named("a"), named("slow"), effort=dataclasses.replace(TINY, repeats=8))
    result = result_of(of, lambda item: 1e-6 * item.size * noisy(item) * (2 if item.slot == "slow" else 1))
    for point in result.points:
        again, slow = point.cells["a again"].ratio, point.cells["slow"].ratio
        assert again is not None
        assert slow is not None
        assert again.value == pytest.approx(1.0, abs=0.05)
        assert slow.value == pytest.approx(2.0, abs=0.1)
    assert result.growth["chain", "slow"].value == pytest.approx(1.0, abs=0.05)
    assert "off 1 by" in tables.noise_line(result)


def test_the_fastest_round_stands_for_times_the_median_for_differences() -> None:
    result = result_of(planned(named("a"), only=("chain", "hooks")), lambda _: 1.0)
    values = {point.workload.name: point.cells["a"].value for point in result.points}
    assert values == {"chain": 1.0, "hooks": 2.0}  # of rounds of 1 and 3 seconds


def test_what_failed_is_told_and_compared_with_nothing() -> None:
    of = planned(named("a"), named("b"), only=("chain",))
    raw = planted(of, lambda _: 1.0)
    raw["gradspec"] = {"failed": [{"workload": "chain", "size": 300, "slot": "b", "reason": "RecursionError: deep"}]}
    result = results.read_result(results.keep(raw, dataclasses.asdict(of)))
    assert [(p.size, label, why) for p, label, why in result.failures] == [(300, "b", "RecursionError: deep")]
    assert "failed: chain 300: b: RecursionError: deep" in tables.left_out(result)
    assert result.points[1].cells["b"].ratio is None


HOSTILE = "<script>alert(1)</script>|*x*\x1b[31m</text>&amp;$"


def test_hostile_names_are_text_everywhere() -> None:
    of = planned(named("a"), named(HOSTILE), only=("chain", "matmul"))
    result = result_of(of, lambda item: 1e-6 * item.size)
    html, markdown = page.page(result), tables.markdown(result)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "</text>&amp;$" not in html
    assert "\x1b" not in html + markdown
    assert "\\<script\\>alert(1)\\</script\\>\\|\\*x\\*" in markdown


def test_the_page_needs_nothing_from_outside() -> None:
    html = page.page(result_of(planned(named("a"), named("b")), lambda item: 1e-6 * item.size))
    for outside in (" src=", "@import", "<link", "<image", "url(http"):
        assert outside not in html
    assert html.count("<svg") == html.count("</svg>") == html.count("aria-label") == 12
    ids = [part.split('"')[0] for part in html.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert "currentColor" in html
    assert "#010203" not in html


def test_numbers_have_three_digits_and_a_unit() -> None:
    told = [tables.amount(x, "s") for x in (1.234, 0.00515, 5.15e-6, 3.1e-8, 0.1236)]
    assert told == ["1.23 s", "5.15 ms", "5.15 µs", "31 ns", "124 ms"]
    assert [tables.amount(x, "bytes") for x in (643.0, 6.43e6)] == ["643 B", "6.43 MB"]
    assert tables.interval(estimates.Estimate(0.714, 0.70, 0.72)) == "0.71 (0.70 to 0.72)"
    assert [tables.interval(x) for x in (None, estimates.Estimate(2.0))] == ["-", "2.00"]


# --- workloads ----------------------------------------------------------------------------------------------------


class Counting(Refgrad):
    """Counts what is asked of it, and keeps the last gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[str] = collections.Counter()

    def native_operation(self, op: str) -> Callable[..., Any]:
        function = super().native_operation(op)

        def counted(*operands: Any, **attributes: Any) -> Any:
            self.calls[op] += 1
            return function(*operands, **attributes)

        return counted

    def backward(self, root: Any, gradient: Any = None, **keywords: Any) -> None:
        self.calls["backward"] += 1
        super().backward(root, gradient, **keywords)

    def register_hook(self, x: Any, hook: Any) -> Any:
        self.calls["hook"] += 1
        return super().register_hook(x, hook)


@pytest.mark.parametrize(
    ("name", "size", "calls"),
    [
        ("chain", 100, {"mul": 50, "add": 50, "sum": 1, "backward": 1}),
        ("chain-sub", 100, {"mul": 50, "sub": 50, "sum": 1, "backward": 1}),
        ("chain-div", 100, {"div": 50, "add": 50, "sum": 1, "backward": 1}),
        ("chain-exp", 100, {"mul": 50, "exp": 50, "sum": 1, "backward": 1}),
        ("chain-hook", 100, {"mul": 50, "add": 50, "sum": 1, "hook": 1, "backward": 1}),
        ("sum-one-leaf", 100, {"add": 100, "sum": 1, "backward": 1}),
        ("sum-leaves", 100, {"add": 99, "sum": 1, "backward": 1}),
        ("matmul", 16, {"matmul": 4, "sum": 1, "backward": 1}),
        ("retain", 4, {"mul": 125, "add": 125, "sum": 1, "backward": 4}),
        ("hooks", 100, {"mul": 10, "add": 10, "sum": 2, "hook": 100, "backward": 2}),
        ("state", 100, {"mul": 50, "add": 50}),
    ],
)
def test_a_workload_does_what_it_says(name: str, size: int, calls: Mapping[str, int]) -> None:
    adapter = Counting()
    task = WORKLOADS[name].build(adapter, "refgrad", ARRAYS, size)
    if task.own is not None:
        task.own()
    else:
        assert task.run is not None
        task.run(task.prepare())
    assert adapter.calls == calls


@pytest.mark.parametrize("name", ["chain", "chain-sub", "chain-div", "chain-exp"])
def test_chains_stay_in_the_range_of_normal_numbers(name: str) -> None:
    adapter, (size,) = Refgrad(), WORKLOADS[name].sizes[-1:]
    task = WORKLOADS[name].build(adapter, "refgrad", ARRAYS, size)
    assert task.run is not None
    leaf = task.prepare()
    task.run(leaf)
    found = adapter.grad(leaf)
    assert all(1e-3 < abs(number) < 1e3 for number in found.tolist())


def test_the_implementation_is_called_without_its_adapter() -> None:
    assert Refgrad().native_operation("mul") is refgrad.mul
    stacked = Refgrad().native_operation("stack")(refgrad.ones(2), refgrad.ones(2), dim=0)
    assert tuple(stacked.shape) == (2, 2)

    class Own(Adapter):
        def apply(self, op: str, *operands: Any, **attributes: Any) -> Any:
            return op, operands, attributes

    assert Own().native_operation("sum")(1, dim=None) == ("sum", (1,), {"dim": None})


def test_every_slot_runs_as_many_rounds() -> None:
    of = planned(named("a"), named("b"), only=("chain",))
    lab = Lab(of, lambda _: Counting())
    assert len({lab.rounds(item) for item in of.items() if item.size == 100}) == 1
    memory = planned(named("a"), only=("state-memory",))
    assert Lab(memory, lambda _: Counting()).rounds(next(memory.items())) == 1


# --- the process --------------------------------------------------------------------------------------------------

ENGINE = """
    from gradspec.adapter import Adapter, Value

    class Number:
        def __init__(self, value, parents=()):
            self.value, self.parents, self.grad = value, parents, None

    class Engine(Adapter):
        name = "engine"
        features = frozenset({"scalar"})
        operations = frozenset({"add", "mul"})

        def tensor(self, data, *, shape=(), dtype="float64", requires_grad=False):
            assert shape == ()
            return Number(data)

        def apply(self, op, a, b):
            return BODY

        def backward(self, root, gradient=None):
            pass
"""


def engine(folder: Path, body: str = "Number(a.value)") -> str:
    file = folder / "mine.py"
    file.write_text(textwrap.dedent(ENGINE).replace("BODY", body), encoding="utf-8")
    return str(file)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)


@pytest.mark.usefixtures("tiny")
def test_a_run_from_end_to_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("b.json", "b.html", "b.md")]
    wanted = ("--quick", "--only", "chain", "--only", "matmul", "--base", "refgrad")
    written = (f"--{kind}={file}" for kind, file in zip(("json", "html", "markdown"), files, strict=True))
    status, out, err = gradspec(capfd, "refgrad", engine(tmp_path), *wanted, *written)
    assert (status, err) == (0, "")
    assert "engine against refgrad" in out
    assert "not offered: matmul: engine (operation matmul, operation sum, tensors of rank 2)" in " ".join(out.split())
    raw = json.loads(files[0].read_text(encoding="utf-8"))
    assert len(raw["benchmarks"]) == 2 * 3 * 3 + 2 * 3 * 2  # repeats, sizes, slots of chain; of matmul
    assert {row["slot"] for row in raw["gradspec"]["result"]} == {"refgrad", "refgrad again", "engine"}
    assert "node" not in raw["machine_info"]
    assert str(tmp_path) not in files[0].read_text(encoding="utf-8")
    again = gradspec(capfd, "--from", files[0], "--markdown", tmp_path / "c.md")
    assert again[0] == 0
    assert (tmp_path / "c.md").read_text(encoding="utf-8") == files[2].read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny")
def test_what_breaks_while_it_is_measured_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = engine(tmp_path, "1 / 0")
    status, out, err = gradspec(capfd, "refgrad", broken, "--quick", "--only", "chain")
    assert (status, err) == (1, "")
    assert "failed: chain 100: engine: ZeroDivisionError: division by zero" in out
    status, _, err = gradspec(capfd, broken, "--quick", "--only", "chain")
    assert (status, err) == (3, "gradspec: nothing could be measured\n")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("body", "how"),
    [("__import__('os')._exit(7)", "status 7"), ("__import__('os').kill(__import__('os').getpid(), 9)", "signal 9")],
)
def test_a_process_that_dies_is_told_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], body: str, how: str
) -> None:
    target = tmp_path / "b.json"
    status, _, err = gradspec(capfd, engine(tmp_path, body), "--quick", "--only", "chain", "--json", target)
    assert status == 3
    assert f"the process that measures ended ({how}) at engine on chain 100" in err
    assert (err.count("\n"), target.exists()) == (1, False)


def test_a_process_that_hangs_is_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SILENCE", 8.0)
    slow = engine(tmp_path, "__import__('time').sleep(60)")
    status, _, err = gradspec(capfd, slow, "--quick", "--only", "chain")
    assert (status, err) == (3, "gradspec: engine hangs on chain 100: nothing came back for 8 seconds\n")


def test_the_process_has_one_thread_and_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nonsense")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    found = process.environment()
    assert "PYTEST_ADDOPTS" not in found
    assert {found[name] for name in process._THREADS} == {"1"}
    assert found["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1"


def test_progress_in_a_log_is_a_line_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    items = list(planned(named("a"), only=("chain",), effort=dataclasses.replace(TINY, repeats=10)).items())
    with process.Progress("bench a", items, make_console()) as progress:
        for number in range(len(items) + 1):
            progress.done(number)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("bench a: 6/60 measurements, chain 100; 0 s, about 0 s left")
    assert lines[-1] == "bench a: 60/60 measurements; 0 s"


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nosuch", "there is no adapter 'nosuch'"),
        ("refgrad --only chian", "there is no workload 'chian': did you mean chain"),
        ("refgrad --base torch", "--base torch: it is not among the adapters"),
        ("refgrad --json nosuch/b.json", "the folder nosuch does not exist"),
        ("refgrad --html=", "has no name"),
        ("refgrad --html b --markdown ./b", "two reports would be written to one file"),
        ("refgrad --from b.json", "--from shows what was measured"),
        ("--from nosuch.json", "nosuch.json: the benchmark cannot be read: No such file"),
        ("--repeats 3", "No such option"),
    ],
)
@pytest.mark.usefixtures("planting")
def test_bad_input_is_one_line_and_status_2(capfd: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    status, out, err = gradspec(capfd, *arguments.split())
    assert said in err
    assert (status, out, err.count("\n"), err[:10]) == (2, "", 1, "gradspec: ")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"gradspec": {"schema": "gradspec-bench-9"}}', "[" * 100_000])
def test_a_file_that_holds_no_benchmark_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    status, out, err = gradspec(capfd, "--from", tmp_path / "b.json")
    assert "b.json: " in err
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_an_adapter_that_cannot_be_loaded_is_status_3(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("raise OSError('no device')\n", encoding="utf-8")
    status, _, err = gradspec(capfd, tmp_path / "bad.py")
    assert status == 3
    assert "could not be started: OSError: no device" in err


def test_a_missing_extra_is_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_EXTRA", ("scipy", "nosuch_a", "nosuch_b"))
    _, _, err = gradspec(capfd, "refgrad")
    assert err == "gradspec: bench needs nosuch_a and nosuch_b: install them with pip install 'gradspec[bench]'\n"


def test_interrupted_is_130_and_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setitem(command.run.__kwdefaults__, "measuring", interrupted)
    status, _, err = gradspec(capfd, "refgrad", "--json", tmp_path / "b.json")
    assert (status, err.strip(), list(tmp_path.iterdir())) == (130, "gradspec: interrupted", [])


@pytest.mark.usefixtures("planting")
def test_the_board_fits_eighty_columns(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = gradspec(capfd, "refgrad", "gradspec.faults:H04")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "refgrad with fault H04" in out
    assert [name for name in WORKLOADS if name not in out] == []


def test_efforts_differ_in_size_alone() -> None:
    assert plan.QUICK.repeats < plan.FULL.repeats
    for row in WORKLOADS.values():
        assert max(row.quick) <= max(row.sizes)
        assert all(size % 10 == 0 for size in row.sizes if row.name == "hooks")
