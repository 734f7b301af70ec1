"""Attaches the operations to the tensor: the methods are the functions of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import dtypes, engine, ops, views
from .errors import BadTypeError
from .tensor import Tensor

FUNCTIONS = [
    "abs",
    "add",
    "clone",
    "contiguous",
    "cos",
    "cumsum",
    "div",
    "dot",
    "eq",
    "exp",
    "expand",
    "expand_as",
    "flatten",
    "flip",
    "ge",
    "gt",
    "index_select",
    "le",
    "log",
    "lt",
    "matmul",
    "mean",
    "mm",
    "mul",
    "mv",
    "narrow",
    "ne",
    "neg",
    "permute",
    "pow",
    "ravel",
    "reciprocal",
    "relu",
    "reshape",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "sub",
    "sum",
    "t",
    "tanh",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
    "conj",
]

IN_PLACE = [
    "abs",
    "add",
    "cos",
    "div",
    "exp",
    "log",
    "mul",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "square",
    "sub",
    "tanh",
]

OPERATORS = {
    "__add__": ops.add,
    "__sub__": ops.sub,
    "__mul__": ops.mul,
    "__truediv__": ops.div,
    "__matmul__": ops.matmul,
    "__pow__": ops.pow,
    "__neg__": ops.neg,
    "__abs__": ops.abs,
    "__radd__": ops.add,
    "__rmul__": ops.mul,
    "__getitem__": ops.getitem,
    "__and__": ops.logical_and,
    "__lt__": ops.lt,
    "__le__": ops.le,
    "__gt__": ops.gt,
    "__ge__": ops.ge,
}


def rsub(self: Tensor, other: Any) -> Tensor:
    """Gives other - self."""
    return ops.sub(other, self)


def rtruediv(self: Tensor, other: Any) -> Tensor:
    """Gives other / self."""
    return ops.div(other, self)


def rpow(self: Tensor, other: Any) -> Tensor:
    """Gives other ** self."""
    return ops.pow(ops.operands(other, self)[0], self)


def eq(self: Tensor, other: Any) -> Any:
    """Element by element; False against what is no number."""
    try:
        return ops.eq(self, other)
    except BadTypeError:
        return NotImplemented


def ne(self: Tensor, other: Any) -> Any:
    """Element by element; True against what is no number."""
    try:
        return ops.ne(self, other)
    except BadTypeError:
        return NotImplemented


def iterate(self: Tensor) -> Any:
    """The parts along the first axis."""
    return iter(ops.unbind(self))


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """Sets self[index] = value."""
    views.write(self, ops.with_part, index, value)


def zero_(self: Tensor) -> Tensor:
    """Zeros everywhere; former elements get zeros as gradient."""
    return views.write(self, ops.filled, 0)


def fill_(self: Tensor, value: Any) -> Tensor:
    """One number everywhere."""
    if isinstance(value, Tensor):
        return views.write(self, ops.copied, value)
    return views.write(self, ops.filled, value)


def copy_(self: Tensor, src: Any) -> Tensor:
    """The elements of the source, converted."""
    return views.write(self, ops.copied, src)


def in_place(name: str) -> Callable[..., Tensor]:
    """The in-place form of an operation."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return views.write(self, getattr(ops, name), *args, **kwargs)

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}` in the memory of the tensor."
    return method


def backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """`autograd.backward` for one root."""
    if gradient is not None and not isinstance(gradient, Tensor):
        raise BadTypeError(f"gradient= takes a tensor or None, not {type(gradient).__name__}")  # BACKWARD-10
    engine.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def to(self: Tensor, dtype: Any = None, *, copy: bool = False) -> Tensor:
    """In another dtype; the tensor itself if nothing has to change (LEAF-12)."""
    if isinstance(dtype, str) and dtype.startswith("cpu"):
        dtype = self.dtype
    if isinstance(dtype, Tensor):
        dtype = dtype.dtype
    made = self if dtype is None else ops.cast(self, dtype)
    return ops.clone(self) if copy and made is self else made


def transposed(self: Tensor) -> Tensor:
    """All axes in reverse order."""
    return ops.reversed_axes(self)


def real(self: Tensor) -> Tensor:
    """The real part."""
    return ops.real(self)


def imag(self: Tensor) -> Tensor:
    """The imaginary part."""
    return ops.imag(self)


def attach() -> None:
    """Puts everything in its place."""
    for name in FUNCTIONS:
        setattr(Tensor, name, getattr(ops, name))
    for name in IN_PLACE:
        setattr(Tensor, f"{name}_", in_place(name))
        operator = {"add": "iadd", "sub": "isub", "mul": "imul", "div": "itruediv", "pow": "ipow"}.get(name)
        if operator is not None:
            setattr(Tensor, f"__{operator}__", in_place(name))
    for name, function in OPERATORS.items():
        setattr(Tensor, name, function)
    for method in (zero_, fill_, copy_, backward, to):
        setattr(Tensor, method.__name__, method)
    for name, special in (
        ("rsub", rsub),
        ("rpow", rpow),
        ("rtruediv", rtruediv),
        ("eq", eq),
        ("ne", ne),
        ("setitem", setitem),
    ):
        setattr(Tensor, f"__{name}__", special)
    Tensor.__iter__ = iterate  # type: ignore[attr-defined]
    for name, prop in (("T", transposed), ("real", real), ("imag", imag)):
        setattr(Tensor, name, property(prop))
    for name, dtype in (
        ("double", "float64"),
        ("float", "float32"),
        ("half", "float16"),
        ("int", "int32"),
        ("long", "int64"),
        ("bool", "bool_"),
    ):
        setattr(Tensor, name, conversion(getattr(dtypes, dtype)))


def conversion(dtype: Any) -> Callable[[Tensor], Tensor]:
    """The method that converts to a dtype."""

    def method(self: Tensor) -> Tensor:
        return ops.cast(self, dtype)

    return method
