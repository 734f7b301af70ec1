"""refgrad's chain of small operations against torch's: one figure, a ratio of minima in one interleaved run.

    python reference_impl/benchmarks/chain.py

1,000 alternating multiplications and additions by constants on 10 float32 elements, sum, backward, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType

import refgrad
import torch

RUNS = 60


def chain(ag: ModuleType) -> Callable[[], None]:
    """The workload over a namespace."""
    scale, shift = ag.full((10,), 1.0001), ag.full((10,), 0.5)

    def run() -> None:
        y = x = ag.ones(10, requires_grad=True)
        for _ in range(500):
            y = y * scale
            y = y + shift
        y.sum().backward()
        assert x.grad is not None

    return run


def seconds(run: Callable[[], None]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print the ratio."""
    torch.set_num_threads(1)
    ours, theirs = chain(refgrad), chain(torch)
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(RUNS)]
    best, base = (min(column) for column in zip(*pairs, strict=True))
    print(f"refgrad {1e3 * best:.2f} ms, torch {1e3 * base:.2f} ms, ratio {best / base:.2f} (minima of {RUNS} runs)")


if __name__ == "__main__":
    main()
