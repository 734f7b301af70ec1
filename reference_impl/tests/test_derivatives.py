"""Every operation: its vjp and the vjp of its vjp against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import refgrad as rg

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], bool]
INDEX = rg.tensor([2, 0, 0])
MASK = rg.tensor([[True, False, True], [False, False, True]])


def written(a: Any, b: Any) -> Any:
    y = a * 2
    y[:, 1:] = b
    return y * y


def through(a: Any, b: Any) -> Any:
    y = a * 2
    y.T[1].mul_(b)
    return y * y


CASES: dict[str, Case] = {  # function, shapes of its operands, complex operands too
    "neg": (rg.neg, ((2, 3),), True),
    "abs": (rg.abs, ((2, 3),), True),
    "relu": (lambda x: rg.relu(x - 1), ((2, 3),), False),
    "square": (rg.square, ((2, 3),), True),
    "reciprocal": (rg.reciprocal, ((3,),), True),
    "sqrt": (rg.sqrt, ((3,),), True),
    "exp": (rg.exp, ((3,),), True),
    "log": (rg.log, ((3,),), True),
    "sin": (rg.sin, ((3,),), True),
    "cos": (rg.cos, ((3,),), True),
    "tanh": (rg.tanh, ((3,),), True),
    "sigmoid": (rg.sigmoid, ((3,),), True),
    "clone": (rg.clone, ((3,),), True),
    "pow3": (lambda x: x**3, ((3,),), True),
    "pow2": (lambda x: x**2, ((3,),), True),
    "pow1": (lambda x: x**1, ((3,),), False),
    "pow0": (lambda x: x**0, ((3,),), False),
    "pow-half": (lambda x: x**-0.5, ((3,),), False),
    "pow-tensor": (rg.pow, ((2, 3), (3,)), True),
    "add": (rg.add, ((2, 3), (3,)), True),
    "add-alpha": (lambda a, b: rg.add(a, b, alpha=3), ((2, 1), (3,)), True),
    "sub": (rg.sub, ((1, 3), (2, 1)), True),
    "rsub": (lambda a: 2 - a, ((3,),), True),
    "mul": (rg.mul, ((2, 3), (3,)), True),
    "mul-self": (lambda a: a * a, ((3,),), True),
    "mul-number": (lambda a: 2.5 * a, ((3,),), True),
    "div": (rg.div, ((2, 3), (3,)), True),
    "rdiv": (lambda a: 2 / a, ((3,),), True),
    "where": (lambda a, b: rg.where(MASK, a, b), ((2, 3), (3,)), True),
    "sum": (rg.sum, ((2, 3),), True),
    "sum-dim": (lambda x: rg.sum(x, dim=0, keepdim=True), ((2, 3),), True),
    "sum-dims": (lambda x: rg.sum(x, dim=(0, 2)), ((2, 3, 2),), True),
    "mean": (rg.mean, ((2, 3),), True),
    "mean-dim": (lambda x: rg.mean(x, dim=-1), ((2, 3),), True),
    "cumsum": (lambda x: rg.cumsum(x, 1), ((2, 3),), True),
    "matmul-mm": (rg.matmul, ((2, 3), (3, 2)), True),
    "matmul-mv": (rg.matmul, ((2, 3), (3,)), True),
    "matmul-vm": (rg.matmul, ((3,), (3, 2)), True),
    "matmul-dot": (rg.matmul, ((3,), (3,)), True),
    "matmul-stacks": (rg.matmul, ((2, 1, 2, 3), (2, 3, 2)), True),
    "matmul-stack-vector": (rg.matmul, ((2, 2, 3), (3,)), False),
    "matmul-vector-stack": (rg.matmul, ((3,), (2, 3, 2)), False),
    "reshape": (lambda x: rg.reshape(x.T, (3, 2)), ((2, 3),), True),
    "view": (lambda x: x.view(3, -1), ((2, 3),), True),
    "transpose": (lambda x: rg.transpose(x, 0, 2), ((2, 3, 1),), True),
    "permute": (lambda x: rg.permute(x, (2, 0, 1)), ((2, 3, 1),), True),
    "expand": (lambda x: x.expand(2, -1, 3), ((2, 1),), True),
    "squeeze": (lambda x: rg.squeeze(x, 1), ((2, 1, 3),), True),
    "unsqueeze": (lambda x: rg.unsqueeze(x, -1), ((2, 3),), True),
    "flip": (lambda x: rg.flip(x, (0, 1)), ((2, 3),), True),
    "narrow": (lambda x: rg.narrow(x, 1, 1, 2), ((2, 3),), True),
    "select": (lambda x: rg.select(x, 1, -1), ((2, 3),), True),
    "slice": (lambda x: x[None, ..., ::2, 1], ((2, 3, 2),), True),
    "index": (lambda x: x[INDEX, 1:], ((3, 2),), True),
    "mask": (lambda x: x[MASK], ((2, 3),), True),
    "index-select": (lambda x: rg.index_select(x, 1, INDEX), ((2, 3),), True),
    "cat": (lambda a, b: rg.cat([a, b, a], dim=1), ((2, 1), (2, 3)), True),
    "stack": (lambda a, b: rg.stack([a, b], dim=1), ((2, 3), (2, 3)), True),
    "split": (lambda x: rg.split(x, 2, dim=1)[1] * rg.split(x, 2, dim=1)[0], ((2, 3),), True),
    "unbind": (lambda x: rg.unbind(x, 1)[2] * rg.unbind(x, 1)[0], ((2, 3),), True),
    "complex": (lambda a, b: rg.complex(a, b) * rg.complex(b, a * a), ((2,), (2,)), False),
    "real": (lambda a, b: rg.real(rg.complex(a, b) * rg.complex(b, b)), ((2,), (2,)), False),
    "imag": (lambda a, b: rg.imag(rg.complex(a, b) * rg.complex(b, a)), ((2,), (2,)), False),
    "conj": (lambda a, b: rg.conj(rg.complex(a, b)) * rg.complex(b, a), ((2,), (2,)), False),
    "cast": (lambda a: (a.to(rg.complex128) * (1 + 2j)).real.to(rg.float64), ((3,),), False),
    "setitem": (written, ((2, 3), (1, 2)), True),
    "write-through": (through, ((2, 3), (2,)), True),
}


def values(shapes: tuple[tuple[int, ...], ...], dtype: Any, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    made = [rng.uniform(0.4, 1.6, shape) for shape in shapes]
    return [(m + 1j * rng.uniform(0.2, 0.8, m.shape) if dtype == rg.complex128 else m).astype(dtype) for m in made]


def objective(function: Callable[..., Any], arrays: list[Any]) -> Any:
    """A real function of the operands: a weighted sum of squared sines, so that seeds differ and vary."""
    out = function(*arrays)
    weights = np.linspace(0.5, 1.5, out.numel()).reshape(out.shape)
    if out.is_complex():
        out = rg.real(out) * rg.imag(out) + rg.real(out)
    return rg.sum(rg.sin(out) * rg.tensor(weights))


def slope(function: Callable[[list[Any]], float], arrays: list[Any], position: int) -> Any:
    """The gradient by central differences, real and imaginary direction."""
    x, step = arrays[position], 1e-6
    grad = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        for unit in (1, 1j) if x.dtype.kind == "c" else (1,):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[place] += sign * step * unit
                ends.append(function([moved if i == position else a for i, a in enumerate(arrays)]))
            grad[place] += unit * (ends[0] - ends[1]) / (2 * step)
    return grad


def gradients(function: Callable[..., Any], arrays: list[Any], create_graph: bool = False) -> Any:
    leaves = [rg.tensor(a, requires_grad=True) for a in arrays]
    found = rg.autograd.grad(objective(function, leaves), leaves, create_graph=create_graph, materialize_grads=True)
    return leaves, found


DTYPES = [
    (name, dtype) for name in CASES for dtype in (rg.float64, rg.complex128) if CASES[name][2] or dtype == rg.float64
]


@pytest.mark.parametrize(("name", "dtype"), DTYPES, ids=str)
def test_vjp(name: str, dtype: Any) -> None:
    """First order: the gradient of a real function of the result."""
    function, shapes, _ = CASES[name]
    arrays = values(shapes, dtype, 1)
    _, found = gradients(function, arrays)
    for position, gradient in enumerate(found):
        expected = slope(lambda a: objective(function, [rg.tensor(x) for x in a]).item(), arrays, position)
        assert gradient.dtype == dtype
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "dtype"), DTYPES, ids=str)
def test_vjp_of_vjp(name: str, dtype: Any) -> None:
    """Second order: the gradient of a real function of all first gradients; both modes agree on these."""
    function, shapes, _ = CASES[name]
    arrays = values(shapes, dtype, 2)

    def inner(given: list[Any]) -> float:
        plain = gradients(function, given)[1]
        return float(sum((g * g).numpy().real.sum() for g in plain))

    leaves, found = gradients(function, arrays, create_graph=True)
    total: Any = sum(rg.sum(rg.real(x * 0)) for x in leaves)  # tracked, also where no gradient is
    for g in found:
        total = total + rg.sum(rg.real(g * g))
    second = rg.autograd.grad(total, leaves, materialize_grads=True)
    for position, (a, b) in enumerate(zip(found, gradients(function, arrays)[1], strict=True)):
        np.testing.assert_allclose(a.detach().numpy(), b.numpy(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(second[position].numpy(), slope(inner, arrays, position), rtol=1e-5, atol=1e-6)
