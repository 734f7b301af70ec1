"""Complex numbers: pairs of reals and back.

The gradient of a complex tensor z = x + iy is dL/dx + i dL/dy (VALUE-48), so a holomorphic f gives g times the
conjugate of f' (VALUE-49).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import arrays
from ..errors import BadArgumentError, BadShapeError
from ..record import record, recording, wrap
from ..tape import vjp
from ..tensor import Tensor
from ..views import view_of
from .common import tensor_of


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Gives real + i imag, of real tensors of one dtype and shape."""
    if tensor_of(real).dtype != tensor_of(imag).dtype or real._data.dtype.kind != "f":
        raise BadArgumentError(f"complex() takes two real tensors of one dtype, not {real.dtype} and {imag.dtype}")
    if real.shape != imag.shape:
        raise BadShapeError(f"complex() takes tensors of one shape, not {real.shape} and {imag.shape}")
    data = arrays.complex(real._data, imag._data)
    return record("complex", data, (real, imag)) if recording(real, imag) else wrap(data)


@vjp("complex")
def complex_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The parts of the gradient."""
    return xp.real(g), xp.imag(g)


def real(input: Tensor) -> Tensor:
    """The real part, a view; of a real tensor the tensor itself."""
    if tensor_of(input)._data.dtype.kind != "c":
        return input
    return view_of("real", input, input._data.real, None, ("real", None))


@vjp("real")
def real_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The gradient with no imaginary part."""
    return (xp.complex(g, xp.zeros_of(g)),)


def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view."""
    if tensor_of(input)._data.dtype.kind != "c":
        raise BadArgumentError("imag() needs a complex tensor; a real one has no imaginary part")
    return view_of("imag", input, input._data.imag, None, ("imag", None))


@vjp("imag")
def imag_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The rule: i times the gradient (VALUE-52)."""
    return (xp.complex(xp.zeros_of(g), g),)


def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    if tensor_of(input)._data.dtype.kind != "c":
        return input
    data = input._data.conj()
    return record("conj", data, (input,)) if recording(input) else wrap(data)


@vjp("conj")
def conj_vjp(xp: Any, _node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The conjugate again."""
    return (xp.conj(g),)
