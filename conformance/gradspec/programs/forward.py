"""What a program computes, in plain NumPy: one small function an operation, and the loop that applies them.

Nothing here knows of derivatives. `dual.py` and `differences.py` build on it, each in its own way.

Source of the semantics: the documentation of the torch functions of the same names; attributes are keywords.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradspec.programs.operations import OPERATIONS, Shape
from gradspec.programs.program import Program, Scalar

Array = NDArray[Any]
Pieces = tuple[Array, ...]


class Kink(ValueError):
    """An oracle refuses: the program is not differentiable at this point; the message names the operation."""


def _neg(x: Array) -> Array:
    return np.negative(x)


def _abs(x: Array) -> Array:
    return np.abs(x)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _square(x: Array) -> Array:
    return np.multiply(x, x)


def _reciprocal(x: Array) -> Array:
    return np.divide(1, x)


def _sqrt(x: Array) -> Array:
    return np.sqrt(x)


def _exp(x: Array) -> Array:
    return np.exp(x)


def _log(x: Array) -> Array:
    return np.log(x)


def _sin(x: Array) -> Array:
    return np.sin(x)


def _cos(x: Array) -> Array:
    return np.cos(x)


def _tanh(x: Array) -> Array:
    return np.tanh(x)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows, and keeps the tail of negative x
    return np.asarray(np.divide(np.where(x >= 0, 1, small), 1 + small))


def _clone(x: Array) -> Array:
    return x.copy()


def _pow(x: Array, *, exponent: float) -> Array:
    """Small whole exponents by multiplication, which is exact where the result is representable."""
    if exponent == int(exponent) and 0 <= exponent <= 8:
        result = np.ones_like(x)
        for _ in range(int(exponent)):
            result = np.asarray(result * x)
        return result
    return np.asarray(np.power(x, np.asarray(exponent, dtype=x.dtype if x.dtype.kind in "fc" else np.float64)))


def _add(a: Array, b: Array) -> Array:
    return np.add(a, b)


def _sub(a: Array, b: Array) -> Array:
    return np.subtract(a, b)


def _mul(a: Array, b: Array) -> Array:
    return np.multiply(a, b)


def _div(a: Array, b: Array) -> Array:
    return np.divide(a, b)


def _where(mask: Array, a: Array, b: Array) -> Array:
    return np.where(mask, a, b)


def _sum(x: Array, *, dim: int | None, keepdim: bool) -> Array:
    return np.sum(x, axis=dim, keepdims=keepdim)


def _mean(x: Array, *, dim: int | None, keepdim: bool) -> Array:
    count = x.size if dim is None else x.shape[dim]
    total = np.sum(x, axis=dim, keepdims=keepdim)
    return np.asarray(np.divide(total, x.dtype.type(count)))  # the mean of nothing is nan


def _cumsum(x: Array, *, dim: int) -> Array:
    return np.cumsum(x, axis=dim)


def _matmul(a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a, b))


def _reshape(x: Array, *, shape: Shape) -> Array:
    return np.reshape(x, shape)


def _transpose(x: Array, *, dim0: int, dim1: int) -> Array:
    return np.swapaxes(x, dim0, dim1)


def _permute(x: Array, *, dims: Sequence[int]) -> Array:
    return np.transpose(x, dims)


def _expand(x: Array, *, shape: Shape) -> Array:
    return np.broadcast_to(x, shape)


def _squeeze(x: Array, *, dim: int) -> Array:
    return np.squeeze(x, axis=dim) if x.shape[dim] == 1 else x


def _unsqueeze(x: Array, *, dim: int) -> Array:
    return np.expand_dims(x, dim)


def _flip(x: Array, *, dims: Sequence[int]) -> Array:
    return np.flip(x, axis=tuple(dims))


def _narrow(x: Array, *, dim: int, start: int, length: int) -> Array:
    return np.moveaxis(np.moveaxis(x, dim, 0)[start : start + length], 0, dim)


def _select(x: Array, *, dim: int, index: int) -> Array:
    return np.asarray(np.moveaxis(x, dim, 0)[index])


def _cat(*pieces: Array, dim: int) -> Array:
    return np.concatenate(pieces, axis=dim)


def _stack(*pieces: Array, dim: int) -> Array:
    return np.stack(pieces, axis=dim)


def _split(x: Array, *, split_size: int, dim: int) -> Pieces:
    return tuple(np.split(x, list(range(split_size, x.shape[dim], split_size)), axis=dim))


def _unbind(x: Array, *, dim: int) -> Pieces:
    return tuple(np.asarray(piece) for piece in np.moveaxis(x, dim, 0))


def _index_select(x: Array, index: Array, *, dim: int) -> Array:
    return np.take(x, index, axis=dim)


def _complex(re: Array, im: Array) -> Array:
    result = np.empty(re.shape, np.result_type(re, im, np.complex64))
    result.real, result.imag = re, im
    return result


def _real(x: Array) -> Array:
    return np.real(x)


def _imag(x: Array) -> Array:
    return np.imag(x)


def _conj(x: Array) -> Array:
    return np.conj(x)


FORWARD: dict[str, Callable[..., Any]] = {
    "neg": _neg,
    "abs": _abs,
    "relu": _relu,
    "square": _square,
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "exp": _exp,
    "log": _log,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "clone": _clone,
    "pow": _pow,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    "cumsum": _cumsum,
    "matmul": _matmul,
    "reshape": _reshape,
    "transpose": _transpose,
    "permute": _permute,
    "expand": _expand,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "flip": _flip,
    "narrow": _narrow,
    "select": _select,
    "cat": _cat,
    "stack": _stack,
    "split": _split,
    "unbind": _unbind,
    "index_select": _index_select,
    "complex": _complex,
    "real": _real,
    "imag": _imag,
    "conj": _conj,
}
"""Every operation by name: from operand arrays and keyword attributes to the result (a tuple of several)."""


def to_array(shape: Shape, values: Sequence[Scalar], dtype: str = "float64") -> Array:
    """An array of `shape` from flat values in row-major order.

    Args:
        shape: any, zero sizes included.
        values: one number per element.
        dtype: name of a dtype; NumPy has no bfloat16, so that one comes as float32 rounded to 8 significant bits.

    Raises:
        ValueError: the number of values does not fit the shape.
    """
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values do not fill shape {tuple(shape)}")
    if dtype != "bfloat16":
        return np.array(values, dtype=dtype).reshape(shape)
    bits = np.array(values, dtype=np.float32).view(np.uint32)
    bits += 0x7FFF + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).reshape(shape)


def inputs(program: Program, dtype: Literal["double", "input"] = "double") -> list[Array]:
    """The inputs of a program as arrays; "double" widens what they hold to float64 or complex128."""
    arrays = [to_array(i.shape, i.values, i.dtype) for i in program.inputs]
    if dtype == "input":
        return arrays
    wide = {"f": np.float64, "c": np.complex128}
    return [a.astype(wide[a.dtype.kind], copy=False) if a.dtype.kind in wide else a for a in arrays]


def run(
    program: Program,
    given: Sequence[Array],
    *,
    shift: Mapping[int, Array] | None = None,
    disturb: Callable[[Array], Array] | None = None,
) -> list[Array]:
    """Every value of the program on the inputs `given`, in the order of their numbers.

    Args:
        program: the program; its own inputs are not read.
        given: one array for each input.
        shift: number of a value (input or result) to what is added to it before anybody reads it.
        disturb: applied to every input and result before anybody reads it.
    """
    moved = shift or {}
    values: list[Array] = []

    def put(result: Array) -> None:
        result = np.asarray(result)
        if len(values) in moved:
            result = np.asarray(result + moved[len(values)])
        values.append(result if disturb is None else disturb(result))

    with np.errstate(all="ignore"):
        for array in given:
            put(array)
        for step in program.steps:
            result = FORWARD[step.op](*[values[o] for o in step.operands], **step.keywords)
            for piece in result if OPERATIONS[step.op].multi else (result,):
                put(piece)
    return values


def evaluate(program: Program, dtype: Literal["double", "input"] = "double") -> list[Array]:
    """Every value of a program, inputs first; 0-d values are 0-d arrays, and results may share memory.

    Args:
        program: a well-formed program.
        dtype: "double" computes in float64 and complex128; "input" in the dtypes of the inputs, where NumPy's
            promotion rules decide between operands of different dtypes.
    """
    return run(program, inputs(program, dtype))


def seeds(program: Program, values: Sequence[Array]) -> dict[int, Array]:
    """Number of each root to its seed; the seeds of a root named twice add up, no seed means ones."""
    total: dict[int, Array] = {}
    for root in program.roots:
        like = values[root.value]
        seed = np.ones_like(like) if root.seed is None else to_array(like.shape, root.seed, like.dtype.name)
        total[root.value] = total[root.value] + seed if root.value in total else seed
    return total


def feeding(program: Program, targets: Sequence[int]) -> set[int]:
    """Numbers of the values, tracked or not, on which one of `targets` depends through value operands."""
    seen = set(targets)
    for step, numbers in reversed(list(program.results())):
        if seen.intersection(numbers):
            operation = OPERATIONS[step.op]
            seen.update(o for at, o in enumerate(step.operands) if operation.role(at) == "value")
    return seen
