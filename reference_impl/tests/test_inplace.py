"""Writes in place, views and versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import refgrad as rg
from refgrad import errors


def leaf(value: Any) -> Any:
    return rg.tensor(value, dtype=rg.float64, requires_grad=True)


def test_versions_are_shared_by_views_and_detached_aliases() -> None:
    x = rg.zeros(2, 3)
    view, cut, copy = x[0], x.detach(), x.clone()
    view.add_(1)
    cut.T[0].zero_()
    assert (x._version, view._version, cut._version, copy._version) == (2, 2, 2, 0)
    _ = x + 1, x.view(6), x[1:]
    assert x._version == 2


@pytest.mark.parametrize("write", [lambda y: y.add_(0), lambda y: y[0].mul_(2), lambda y: y.detach().zero_()])
def test_a_saved_value_is_protected(write: Any) -> None:
    x = leaf([1.0, 2.0])
    y = x * 3
    z = (y * y).sum()
    write(y)
    with pytest.raises(errors.ModifiedInPlaceError):
        z.backward()


def test_a_saved_output_is_protected() -> None:
    x = leaf([1.0, 2.0])
    y = rg.exp(x)
    y.mul_(2)
    with pytest.raises(errors.ModifiedInPlaceError):
        y.sum().backward()
    z = (x * 1).exp_()
    z.mul_(2)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([1.0, 2.0]))


def test_refused_writes() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(errors.NotLeafError):
        x.add_(1)
    with pytest.raises(errors.NotLeafError):
        x[0].zero_()
    y = x * 1
    with rg.no_grad():
        view = y[:1]
    with pytest.raises(errors.NotLeafError):
        view.mul_(2)
    with pytest.raises(errors.BadShapeError):
        rg.ones(1).expand(3).add_(1)
    with pytest.raises(errors.BadShapeError):
        rg.ones(1).add_(rg.ones(3))
    with pytest.raises(errors.BadResultDtypeError):
        rg.ones(1).to(rg.int64).mul_(1.5)
    with pytest.raises(errors.NotLeafError):
        y[0].detach_()
    with pytest.raises(errors.NotLeafError):
        y.requires_grad = False


def test_a_leaf_may_be_written_under_no_grad() -> None:
    x = leaf([1.0, 2.0])
    with rg.no_grad():
        x.mul_(2)
        x[0] = 5
    assert (x.tolist(), x.is_leaf, x.requires_grad, x._version) == ([5, 4], True, True, 2)


def test_untracked_targets_become_tracked() -> None:
    x, buffer = leaf(3.0), rg.zeros(2, 2, dtype=rg.float64)
    row = buffer[1]
    buffer[1, 0] = x * 2
    assert (buffer.requires_grad, row.requires_grad, buffer.is_leaf) == (True, True, False)
    (row * row).sum().backward()
    assert x.grad.item() == 2 * 6 * 2


def test_fill_and_copy_cut_the_past() -> None:
    x, s = leaf([1.0, 2.0]), leaf(4.0)
    y = x * 2
    assert y.zero_() is y
    (y + 1).sum().backward()
    z = x * 2
    z.copy_(s)
    z.fill_(s * s)
    z.sum().backward()
    assert (x.grad.tolist(), s.grad.item()) == ([0, 0], 16)


def test_retained_gradients_follow_the_tensor_and_hooks_stay() -> None:
    x = leaf(2.0)
    y, seen = x * 1, []
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.item()))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 5).backward()
    assert (y.grad.item(), sorted(seen)) == (5, [5, 15])


def test_detach_in_place_after_a_save_keeps_second_derivatives() -> None:
    x = leaf(2.0)
    y = x * 1
    z = y * y
    y.detach_()
    (g,) = rg.autograd.grad(z, x, create_graph=True)
    assert (g.item(), rg.autograd.grad(g, x)[0].item()) == (4, 2)
    assert y.is_leaf


def steps_of(rng: Any, x: Any) -> list[tuple[str, Any]]:
    """A chain of views, in words that tensors and ndarrays both can follow."""
    chain: list[tuple[str, Any]] = []
    for _ in range(rng.integers(0, 3)):
        kind = rng.integers(0, 3)
        shape = np.zeros(x.shape)[()] if not chain else follow(np.zeros(x.shape), chain)
        if kind == 0:
            chain.append(("T", None))
        elif kind == 1 and shape.ndim:
            chain.append(("index", int(rng.integers(0, shape.shape[0]))))
        elif shape.ndim and shape.shape[0] > 1:
            chain.append(("index", slice(1, None)))
    return chain


def follow(x: Any, chain: list[tuple[str, Any]]) -> Any:
    for kind, argument in chain:
        x = x.T if kind == "T" else x[(argument, ...)]
    return x


def merged(base: Any, chain: list[tuple[str, Any]], value: Any) -> Any:
    """The base with the value in place of its view, without writing: a gather out of both."""
    places = follow(np.arange(base.numel()).reshape(base.shape), chain)
    sources = np.arange(base.numel())
    sources[places.reshape(-1)] = base.numel() + np.arange(places.size)
    joined = rg.cat([base.reshape(-1), value.expand(places.shape).reshape(-1)])
    return rg.index_select(joined, 0, rg.tensor(sources)).reshape(base.shape)


@pytest.mark.parametrize("seed", range(60))
def test_random_writes_equal_their_functional_form(seed: int) -> None:
    """Writes through views of views: values and gradients are those of a program that writes nothing."""
    results = []
    for in_place in (True, False):
        rng = np.random.default_rng(seed)
        x, s = leaf(rng.integers(-3, 4, (2, 3)).astype(float)), leaf(float(rng.integers(1, 4)))
        base, early = x * 2, None
        chain = steps_of(rng, base)
        if in_place:
            early = follow(base, chain)
        for _ in range(4):
            target = steps_of(rng, base)
            kind, view = rng.integers(0, 3), follow(base, target)
            value = (view * s, view + s, s * s)[kind]
            if not in_place:
                base = merged(base, target, value)
            elif kind == 2:
                view.copy_(s * s)
            else:
                (view.mul_, view.add_)[kind](s)
        out = (base * base).sum() + (early if early is not None else follow(base, chain)).sum()
        results.append([t.tolist() for t in (out, *rg.autograd.grad(out, [x, s], materialize_grads=True))])
    assert results[0] == results[1]


@pytest.mark.parametrize("cut", [lambda y: rg.split(y, 1)[1], lambda y: rg.unbind(y, 1)[0]])
def test_writes_to_one_of_several_outputs(cut: Any) -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    part = cut(y)
    part.mul_(part.detach().clone())
    y.sum().backward()
    expected = np.ones((2, 2))
    cut(rg.from_numpy(expected)).copy_(cut(x.detach()))
    assert x.grad.tolist() == expected.tolist()


def test_a_former_leaf_or_retainer_gets_nothing_from_its_old_graph() -> None:
    x, s = leaf([1.0, 2.0]), leaf(3.0)
    y = x * s
    y.retain_grad()
    out = (y + x).sum()
    y.detach_().requires_grad_()
    x.requires_grad_(False)
    x.mul_(s + 0)
    with pytest.raises(errors.ModifiedInPlaceError):
        out.backward()
    (leaf(1.0) * 2 + y.sum() * 0).backward()
    z = leaf([1.0])
    old = (z + s).sum()
    z.requires_grad_(False).add_(s)
    old.backward()
    assert (z.retains_grad, s.grad.item(), y.grad.tolist()) == (False, 1, [0, 0])
    with pytest.warns(errors.NonLeafGradWarning):
        assert z.grad is None
