"""The operations a program may use: names, attributes, shapes and properties, without numbers.

One row an operation. What an operation computes is written three times, by different hands and in different places:
as plain NumPy (`forward.py`), as a rule for tangents (`dual.py`) and in each implementation. This table only says what
the strategies must know to draw a program that is well formed.

Names, attributes and broadcasting are those of the torch functions of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
ShapeRule = Callable[[Sequence[Shape], Attributes], tuple[Shape, ...]]


@dataclass(frozen=True)
class Operation:
    """What a strategy must know of one operation.

    Attributes:
        name: the name, that of the torch function. arity: number of operands; -1 means one or more (`cat`,
        `stack`). shapes: from operand shapes and attributes to the shapes of the results; raises ValueError
        where they do not fit. attributes: the names of its attributes, all of which a step must give. roles:
        the kind of each operand: "value" (differentiable), "index" (int64) or "mask" (bool). exact: dyadic
        inputs of small size give exact results and exact gradients in float64. domain: "any", "positive" or
        "nonzero": where it is smooth and finite. kinks: it is not differentiable at zero; the dual oracle
        refuses there. saves: its derivative depends on the values of operands or result, so every
        implementation must save some. view: torch documents its result as a view of the first operand. multi:
        it returns several tensors. min_rank: the smallest rank of a value operand. complex: it is defined on
        complex operands here.
    """

    name: str
    arity: int
    shapes: ShapeRule
    attributes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    exact: bool = False
    domain: str = "any"
    kinks: bool = False
    saves: bool = False
    view: bool = False
    multi: bool = False
    min_rank: int = 0
    complex: bool = False

    def role(self, position: int) -> str:
        """The role of the operand at `position`."""
        return self.roles[position] if position < len(self.roles) else "value"


def broadcast(*shapes: Shape) -> Shape:
    """The common shape under broadcasting; ValueError where there is none."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wanted = {n for n in sizes if n != 1}
        if len(wanted) > 1:
            raise ValueError(f"shapes {shapes} do not broadcast")
        result.append(wanted.pop() if wanted else 1)
    return tuple(result)


def _same(shapes: Sequence[Shape], _attributes: Attributes) -> tuple[Shape, ...]:
    return (tuple(shapes[0]),)


def _broadcast(shapes: Sequence[Shape], _attributes: Attributes) -> tuple[Shape, ...]:
    return (broadcast(*shapes),)


def _axis(dim: int, rank: int) -> int:
    if not -rank <= dim < rank:
        raise ValueError(f"axis {dim} does not exist in a tensor of rank {rank}")
    return dim % rank


def _equal(shapes: Sequence[Shape], _attributes: Attributes) -> tuple[Shape, ...]:
    if len(set(shapes)) != 1:
        raise ValueError(f"shapes {list(shapes)} differ")
    return (tuple(shapes[0]),)


def _reduce(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    """`dim` is an axis or None (all axes); `keepdim` keeps it with size 1."""
    shape, dim, keep = shapes[0], attributes["dim"], attributes["keepdim"]
    gone = set(range(len(shape))) if dim is None else {_axis(dim, len(shape))}
    return (tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone),)


def _along(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    _axis(attributes["dim"], len(shapes[0]))
    return (tuple(shapes[0]),)


def _matmul(shapes: Sequence[Shape], _attributes: Attributes) -> tuple[Shape, ...]:
    a, b = shapes
    if len(a) not in (1, 2) or len(b) not in (1, 2) or a[-1] != b[0]:
        raise ValueError(f"shapes {a} and {b} cannot be multiplied")
    return (tuple(a[:-1]) + tuple(b[1:]),)


def _reshape(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    target = tuple(attributes["shape"])
    if math.prod(target) != math.prod(shapes[0]):
        raise ValueError(f"shape {shapes[0]} cannot be reshaped to {target}")
    return (target,)


def _transpose(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    sizes = list(shapes[0])
    i, j = _axis(attributes["dim0"], len(sizes)), _axis(attributes["dim1"], len(sizes))
    sizes[i], sizes[j] = sizes[j], sizes[i]
    return (tuple(sizes),)


def _permute(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    if sorted(attributes["dims"]) != list(range(len(shapes[0]))):
        raise ValueError(f"{attributes['dims']} is no permutation of the axes of shape {shapes[0]}")
    return (tuple(shapes[0][d] for d in attributes["dims"]),)


def _expand(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    target = tuple(attributes["shape"])
    if broadcast(shapes[0], target) != target:
        raise ValueError(f"shape {shapes[0]} does not expand to {target}")
    return (target,)


def _squeeze(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim = _axis(attributes["dim"], len(shapes[0]))
    return (tuple(n for i, n in enumerate(shapes[0]) if i != dim or n != 1),)


def _unsqueeze(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim = _axis(attributes["dim"], len(shapes[0]) + 1)
    return ((*shapes[0][:dim], 1, *shapes[0][dim:]),)


def _flip(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    for dim in attributes["dims"]:
        _axis(dim, len(shapes[0]))
    return (tuple(shapes[0]),)


def _narrow(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim, start, length = _axis(attributes["dim"], len(shapes[0])), attributes["start"], attributes["length"]
    if not 0 <= start <= start + length <= shapes[0][dim]:
        raise ValueError(f"narrow({dim}, {start}, {length}) does not fit shape {shapes[0]}")
    return (tuple(length if i == dim else n for i, n in enumerate(shapes[0])),)


def _select(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim, index = _axis(attributes["dim"], len(shapes[0])), attributes["index"]
    if not 0 <= index < shapes[0][dim]:
        raise ValueError(f"index {index} does not exist along axis {dim} of shape {shapes[0]}")
    return (tuple(n for i, n in enumerate(shapes[0]) if i != dim),)


def _cat(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim = _axis(attributes["dim"], len(shapes[0]))
    rests = {tuple(n for i, n in enumerate(s) if i != dim) for s in shapes}
    if len(rests) != 1 or len({len(s) for s in shapes}) != 1:
        raise ValueError(f"shapes {list(shapes)} cannot be joined along axis {dim}")
    return (tuple(sum(s[dim] for s in shapes) if i == dim else n for i, n in enumerate(shapes[0])),)


def _stack(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    if len(set(shapes)) != 1:
        raise ValueError(f"shapes {list(shapes)} cannot be stacked")
    dim = _axis(attributes["dim"], len(shapes[0]) + 1)
    return ((*shapes[0][:dim], len(shapes), *shapes[0][dim:]),)


def _split(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    """Pieces of `split_size` along `dim`; the last may be smaller; an empty axis gives one empty piece."""
    dim, size = _axis(attributes["dim"], len(shapes[0])), attributes["split_size"]
    if size < 1:
        raise ValueError("split_size is at least 1")
    total = shapes[0][dim]
    pieces = [min(size, total - at) for at in range(0, total, size)] or [0]
    return tuple(tuple(p if i == dim else n for i, n in enumerate(shapes[0])) for p in pieces)


def _unbind(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    dim = _axis(attributes["dim"], len(shapes[0]))
    piece = tuple(n for i, n in enumerate(shapes[0]) if i != dim)
    return (piece,) * shapes[0][dim]


def _index_select(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Shape, ...]:
    if len(shapes[1]) != 1:
        raise ValueError("the index is a vector")
    if shapes[1][0] and not shapes[0][_axis(attributes["dim"], len(shapes[0]))]:
        raise ValueError("an empty axis has no index")
    dim = _axis(attributes["dim"], len(shapes[0]))
    return (tuple(shapes[1][0] if i == dim else n for i, n in enumerate(shapes[0])),)


_ROWS = (
    # name, arity, shape rule, then what is not the default
    Operation("neg", 1, _same, exact=True, complex=True),
    Operation("abs", 1, _same, exact=True, kinks=True, saves=True),
    Operation("relu", 1, _same, exact=True, kinks=True, saves=True),
    Operation("square", 1, _same, exact=True, saves=True, complex=True),
    Operation("reciprocal", 1, _same, domain="nonzero", saves=True),
    Operation("sqrt", 1, _same, domain="positive", saves=True),
    Operation("exp", 1, _same, saves=True),
    Operation("log", 1, _same, domain="positive", saves=True),
    Operation("sin", 1, _same, saves=True),
    Operation("cos", 1, _same, saves=True),
    Operation("tanh", 1, _same, saves=True),
    Operation("sigmoid", 1, _same, saves=True),
    Operation("clone", 1, _same, exact=True, complex=True),
    Operation("pow", 1, _same, ("exponent",), exact=True, saves=True),
    Operation("add", 2, _broadcast, exact=True, complex=True),
    Operation("sub", 2, _broadcast, exact=True, complex=True),
    Operation("mul", 2, _broadcast, exact=True, saves=True, complex=True),
    Operation("div", 2, _broadcast, domain="nonzero", saves=True),
    Operation("where", 3, _broadcast, roles=("mask",), exact=True),
    Operation("sum", 1, _reduce, ("dim", "keepdim"), exact=True, complex=True),
    Operation("mean", 1, _reduce, ("dim", "keepdim")),
    Operation("cumsum", 1, _along, ("dim",), exact=True, min_rank=1),
    Operation("matmul", 2, _matmul, exact=True, saves=True, min_rank=1),
    Operation("reshape", 1, _reshape, ("shape",), exact=True, view=True),
    Operation("transpose", 1, _transpose, ("dim0", "dim1"), exact=True, view=True, min_rank=1),
    Operation("permute", 1, _permute, ("dims",), exact=True, view=True),
    Operation("expand", 1, _expand, ("shape",), exact=True, view=True),
    Operation("squeeze", 1, _squeeze, ("dim",), exact=True, view=True, min_rank=1),
    Operation("unsqueeze", 1, _unsqueeze, ("dim",), exact=True, view=True),
    Operation("flip", 1, _flip, ("dims",), exact=True),
    Operation("narrow", 1, _narrow, ("dim", "start", "length"), exact=True, view=True, min_rank=1),
    Operation("select", 1, _select, ("dim", "index"), exact=True, view=True, min_rank=1),
    Operation("cat", -1, _cat, ("dim",), exact=True, min_rank=1),
    Operation("stack", -1, _stack, ("dim",), exact=True),
    Operation("split", 1, _split, ("split_size", "dim"), exact=True, view=True, multi=True, min_rank=1),
    Operation("unbind", 1, _unbind, ("dim",), exact=True, view=True, multi=True, min_rank=1),
    Operation("index_select", 2, _index_select, ("dim",), roles=("value", "index"), exact=True, min_rank=1),
    # pairs of reals and back
    Operation("complex", 2, _equal, exact=True, complex=True),
    Operation("real", 1, _same, exact=True, complex=True),
    Operation("imag", 1, _same, exact=True, complex=True),
    Operation("conj", 1, _same, exact=True, complex=True),
)

OPERATIONS: Mapping[str, Operation] = {row.name: row for row in _ROWS}
"""Every operation by name, in the order of the table."""

REAL = tuple(row.name for row in _ROWS if row.name not in ("complex", "real", "imag", "conj"))
"""Names of the operations that real programs draw from."""
