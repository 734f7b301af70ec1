"""Operations on each element, and their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import arrays
from ..modes import state
from ..quiet import hush, restore
from ..record import record, record_two, recording, wrap
from ..tape import vjp
from ..tensor import Tensor
from .common import cast, floating, mismatch, operands, tensor_of, unary

ndarray = np.ndarray

# --- two operands ---------------------------------------------------------------------------------------------------


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Gives input + alpha * other."""
    a, b = input, other
    if alpha != 1:
        b = mul(b, alpha)
    if not isinstance(b, Tensor) or not isinstance(a, Tensor) or a._data.dtype is not b._data.dtype:
        a, b = operands(a, b)
    token = hush()
    try:
        data = np.add(a._data, b._data)
    except ValueError as error:
        raise mismatch("add", a, b, error) from error
    finally:
        restore(token)
    if (a._tracked or b._tracked) and state.recording:
        return record_two("add", data, a, b, ())  # BACKWARD-39: nothing is saved
    return wrap(data)


@vjp("add")
def add_vjp(_xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Both get the gradient; the engine sums it back over broadcasting."""
    return g, g


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """Gives input - alpha * other."""
    a, b = input, other
    if alpha != 1:
        b = mul(b, alpha)
    if not isinstance(b, Tensor) or not isinstance(a, Tensor) or a._data.dtype is not b._data.dtype:
        a, b = operands(a, b)
    token = hush()
    try:
        data = np.subtract(a._data, b._data)
    except ValueError as error:
        raise mismatch("sub", a, b, error) from error
    finally:
        restore(token)
    if (a._tracked or b._tracked) and state.recording:
        return record_two("sub", data, a, b, ())
    return wrap(data)


@vjp("sub")
def sub_vjp(_xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The subtrahend gets the negative."""
    return g, None if node.edges[1] is None else -g


def mul(input: Any, other: Any) -> Tensor:
    """Gives input * other."""
    a, b = input, other
    if not isinstance(b, Tensor) or not isinstance(a, Tensor) or a._data.dtype is not b._data.dtype:
        a, b = operands(a, b)
    token = hush()
    try:
        data = np.multiply(a._data, b._data)
    except ValueError as error:
        raise mismatch("mul", a, b, error) from error
    finally:
        restore(token)
    if (a._tracked or b._tracked) and state.recording:
        return record_two("mul", data, a, b, (a if b._tracked else None, b if a._tracked else None))  # BACKWARD-39
    return wrap(data)


@vjp("mul")
def mul_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """Each gets the gradient times the conjugate of the other."""
    a, b = saved
    return None if b is None else g * xp.conj(b), None if a is None else g * xp.conj(a)


def div(input: Any, other: Any) -> Tensor:
    """Gives input / other; integers are converted first."""
    a, b = input, other
    if not isinstance(b, Tensor) or not isinstance(a, Tensor) or a._data.dtype is not b._data.dtype:
        a, b = operands(a, b)
    if a._data.dtype.kind not in "fc":
        a, b = floating(a), floating(b)
    token = hush()
    try:
        data = np.true_divide(a._data, b._data)
    except ValueError as error:
        raise mismatch("div", a, b, error) from error
    finally:
        restore(token)
    if (a._tracked or b._tracked) and state.recording:
        return record_two("div", data, a, b, (a if b._tracked else None, b))
    return wrap(data)


@vjp("div")
def div_vjp(xp: Any, node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """By d(a/b) = da/b - a/b^2 db."""
    a, b = saved
    scaled = g / xp.conj(b)
    return None if node.edges[0] is None else scaled, None if a is None else -(scaled * xp.conj(a / b))


def pow(input: Any, exponent: Any) -> Tensor:
    """Gives input to the power of a number or of a tensor."""
    if isinstance(exponent, Tensor):
        return _pow_tensor(input, exponent)
    x = tensor_of(input)
    if isinstance(exponent, float | complex) and x._data.dtype.kind not in "fc":
        x = floating(x)
    token = hush()
    try:
        data = arrays.power(x._data, exponent)
    finally:
        restore(token)
    return record("pow", data, (x,), (x,), exponent) if recording(x) else wrap(data)


def power(x: Tensor, exponent: Any) -> Tensor:
    """`pow` under the name it has in `arrays`."""
    return pow(x, exponent)


@vjp("pow")
def pow_vjp(xp: Any, node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The rule n x^(n-1); exactly zero for n = 0 (VALUE-13)."""
    exponent = node.attrs
    if exponent == 0:
        return (xp.zeros_of(g),)
    return (g * xp.conj(xp.power(saved[0], exponent - 1) * exponent),)


def _pow_tensor(input: Any, exponent: Any) -> Tensor:
    """A tensor in the exponent."""
    a, b = operands(input, exponent)
    token = hush()
    try:
        data = np.power(a._data, b._data)
    except ValueError as error:
        raise mismatch("pow", a, b, error) from error
    finally:
        restore(token)
    return record("pow_tensor", data, (a, b), (a, b), output=True) if recording(a, b) else wrap(data)


@vjp("pow_tensor")
def pow_tensor_vjp(xp: Any, node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The rules b a^(b-1) and a^b log a, with the limits 0 for b = 0 and for a = 0, b >= 0 (VALUE-55)."""
    a, b, out = saved
    ga = gb = None
    if node.edges[0] is not None:
        ga = xp.unmasked(b == 0, g * xp.conj(b * xp.power(a, b - 1)))
    if node.edges[1] is not None:
        limit = a == 0 if a.dtype.kind == "c" else (a == 0) & (b >= 0)
        gb = xp.unmasked(limit, g * xp.conj(out * xp.log(a)))
    return ga, gb


# --- one operand ----------------------------------------------------------------------------------------------------


def neg(input: Tensor) -> Tensor:
    """-input."""
    return unary("neg", tensor_of(input), np.negative)


@vjp("neg")
def neg_vjp(_xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """-g."""
    return (-g,)


def abs(input: Tensor) -> Tensor:
    """The absolute value, of a complex number its modulus."""
    return unary("abs", tensor_of(input), np.absolute, keep_input=True)


@vjp("abs")
def abs_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The sign, 0 at 0 (VALUE-51); of a complex number x / |x|."""
    (x,) = saved
    if x.dtype.kind != "c":
        return (g * xp.sign(x),)
    return (xp.unmasked(x == 0, g / xp.abs(x)) * x,)


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return unary("sign", tensor_of(input), np.sign)


@vjp("sign", "fill")
def zero_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Zeros: the result does not follow the operand (BACKWARD-30)."""
    return (xp.zeros_of(g),)


def relu(input: Tensor) -> Tensor:
    """Gives max(input, 0)."""
    return unary("relu", tensor_of(input), _relu, keep_output=True)


def _relu(x: Any) -> Any:
    return np.maximum(x, x.dtype.type(0))


@vjp("relu")
def relu_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The gradient where the result is positive; exact zeros elsewhere, also at 0."""
    return (xp.masked(saved[-1] > 0, g),)


def square(input: Tensor) -> Tensor:
    """Gives input * input."""
    return unary("square", tensor_of(input), np.square, keep_input=True)


@vjp("square")
def square_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """2 x."""
    return (g * xp.conj(saved[0]) * 2,)


def reciprocal(input: Tensor) -> Tensor:
    """1 / input."""
    return unary("reciprocal", floating(input), np.reciprocal, keep_output=True)


@vjp("reciprocal")
def reciprocal_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """-1 / x^2."""
    out = xp.conj(saved[-1])
    return (-(g * out * out),)


def sqrt(input: Tensor) -> Tensor:
    """The square root."""
    return unary("sqrt", floating(input), np.sqrt, keep_output=True)


@vjp("sqrt")
def sqrt_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """1 / (2 sqrt x)."""
    return (g / (xp.conj(saved[-1]) * 2),)


def exp(input: Tensor) -> Tensor:
    """The exponential."""
    return unary("exp", floating(input), np.exp, keep_output=True)


@vjp("exp")
def exp_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """Itself."""
    return (g * xp.conj(saved[-1]),)


def log(input: Tensor) -> Tensor:
    """The natural logarithm."""
    return unary("log", floating(input), np.log, keep_input=True)


@vjp("log")
def log_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """1 / x."""
    return (g / xp.conj(saved[0]),)


def sin(input: Tensor) -> Tensor:
    """The sine."""
    return unary("sin", floating(input), np.sin, keep_input=True)


@vjp("sin")
def sin_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """Times cos x."""
    return (g * xp.conj(xp.cos(saved[0])),)


def cos(input: Tensor) -> Tensor:
    """The cosine."""
    return unary("cos", floating(input), np.cos, keep_input=True)


@vjp("cos")
def cos_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """-sin x."""
    return (-(g * xp.conj(xp.sin(saved[0]))),)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return unary("tanh", floating(input), np.tanh, keep_output=True)


@vjp("tanh")
def tanh_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """1 - tanh^2."""
    out = xp.conj(saved[-1])
    return (g - g * out * out,)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return unary("sigmoid", floating(input), _sigmoid, keep_output=True)


def _sigmoid(x: Any) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


@vjp("sigmoid")
def sigmoid_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """Times s (1 - s)."""
    out = xp.conj(saved[-1])
    scaled = g * out
    return (scaled - scaled * out,)


# --- copies and choices ---------------------------------------------------------------------------------------------


def clone(input: Tensor) -> Tensor:
    """A copy in memory of its own, laid out alike; differentiable (LEAF-23)."""
    return own(tensor_of(input), input._data)


def own(x: Tensor, like: Any) -> Tensor:
    """A copy of x laid out like the ndarray `like`."""
    data = arrays.own(x._data, like)
    return record("clone", data, (x,)) if recording(x) else wrap(data)


@vjp("clone")
def clone_vjp(_xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The gradient itself."""
    return (g,)


def filled(x: Tensor, value: Any) -> Tensor:
    """A tensor like x full of a number; x gets zeros as gradient."""
    data = np.empty_like(x._data)
    data[...] = value
    return record("fill", data, (x,)) if recording(x) else wrap(data)


def copied(x: Tensor, source: Any) -> Tensor:
    """The source in shape and dtype of x; x gets zeros, the source its gradient (INPLACE-21)."""
    source = cast(source, x.dtype) if isinstance(source, Tensor) else wrap(np.asarray(source, x.dtype))
    data = np.empty_like(x._data)
    try:
        data[...] = source._data
    except ValueError as error:
        raise mismatch("copy", x, source, error) from error
    return record("copy", data, (x, source)) if recording(x, source) else wrap(data)


@vjp("copy")
def copy_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """Nothing for the former value, all for the source."""
    return xp.zeros_of(g), g


def zeros_of(x: Any) -> Tensor:
    """Zeros like x, untracked."""
    return wrap(np.zeros(x.shape, x.dtype))


def where(condition: Tensor, input: Any, other: Any) -> Tensor:
    """Gives input where the condition holds, other elsewhere."""
    a, b = operands(input, other)
    try:
        data = np.where(tensor_of(condition)._data, a._data, b._data)
    except ValueError as error:
        raise mismatch("where", condition, a, error) from error
    return record("where", data, (condition, a, b), (condition,)) if recording(a, b) else wrap(data)


@vjp("where")
def where_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """Each gets its part, exact zeros elsewhere (VALUE-28)."""
    return None, xp.masked(saved[0], g), xp.unmasked(saved[0], g)


def masked(mask: Tensor, x: Tensor) -> Tensor:
    """Gives x where the mask holds, exact zeros elsewhere."""
    data = arrays.masked(mask._data, x._data)
    return record("masked", data, (mask, x), (mask,)) if recording(x) else wrap(data)


@vjp("masked")
def masked_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The same mask again."""
    return None, xp.masked(saved[0], g)


def unmasked(mask: Tensor, x: Tensor) -> Tensor:
    """Gives x where the mask does not hold, exact zeros elsewhere."""
    data = arrays.unmasked(mask._data, x._data)
    return record("unmasked", data, (mask, x), (mask,)) if recording(x) else wrap(data)


@vjp("unmasked")
def unmasked_vjp(xp: Any, _node: Any, g: Any, saved: Sequence[Any]) -> Any:
    """The same mask again."""
    return None, xp.unmasked(saved[0], g)


# --- comparisons: never recorded (LEAF-13) --------------------------------------------------------------------------


def compare(kernel: Any, a: Any, b: Any) -> Tensor:
    """A bool tensor."""
    a, b = operands(a, b)
    try:
        return wrap(kernel(a._data, b._data))
    except ValueError as error:
        raise mismatch("comparison", a, b, error) from error


def eq(input: Any, other: Any) -> Tensor:
    """Gives input == other."""
    return compare(np.equal, input, other)


def ne(input: Any, other: Any) -> Tensor:
    """Gives input != other."""
    return compare(np.not_equal, input, other)


def lt(input: Any, other: Any) -> Tensor:
    """Gives input < other."""
    return compare(np.less, input, other)


def le(input: Any, other: Any) -> Tensor:
    """Gives input <= other."""
    return compare(np.less_equal, input, other)


def gt(input: Any, other: Any) -> Tensor:
    """Gives input > other."""
    return compare(np.greater, input, other)


def ge(input: Any, other: Any) -> Tensor:
    """Gives input >= other."""
    return compare(np.greater_equal, input, other)


def logical_and(input: Any, other: Any) -> Tensor:
    """Both hold."""
    return compare(np.logical_and, input, other)
