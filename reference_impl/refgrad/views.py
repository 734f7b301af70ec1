"""Views and in-place writes: how history follows memory.

A view knows its base and the steps that lead from the base to it. A recorded write replaces the history of its target;
where the target is a view, the base gets the history `base with the view replaced by the new value`, and every view
of that base is derived anew from it. Writes are computed out of place and then copied in, so what an operation has
saved of the old value is a copy and stays right.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from . import ops
from .dtypes import category
from .errors import BadResultDtypeError, BadShapeError, NotLeafError
from .modes import state
from .quiet import hush, restore
from .record import record, recording, wrap
from .tape import edge_of, vjp
from .tensor import Tensor, alias, bump, shared_counter, watch_of


class View:
    """What a view is a view of.

    Attributes:
        base: the tensor that owns the memory.
        steps: the view operations from base to view: names in `arrays.VIEWS` with their argument.
        recorded: it was taken in grad mode, so it follows the history of its base.
    """

    __slots__ = ("base", "recorded", "steps")

    def __init__(self, base: Tensor, steps: tuple[tuple[str, Any], ...], recorded: bool) -> None:
        self.base, self.steps, self.recorded = base, steps, recorded


def attach(made: Tensor, source: Tensor, step: tuple[str, Any]) -> None:
    """Makes `made` known as the view of `source` that `step` gives."""
    made._counter = shared_counter(source)
    parent = None if source._meta is None else source._meta.view
    if parent is None or (source._tracked and source._node is None):
        view = View(source, (step,), state.recording)
    else:
        view = View(parent.base, (*parent.steps, step), state.recording and parent.recorded)
    made._rare().view = view
    views = view.base._rare().views
    key = id(made)
    views[key] = weakref.ref(made, partial(forget, views, key))


def forget(views: dict[int, Any], key: int, gone: Any) -> None:
    """A view is gone."""
    if views.get(key) is gone:
        del views[key]


def view_of(label: str, source: Tensor, data: Any, attrs: Any, step: tuple[str, Any]) -> Tensor:
    """The result of a view operation on one tensor."""
    made = record(label, data, (source,), (), attrs) if recording(source) else wrap(data)
    attach(made, source, step)
    return made


# --- writing --------------------------------------------------------------------------------------------------------


def write(target: Tensor, function: Callable[..., Tensor], *operands: Any, **options: Any) -> Tensor:
    """`target` becomes `function(target, *operands)`, in its own memory; returns the target (INPLACE-10).

    Raises:
        NotLeafError: in grad mode, if the target is a leaf that requires grad, or a view of one.
        BadShapeError, BadResultDtypeError: the result has another shape, or a dtype of a higher category (INPLACE-20).
    """
    check_writable(target)
    old = alias(target._data, shared_counter(target))
    old._node, old._tracked = target._node, target._tracked
    result = function(old, *[old if each is target else each for each in operands], **options)
    check_fits(target, result)
    if result._tracked:
        result = ops.cast(result, target.dtype)
        keep_old(old, result)
    token = hush()
    try:
        np.copyto(target._data, result._data, casting="unsafe")
    finally:
        restore(token)
    bump(target)
    if result._tracked:
        adopt(target, result)
    return target


def check_writable(target: Tensor) -> None:
    """Refuses writes that would lose a gradient."""
    if not target._data.flags.writeable:  # INPLACE-23
        raise BadShapeError("several elements of this tensor are one place in memory (expand); write to a clone of it")
    if not state.recording:
        return
    view = None if target._meta is None else target._meta.view
    if target._tracked and target._node is None:  # INPLACE-07
        raise NotLeafError("a leaf that requires grad cannot be written in place in grad mode; use no_grad()")
    if view is None:
        return
    if view.base._tracked and view.base._node is None:  # INPLACE-09
        raise NotLeafError("a view of a leaf that requires grad cannot be written in grad mode; use no_grad()")
    if not view.recorded:  # INPLACE-17
        raise NotLeafError("a view taken under no_grad cannot be written in grad mode; take it in grad mode")


def check_fits(target: Tensor, result: Tensor) -> None:
    """Refuses a result that the memory of the target cannot take."""
    if result.shape != target.shape:
        raise BadShapeError(f"an in-place result of shape {result.shape} does not fit a tensor of shape {target.shape}")
    if category(result.dtype) > category(target.dtype):
        raise BadResultDtypeError(f"an in-place result of {result.dtype} does not fit a {target.dtype} tensor")


def keep_old(old: Tensor, result: Tensor) -> None:
    """Where the operation saved the old value, it saves a copy: the write is about to change the memory."""
    saved = result._node.saved
    if any(each is old for each in saved):
        old._data, old._counter = old._data.copy(), None


def adopt(target: Tensor, result: Tensor) -> None:
    """Gives the target, its base and all views of that base the history of the new value (INPLACE-11 to -14)."""
    view = None if target._meta is None else target._meta.view
    if view is None:
        set_history(target, result._node)
        refresh(target)
        return
    node = record("write_through", view.base._data, (view.base, result), (), view.steps)._node
    set_history(view.base, node)
    refresh(view.base)


def set_history(tensor: Tensor, edge: Any) -> None:
    """Replaces the creator of a tensor; a retained gradient follows it (THOOK-24)."""
    if tensor.retains_grad:
        watch = watch_of(tensor._node)
        keeper = watch.retained.pop(tensor._node.slot or 0, None)
        if keeper is not None:
            watch_of(edge).retained[edge.slot or 0] = keeper
    tensor._node, tensor._tracked = edge, True


def refresh(base: Tensor) -> None:
    """Derives the views of a base from its new history."""
    if base._meta is None:
        return
    for reference in list(base._meta.views.values()):
        made = reference()
        if made is None or made._meta is None or made._meta.view is None:
            continue
        if made._meta.view.recorded and not (made._tracked and made._node is None):
            set_history(made, edge_of(ops.replay(base, made._meta.view.steps)))


@vjp("write_through")
def write_through_vjp(xp: Any, node: Any, g: Any, _saved: Sequence[Any]) -> Any:
    """The old base keeps the gradient outside the view, the new value gets that inside."""
    return xp.zero_region(g, node.attrs), xp.replay(g, node.attrs)
