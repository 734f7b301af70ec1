"""Retained and freed graphs, higher order, memory, depth and threads."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import refgrad as rg
from refgrad import errors


def leaf(value: Any) -> Any:
    return rg.tensor(value, dtype=rg.float64, requires_grad=True)


@pytest.mark.parametrize(
    "f", [lambda x: x * x, lambda x: x * 2, lambda x: x**2, rg.exp, lambda x: 1 / x, rg.abs, rg.relu]
)
def test_second_pass_needs_retain(f: Any) -> None:
    x = leaf(2.0)
    y = f(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(errors.GraphFreedError, match="retain_graph=True"):
        y.backward()
    with pytest.raises(errors.GraphFreedError):
        rg.autograd.grad(y, x)


def test_passes_that_save_nothing_may_be_repeated() -> None:
    x = leaf([1.0, 2.0])
    y = rg.cat([(-x).view(2, 1) + 1, x.clone().unsqueeze(1)]).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [0, 0]


def test_freeing_is_per_executed_node() -> None:
    a, b = leaf(2.0), leaf(3.0)
    z = a * a + b * b
    rg.autograd.grad(z, a)
    assert rg.autograd.grad(z, b)[0].item() == 6
    with pytest.raises(errors.GraphFreedError):
        z.backward()
    assert (a.grad, b.grad) == (None, None)


def test_create_graph_without_retain() -> None:
    x = leaf(3.0)
    y = x**3
    (g,) = rg.autograd.grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(errors.GraphFreedError):
        y.backward()
    assert rg.autograd.grad(g, x)[0].item() == 18


def test_recorded_slots() -> None:
    x = leaf(3.0)
    y = x**3
    y.backward(create_graph=True)
    first = x.grad
    y.backward(create_graph=True)
    assert (first.item(), x.grad.item(), x.grad is first) == (27, 54, False)
    assert rg.autograd.grad(x.grad, x)[0].item() == 36


def test_gradients_depend_on_seeds() -> None:
    x, v = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (g,) = rg.autograd.grad(x * x, x, v, create_graph=True)
    (d,) = rg.autograd.grad(g, v, rg.tensor([1.0, 1.0], dtype=rg.float64))
    assert d.tolist() == [2, 4]


def test_grad_answers_and_refusals() -> None:
    x, other = leaf(2.0), leaf(1.0)
    y = x * 3
    z = y * y
    assert [g.item() for g in rg.autograd.grad(z, [x, y, z, x], retain_graph=True)] == [36, 12, 1, 36]
    assert rg.autograd.grad(z, {"a": x}, retain_graph=True)["a"].item() == 36
    with pytest.raises(errors.UnreachableInputError):
        rg.autograd.grad(z, [x, other], retain_graph=True)
    assert rg.autograd.grad(z, other, allow_unused=True, retain_graph=True) == (None,)
    assert rg.autograd.grad(z, other, materialize_grads=True)[0].item() == 0
    with pytest.raises(errors.BadArgumentError):
        rg.autograd.grad(z, other, materialize_grads=True, allow_unused=False)
    with pytest.raises(errors.BadArgumentError):
        rg.autograd.grad(z, x, is_grads_batched=True)
    assert x.grad is None


def test_freed_at_once_without_a_collection() -> None:
    gc.disable()
    try:
        x = leaf([1.0])
        y = x * 2
        z = rg.exp(y) * y
        watch, node = weakref.ref(y), weakref.ref(z.grad_fn)
        del y
        assert watch() is not None
        z.backward()
        assert watch() is None
        del z
        assert node() is None
    finally:
        gc.enable()


def test_a_graph_dies_with_its_output() -> None:
    gc.disable()
    try:
        x = leaf([1.0])
        y = x * 2
        watch = weakref.ref(y)
        z = y * y
        y.retain_grad()
        del y, z
        assert watch() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("run", [True, False])
def test_deep_chain(run: bool) -> None:
    x = leaf(1.0)
    y, w = x, leaf(1.0)
    for _ in range(50_000):
        y = y + w
        y = y * w
    if run:
        y.backward()
        assert x.grad.item() == 1
    del y
    assert len(gc.get_referrers(x)) < 10


def test_doublings_cost_one_run_each() -> None:
    x = leaf(1.0)
    y, calls = x, []
    for _ in range(60):
        y = y + y
        y.register_hook(calls.append)
    y.backward()
    assert (x.grad.item(), len(calls)) == (2.0**60, 60)


def test_threads_have_modes_and_passes_of_their_own() -> None:
    shared, found = leaf([1.0, 2.0]), []

    def work(k: int) -> None:
        mode = rg.is_grad_enabled()
        for _ in range(50):
            g = rg.autograd.grad((shared * k).sum(), shared)[0].tolist()
        found.append((mode, k, g))

    with rg.no_grad():
        threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(found) == [(True, k, [float(k)] * 2) for k in range(1, 5)]


def test_a_pass_inside_a_hook() -> None:
    x, inner = leaf(2.0), leaf(5.0)
    y = x * 3

    def hook(_: Any) -> None:
        with rg.enable_grad():
            (inner * inner).backward()

    y.register_hook(hook)
    (y * y).backward()
    assert (x.grad.item(), inner.grad.item()) == (36, 10)


def test_modes() -> None:
    x = leaf(1.0)
    with rg.no_grad():
        assert not (x * 2).requires_grad
        with rg.enable_grad():
            assert (x * 2).requires_grad
        with rg.set_grad_enabled(True):
            assert rg.is_grad_enabled()
        assert not rg.is_grad_enabled()
    rg.set_grad_enabled(False)
    assert not rg.is_grad_enabled()
    rg.set_grad_enabled(True)

    @rg.no_grad
    def bare() -> bool:
        return rg.is_grad_enabled()

    @rg.set_grad_enabled(False)
    def called() -> bool:
        return rg.is_grad_enabled()

    assert rg.is_grad_enabled()
    assert (bare(), called(), rg.is_grad_enabled()) == (False, False, True)


def test_decorated_generator() -> None:
    @rg.no_grad()
    def body() -> Any:
        sent = yield rg.is_grad_enabled()
        rg.set_grad_enabled(True)
        yield sent, rg.is_grad_enabled()
        yield rg.is_grad_enabled()

    steps = body()
    assert next(steps) is False
    assert rg.is_grad_enabled()
    with rg.no_grad():
        assert steps.send(7) == (7, True)
        assert not rg.is_grad_enabled()
    assert next(steps) is True


def test_threads_that_meet_a_leaf_first_get_one_node() -> None:
    found: list[float] = []

    def work(x: Any, gate: threading.Barrier) -> None:
        gate.wait()
        found.append(rg.autograd.grad(x * x + x.view(()), x)[0].item())

    for _ in range(50):
        x, gate = leaf(3.0), threading.Barrier(3)
        threads = [threading.Thread(target=work, args=(x, gate)) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert found == [7.0] * 150


@pytest.mark.parametrize("dtype", [rg.float16, rg.float32, rg.complex64])
def test_gradients_keep_narrow_dtypes(dtype: Any) -> None:
    x = rg.tensor(2.0, dtype=dtype, requires_grad=True)
    y = (x**2 + 3 * x + 1 / x - x / 2).reshape(1)
    out = rg.real((y * rg.tensor([1.0], dtype=dtype)).mean() + rg.sqrt(x) * 0)
    out.backward(create_graph=True)
    assert x.grad.dtype == dtype
    assert out.dtype == rg.real(x).dtype
    rg.real(x.grad).backward()
    assert x.grad.dtype == dtype
