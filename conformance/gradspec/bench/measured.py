"""The test file of a benchmark run: one test, once for each item of the plan. `child.py` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from gradspec.bench.child import Measuring


def test_measured(measuring: Measuring, benchmark: BenchmarkFixture) -> None:
    """Measure the item that this test was made for."""
    measuring.measure(benchmark)
