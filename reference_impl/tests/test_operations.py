"""Errors, edge shapes, warnings and values of operations; the size of the package."""

from __future__ import annotations

import ast
import importlib.util
import io
import sys
import tokenize
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refgrad as rg
from refgrad import errors

PACKAGE = Path(rg.__file__).parent
A, B, V = rg.ones(2, 3), rg.ones(3, 2), rg.ones(3)

BAD_SHAPES = {
    "add": lambda: A + B,
    "sub": lambda: A - B,
    "mul": lambda: A * B,
    "div": lambda: A / B,
    "pow": lambda: rg.pow(A, B),
    "where": lambda: rg.where(A > 0, A, B),
    "compare": lambda: A < B,
    "matmul": lambda: A @ A,
    "matmul-0d": lambda: A @ rg.tensor(1.0),
    "mm": lambda: rg.mm(A, V),
    "mv": lambda: rg.mv(V, V),
    "dot": lambda: rg.dot(A, B),
    "reshape": lambda: A.reshape(4, 2),
    "reshape-hole": lambda: A.reshape(-1, 4),
    "reshape-holes": lambda: A.reshape(-1, -1),
    "view": lambda: A.T.view(6),
    "permute": lambda: A.permute(0, 0),
    "transpose": lambda: A.transpose(0, 2),
    "t": lambda: rg.ones(1, 1, 1).t(),
    "expand": lambda: A.expand(2, 4),
    "expand-hole": lambda: A.expand(-1, 2, 3),
    "squeeze": lambda: A.squeeze(2),
    "unsqueeze": lambda: A.unsqueeze(3),
    "flip": lambda: rg.flip(A, (2,)),
    "flip-twice": lambda: rg.flip(A, (0, -2)),
    "narrow": lambda: A.narrow(1, 2, 2),
    "select": lambda: A.select(1, 3),
    "cat": lambda: rg.cat([A, B]),
    "cat-0d": lambda: rg.cat([rg.tensor(1.0)]),
    "stack": lambda: rg.stack([A, B]),
    "split": lambda: rg.split(A, [1, 1], dim=1),
    "unbind": lambda: rg.unbind(rg.tensor(1.0)),
    "index": lambda: A[2],
    "indices": lambda: A[rg.tensor([2])],
    "too-many": lambda: A[0, 0, 0],
    "index-select": lambda: rg.index_select(A, 0, rg.tensor([2])),
    "sum": lambda: A.sum(dim=2),
    "sum-twice": lambda: A.sum(dim=(0, -2)),
    "cumsum": lambda: rg.cumsum(A, 2),
    "complex": lambda: rg.complex(A, B),
    "setitem": lambda: A.clone().__setitem__(0, rg.ones(2)),
    "copy": lambda: A.clone().copy_(B),
    "zeros": lambda: rg.zeros(-1),
}


@pytest.mark.parametrize("name", BAD_SHAPES)
def test_bad_shapes(name: str) -> None:
    with pytest.raises(errors.BadShapeError):
        BAD_SHAPES[name]()


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda: A + "1", errors.BadTypeError),
        (lambda: rg.exp(1.0), errors.BadTypeError),
        (lambda: A["0"], errors.BadTypeError),
        (lambda: A[::-1], errors.BadArgumentError),
        (lambda: A[rg.tensor([0.5])], errors.BadShapeError),
        (lambda: rg.cat([]), errors.BadArgumentError),
        (lambda: rg.cat(A), errors.BadTypeError),
        (lambda: rg.split(A, 0), errors.BadArgumentError),
        (lambda: rg.mean(rg.tensor([1, 2])), errors.BadArgumentError),
        (lambda: rg.imag(A), errors.BadArgumentError),
        (lambda: rg.tensor([[1.0], [1.0, 2.0]]), errors.BadArgumentError),
        (lambda: rg.tensor("text"), errors.BadTypeError),
        (lambda: rg.zeros(2, device="cuda"), errors.BadArgumentError),
        (A.item, errors.NotScalarError),
        (lambda: len(rg.tensor(1.0)), errors.BadTypeError),
        (lambda: rg.ones(1, requires_grad=True).numpy(), errors.RequiresGradError),
    ],
)
def test_other_refusals(act: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        act()


def test_no_numpy_warning_escapes() -> None:
    before = np.geterr()
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        x = rg.tensor([0.0, -1.0, 1e308, np.inf, np.nan], dtype=rg.float64, requires_grad=True)
        made = [f(x) for f in (rg.log, rg.sqrt, rg.exp, rg.reciprocal, rg.square, rg.sigmoid, rg.tanh, rg.sin, rg.abs)]
        made += [
            x + x,
            x - x,
            x * x * x,
            x / 0,
            x**-1.5,
            rg.pow(x, x),
            rg.cumsum(x, 0),
            x.mean(),
            x @ x,
            x.to(rg.float32),
        ]
        rg.autograd.backward([m.sum().to(rg.float64) for m in made], create_graph=True)
        x.grad.detach().mul_(1e308)
        x.grad.sum().backward()
        assert np.geterr()["divide"] == "warn"
    assert np.geterr() == before


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1)])
def test_edge_shapes(shape: tuple[int, ...]) -> None:
    x = rg.ones(shape, dtype=rg.float64, requires_grad=True)
    y = rg.exp(x * 2) / x + x.unsqueeze(0).squeeze(0) - x.reshape(-1).reshape(shape)
    out = y.sum() + x.mean() * 0 + rg.cumsum(x.reshape(-1), 0).sum()
    out = out + sum(part.sum() for part in x.reshape(1, -1).unbind(0)) + (rg.ones(0, 1, 1) * x.sum()).sum()
    out.backward()
    assert x.grad.shape == shape
    assert isinstance(x.grad.numpy(), np.ndarray)


def test_conventions_at_kinks() -> None:
    x = rg.tensor([0.0, 4.0], requires_grad=True)
    for f, expected in ((rg.relu, [0, 1]), (rg.abs, [0, 1]), (lambda t: t**0, [0, 0]), (lambda t: t**1, [1, 1])):
        assert rg.autograd.grad(f(x).sum(), x)[0].tolist() == expected
    base, exponent = rg.zeros(2, requires_grad=True), rg.tensor([0.0, 2.0], requires_grad=True)
    (base**exponent).sum().backward()
    assert (base.grad.tolist(), exponent.grad.tolist()) == ([0, 0], [0, 0])
    z = rg.zeros(1, dtype=rg.complex128, requires_grad=True)
    rg.abs(z).sum().backward()
    assert z.grad.tolist() == [0]


def test_duplicates_add_up() -> None:
    x = rg.zeros(3, requires_grad=True)
    (x[[0, 0, 2]] * rg.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [3, 0, 4]


def test_values_and_layout() -> None:
    x = rg.arange(6).reshape(2, 3)
    assert (x.T.stride(), x[1:, 1:].storage_offset(), x.T.is_contiguous()) == ((1, 3), 4, False)
    assert x.T.contiguous().stride() == (2, 1)
    assert x.T.untyped_storage().data_ptr() == x.data_ptr()
    assert (x[1, 2].item(), float(x[0, 1]), bool(x[0, 0]), len(x)) == (5, 1.0, False, 2)
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    assert rg.equal(x, x.clone())
    assert (1 - x).tolist() == [[1, 0, -1], [-2, -3, -4]]
    assert (2.0 ** rg.ones(1)).tolist() == [2]
    assert (x == None) is False  # noqa: E711
    assert repr(rg.ones(1, requires_grad=True) * 2) == "tensor([2.], grad_fn=<MulBackward0>)"
    assert (np.float64(2) * rg.ones(1)).dtype == rg.float32


def test_a_second_copy_is_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package works under another name, and one rule of it can be replaced: that is how faults are made."""
    spec = importlib.util.spec_from_file_location("rg_copy", PACKAGE / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rg_copy", copy)
    spec.loader.exec_module(copy)
    monkeypatch.setattr(copy.engine, "sum_contributions", lambda known, _: known)
    monkeypatch.setitem(copy.tape.VJP, "neg", lambda _xp, _node, g, _saved: (g,))
    for ns, expected in ((rg, -2), (copy, 1)):
        x = ns.ones((), requires_grad=True)
        (-(x + x)).backward()
        assert x.grad.item() == expected
    for name in [n for n in sys.modules if n.startswith("rg_copy.")]:
        monkeypatch.delitem(sys.modules, name)


def code_lines(path: Path) -> int:
    """Lines that hold code: no blanks, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_package_is_small() -> None:
    counts = {str(path.relative_to(PACKAGE)): code_lines(path) for path in PACKAGE.rglob("*.py")}
    beside = ("tape.py", "record.py", "views.py", "modes.py", "errors.py", "tensor.py")
    assert counts["engine.py"] <= 500
    assert all(counts[name] <= 300 for name in beside)
    assert max(counts.values()) <= 600
    assert sum(counts.values()) < 6000


def test_data_keeps_its_precision() -> None:
    assert rg.tensor(0.1, dtype=rg.float64).item() == 0.1
    assert rg.tensor([2**53 + 1]).item() == 2**53 + 1
    assert [rg.tensor(d).dtype for d in (1.0, 1, True, 1j, [])] == [
        rg.float32,
        rg.int64,
        rg.bool,
        rg.complex64,
        rg.float32,
    ]
    source = np.ones((2, 3)).T
    made = rg.tensor(source)
    assert (made.dtype, made.stride()) == (rg.float64, (1, 3))
    made.zero_()
    assert source.sum() == 6


def test_sizes_and_axes_come_in_any_of_torchs_forms() -> None:
    x = rg.arange(6)
    forms = [
        x.reshape(2, 3),
        x.reshape((2, 3)),
        rg.reshape(x, (2, 3)),
        rg.reshape(x, shape=(2, 3)),
        x.view(size=(2, 3)),
    ]
    assert all(rg.equal(form, forms[0]) for form in forms)
    y = forms[0]
    assert y.permute(1, 0).shape == rg.permute(y, dims=(1, 0)).shape == (3, 2)
    assert rg.equal(y.flip(0, 1), rg.flip(y, dims=(0, 1)))
    assert rg.equal(y.expand(2, 2, 3), y.expand(size=(2, -1, 3)))
    assert [p.shape for p in rg.split(y, split_size=2, dim=1)] == [(2, 2), (2, 1)]
