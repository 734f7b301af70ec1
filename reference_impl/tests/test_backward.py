"""The engine: seeds, roots, inputs, slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import refgrad as rg
from refgrad import errors


def leaf(*data: Any, **options: Any) -> Any:
    return rg.tensor(
        data[0] if len(data) == 1 else list(data), dtype=options.get("dtype", rg.float64), requires_grad=True
    )


def test_implicit_seed_of_any_rank() -> None:
    x = leaf([[3.0]])
    (x * x).backward()
    assert x.grad.tolist() == [[6.0]]
    assert x.grad.dtype == rg.float64


@pytest.mark.parametrize(
    ("root", "seed", "error"),
    [
        (lambda x: x * 2, None, errors.NotScalarError),
        (lambda x: x[:0] * 2, None, errors.NotScalarError),
        (lambda x: x[0].to(rg.complex128), None, errors.NotRealError),
        (lambda x: x * 2, rg.ones(3, dtype=rg.float64), errors.BadSeedShapeError),
        (lambda x: x[0] * 2, rg.ones(1, dtype=rg.float64), errors.BadSeedShapeError),
        (lambda x: x * 2, rg.ones(2, dtype=rg.complex128), errors.BadSeedDtypeError),
        (lambda x: x.to(rg.complex128), rg.ones(2, dtype=rg.float64), errors.BadSeedDtypeError),
        (lambda x: x * 2, 1.0, errors.BadTypeError),
        (lambda x: x * 2, [1.0, 2.0], errors.BadTypeError),
        (lambda x: x.detach().sum(), None, errors.NothingRequiresGradError),
    ],
)
def test_refused_seeds(root: Any, seed: Any, error: type[Exception]) -> None:
    x = leaf(1.0, 2.0)
    out = root(x)
    with pytest.raises(error):
        out.backward(seed)
    assert x.grad is None


def test_refused_lists() -> None:
    x = leaf(2.0)
    one = rg.ones((), dtype=rg.float64)
    for call in (rg.autograd.backward, lambda y, s: rg.autograd.grad(y, x, s)):
        with pytest.raises(errors.WrongSeedCountError):
            call([x * 2, x * 3], [one])
        with pytest.raises(errors.WrongSeedCountError):
            call([x * 2], [one, one])
        with pytest.raises(errors.BadTypeError):
            call([x * 2], ["seed"])
    with pytest.raises(errors.EmptyInputsError):
        (x * 2).backward(inputs=[])
    with pytest.raises(errors.EmptyInputsError):
        rg.autograd.grad(x * 2, [])
    with pytest.raises(errors.NotRequiringGradError):
        (x * 2).backward(inputs=[one])


def test_a_seed_is_converted_and_kept() -> None:
    x = leaf(1.0, 2.0)
    seed = rg.ones(2, dtype=rg.float32)
    for k in (1, 2, 3):
        x.view(2, 1).view(2).backward(seed)
        assert x.grad.tolist() == [k, k]
        assert x.grad.dtype == rg.float64
    assert seed.tolist() == [1, 1]


def test_roots_add_up_also_dependent_and_repeated_ones() -> None:
    a = leaf(1.0)
    c = 2 * a
    d = c + c
    e = d + d
    rg.autograd.backward([e, c, d, a])
    assert a.grad.item() == 8 + 2 + 4 + 1
    b = leaf(3.0)
    y = b * b
    rg.autograd.backward([y, y], [None, rg.tensor(2.0, dtype=rg.float64)])
    assert b.grad.item() == 18


def test_leaf_root_gets_the_seed() -> None:
    x = leaf(1.0, 2.0)
    seed = rg.tensor([3.0, 4.0], dtype=rg.float64)
    x.backward(seed)
    assert x.grad.tolist() == [3, 4]
    assert x.grad.data_ptr() != seed.data_ptr()


def test_inputs_restrict_and_fill_non_leaves_once() -> None:
    a, b, c = leaf(2.0), leaf(3.0), leaf(5.0)
    y = a * b
    z = y * y * c
    z.backward(inputs=[y, a, a, leaf(1.0)], retain_graph=True)
    assert (a.grad.item(), b.grad, c.grad, y.grad.item()) == (180, None, None, 60)
    assert not y.retains_grad
    z.backward(retain_graph=True)
    assert y.grad.item() == 60
    y.retain_grad()
    z.backward(inputs=(y,))
    assert (y.grad.item(), a.grad.item()) == (120, 360)


def test_first_grad_takes_strides_of_a_dense_leaf() -> None:
    dense = rg.tensor(np.ones((2, 3, 4)).transpose(2, 0, 1)).requires_grad_()
    gappy = rg.from_numpy(np.ones((2, 6))[:, ::2]).requires_grad_()
    for x, steps in ((dense, (1, 12, 4)), (gappy, (3, 1))):
        (x * 2).sum().backward()
        first, address = x.grad, x.grad.data_ptr()
        assert first.stride() == steps
        (x * 2).sum().backward()
        assert x.grad is first
        assert (first.data_ptr(), first.stride()) == (address, steps)
        assert first._version == 1


def test_slots_share_no_memory() -> None:
    a, b, c = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    seed = rg.ones(1, 2, dtype=rg.float64)
    out = a.view(1, 2) + b.view(1, 2) + c.reshape(1, 2)
    out.retain_grad()
    for k in (1, 2, 3):
        out.backward(seed, retain_graph=True)
        assert [t.grad.tolist() for t in (a, b, c)] == [[k, k]] * 3
    places = {t.untyped_storage().data_ptr() for t in (a, b, c, a.grad, b.grad, c.grad, out.grad, seed)}
    assert len(places) == 8
    assert seed.tolist() == [[1, 1]]


@pytest.mark.parametrize("make", [lambda x: rg.split(x, 2), rg.unbind])
def test_unused_outputs_count_as_zeros(make: Any) -> None:
    x = leaf(1.0, 2.0, 3.0)
    parts = make(x)
    seen: list[Any] = []
    parts[0].register_hook(seen.append)
    (parts[1] * 5).sum().backward()
    assert sum(x.grad.tolist()) == 5
    assert seen == []
    assert parts[0].grad_fn is parts[1].grad_fn


def test_hooks_see_the_full_sum_once_and_replace_it() -> None:
    x = leaf(2.0)
    y = x * 3
    seen: list[float] = []
    first = y.register_hook(lambda g: seen.append(g.item()))
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    out = y * y + y
    out.backward(retain_graph=True)
    assert (seen, y.grad.item(), x.grad.item()) == ([13.0], 130, 390)
    first.remove()
    with x.register_hook(lambda g: g + 1):
        out.backward(retain_graph=True)
    out.backward()
    assert (seen, x.grad.item()) == ([13.0], 390 * 3 + 1)


def test_bad_hooks() -> None:
    x = leaf(2.0)
    for answer, error in ((1.0, errors.BadTypeError), (rg.ones(2), errors.BadShapeError)):
        with x.register_hook(lambda _, answer=answer: answer), pytest.raises(error):
            (x * 2).backward()
    boom = ValueError("boom")

    def fail(_: Any) -> None:
        raise boom

    with x.register_hook(fail), pytest.raises(ValueError, match="boom") as caught:
        (x * 2).backward()
    assert caught.value is boom
    assert x.grad is None
    assert rg.is_grad_enabled()
    with pytest.raises(errors.NotRequiringGradError):
        rg.ones(1).register_hook(fail)


def test_slot_setter() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(errors.BadGradShapeError):
        x.grad = rg.ones(3, dtype=rg.float64)
    with pytest.raises(errors.BadGradDtypeError):
        x.grad = rg.ones(2)
    with pytest.raises(errors.BadTypeError):
        x.grad = 1.0
    with pytest.raises(errors.SelfGradError):
        x.grad = x
    start = rg.ones(2, dtype=rg.float64)
    x.grad = start
    (x * 2).sum().backward()
    assert x.grad is start
    assert start.tolist() == [3, 3]
    x.grad = rg.ones((), dtype=rg.float64).expand(2)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3, 3]
    del x.grad
    assert x.grad is None


def test_retain_grad() -> None:
    x = leaf(2.0)
    y = x * 3
    with pytest.warns(errors.NonLeafGradWarning, match="retain_grad"):
        assert y.grad is None
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    out = y * y
    out.backward(retain_graph=True)
    out.backward(retain_graph=True)
    assert (y.grad.item(), y.retains_grad, x.retains_grad) == (24, True, False)
    rg.autograd.grad(out, [x, y])
    assert y.grad.item() == 24
    assert not y.grad.requires_grad
    with pytest.raises(errors.NotRequiringGradError):
        x.detach().retain_grad()


def test_flag_cleared_or_set_after_the_forward() -> None:
    x, w, late = leaf(2.0), leaf(3.0), rg.tensor(5.0, dtype=rg.float64)
    z = x * w * late
    w.requires_grad_(False)
    late.requires_grad_()
    z.backward()
    assert (x.grad.item(), w.grad, late.grad) == (15, None, None)


def test_unneeded_values_may_change_and_needed_ones_not() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    total, product = (x + w).sum(), (x * w).sum()
    with rg.no_grad():
        w.add_(1)
    total.backward()
    with pytest.raises(errors.ModifiedInPlaceError):
        product.backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([1, 1], [1, 1])


def test_backward_under_no_grad_keeps_the_mode() -> None:
    x = leaf(2.0)
    y = x * x
    with rg.no_grad():
        y.backward(create_graph=True)
        assert not rg.is_grad_enabled()
    assert x.grad.requires_grad


def test_integers_and_dtypes() -> None:
    x = rg.tensor([1.5, 2.5], dtype=rg.float32, requires_grad=True)
    y = x * rg.tensor([2, 3]) * 2.0 * rg.tensor([1.0, 1.0], dtype=rg.float64)
    assert y.dtype == rg.float64
    y.sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (rg.float32, [4, 6])
    z = rg.tensor(2.0, requires_grad=True)
    assert (z * rg.tensor(2.0, dtype=rg.float64)).dtype == rg.float64
    assert (x * rg.tensor(2.0, dtype=rg.float64)).dtype == rg.float32
    with pytest.raises(errors.NotDifferentiableError):
        rg.tensor([1], requires_grad=True)


def test_gradient_edges() -> None:
    edge = rg.autograd.graph.get_gradient_edge
    x = leaf(2.0, 3.0)
    y = x * x
    parts = rg.unbind(y)
    rg.autograd.backward([edge(parts[1]), edge(x)], [None, rg.ones(2, dtype=rg.float64)], retain_graph=True)
    assert x.grad.tolist() == [1, 7]
    out = parts[0] * parts[1]
    found = rg.autograd.grad(out, [edge(y), edge(x), edge(parts[0])])
    assert [g.tolist() for g in found] == [[9, 4], [36, 24], 9]
    with pytest.raises(errors.NotRequiringGradError):
        edge(x.detach())
    with pytest.raises(errors.NotScalarError):
        rg.autograd.backward(edge(y))
