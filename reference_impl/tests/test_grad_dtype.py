"""The dtype of `.grad`: cast in a pass, ruled in an assignment, lifted by None."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import refgrad as rg
from refgrad import errors


def leaf(dtype: Any = rg.float32) -> Any:
    return rg.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)


def other(dtype: Any) -> Any:
    return rg.float64 if dtype == rg.float32 else rg.float32


@pytest.mark.parametrize("dtype", [rg.float32, rg.float64])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_passes_cast(dtype: Any, create_graph: bool, late: bool) -> None:
    x = leaf(dtype)
    assert x.grad_dtype == dtype
    y = (x * x).sum() if late else None
    x.grad_dtype = other(dtype)
    ((x * x).sum() if y is None else y).backward(create_graph=create_graph)
    held = x.grad
    (x * x).sum().backward(create_graph=create_graph)
    assert (x.grad.dtype, x.grad.tolist(), x.grad is held) == (other(dtype), [4, 8], not create_graph)
    assert x.dtype == dtype


def test_a_wide_slot_adds_up_in_its_dtype() -> None:
    x = leaf()
    x.grad_dtype = rg.float64
    for seed in (2.0**24, 1.0):
        (x * 1.0).backward(rg.tensor([seed, seed]))
    assert x.grad.tolist() == [2.0**24 + 1] * 2


def test_hooks_and_grad_see_the_cast_gradient() -> None:
    x, seen = leaf(), []
    x.grad_dtype = rg.float64
    x.register_hook(lambda g: seen.append(g.dtype))
    (x * x).sum().backward(inputs=[x])
    (found,) = rg.autograd.grad((x * x).sum(), x)
    assert (seen, found.dtype, x.grad.dtype) == ([rg.float64] * 2, rg.float64, rg.float64)


def test_a_recorded_cast_is_differentiated() -> None:
    x = leaf()
    x.grad_dtype = rg.float64
    (x * x * x).sum().backward(create_graph=True)
    g, x.grad = x.grad, None
    g.sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (rg.float64, [6, 12])


def test_an_assigned_gradient_must_have_it() -> None:
    x = leaf()
    x.grad_dtype = rg.float64
    x.grad = rg.ones(2, dtype=rg.float64)
    with pytest.raises(errors.BadGradDtypeError, match="must be float64, not float32"):
        x.grad = rg.ones(2)
    assert x.grad.dtype == rg.float64


@pytest.mark.parametrize("dtype", [rg.float32, rg.float64])
def test_none_takes_every_dtype(dtype: Any) -> None:
    x = leaf(dtype)
    x.grad_dtype = None
    assert x.grad_dtype is None
    for assigned in (rg.float64, rg.float32, rg.int64, rg.complex128):
        given = rg.ones(2, dtype=assigned)
        x.grad = given
        (x * x).sum().backward()
        assert x.grad.tolist() == [3, 5]
        assert (x.grad is given) == (assigned != rg.int64), "integers cannot take the sum"


def test_none_keeps_the_dtype_that_arrives() -> None:
    x, wide = leaf(), rg.tensor([0.1, 0.2], dtype=rg.float64)
    x.grad_dtype = None
    (x * wide).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (rg.float64, [0.1, 0.2])
    x = leaf()
    x.grad_dtype = None
    rg.real(x * (1 + 2j)).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (rg.float32, [1, 1])  # of a real leaf it is real all the same
    x = leaf()
    x.grad_dtype = None
    x.backward(rg.ones(2, dtype=rg.float64))
    assert x.grad.dtype == rg.float64


@pytest.mark.parametrize(
    ("dtype", "error"),
    [
        (rg.int64, errors.BadGradDtypeError),
        (rg.complex64, errors.BadGradDtypeError),
        (1, errors.BadTypeError),
        ("float32", errors.BadTypeError),
    ],
)
def test_refused_settings(dtype: Any, error: type[Exception]) -> None:
    x = leaf()
    with pytest.raises(error):
        x.grad_dtype = dtype
    assert x.grad_dtype == rg.float32


def test_a_filled_slot_keeps_the_rule_it_has() -> None:
    x = leaf()
    (x * x).sum().backward()
    with pytest.raises(errors.BadGradDtypeError, match=r"set \.grad to None first"):
        x.grad_dtype = rg.float64
    x.grad_dtype = rg.float32
    x.grad_dtype = None
    assert x.grad.tolist() == [2, 4]


def test_non_leaves_have_none() -> None:
    x = leaf()
    y = x * x
    with pytest.raises(errors.NotLeafError, match="only leaves have a grad_dtype"):
        _ = y.grad_dtype
    with pytest.raises(errors.NotLeafError, match="only leaves have a grad_dtype"):
        y.grad_dtype = rg.float64
    y.retain_grad()
    y.sum().backward()
    assert y.grad.dtype == rg.float32
    with pytest.raises(errors.BadGradDtypeError):
        y.grad = rg.ones(2, dtype=rg.float64)


def test_a_leaf_that_became_a_non_leaf_has_its_own_dtype() -> None:
    x = rg.ones(2)
    x.grad_dtype = rg.float64
    x.mul_(leaf())
    with pytest.raises(errors.NotLeafError):
        _ = x.grad_dtype
    x.grad = rg.ones(2)


@pytest.mark.parametrize("dtype", [rg.float64, None])
@pytest.mark.parametrize("own", [rg.float32, rg.float64])
def test_copies_and_views(dtype: Any, own: Any) -> None:
    x = leaf(own)
    x.grad_dtype = dtype
    assert x.detach().grad_dtype == x.clone().detach().grad_dtype == own
    x.grad = rg.ones(2, dtype=rg.float64)
    made = copy.deepcopy(x)
    assert made.grad_dtype is dtype
    assert np.array_equal(made.grad.numpy(), [1, 1])
    (made * made).sum().backward()
    assert (made.grad.dtype, made.grad.tolist(), x.grad.tolist()) == (rg.float64, [3, 5], [1, 1])


def test_tensors_that_require_no_grad_have_one() -> None:
    assert rg.ones(2, dtype=rg.int64).grad_dtype == rg.int64
    x = rg.ones(2)
    x.grad_dtype = rg.float64
    x.requires_grad_()
    (x * 2.0).sum().backward()
    assert x.grad.dtype == rg.float64
