"""All acts of the contract over any namespace shaped like torch.

An adapter for such a library is a subclass that names the namespace, the distribution and what it declares. Bodies
are one expression where they can be: that expression, with the recorded arguments in it, is the text of the act in a
script.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradspec.adapter import LEGACY, OPTIONAL, Adapter, Native, Value
from gradspec.behaviour import Behaviour
from gradspec.errors import ERROR_KINDS
from gradspec.programs.operations import OPERATIONS


def _expand(_ns: Any, x: Native, *, shape: Sequence[int]) -> Native:
    return x.expand(tuple(shape))


def _index_select(ns: Any, x: Native, index: Native, *, dim: int) -> Native:
    return ns.index_select(x, dim, index)


def _cat(ns: Any, *tensors: Native, dim: int) -> Native:
    return ns.cat(tensors, dim)


def _stack(ns: Any, *tensors: Native, dim: int) -> Native:
    return ns.stack(tensors, dim)


def _split(ns: Any, x: Native, *, split_size: int, dim: int) -> Native:
    return ns.split(x, split_size, dim)


OWN_CALLS: Mapping[str, Callable[..., Any]] = {
    "expand": _expand,
    "index_select": _index_select,
    "cat": _cat,
    "stack": _stack,
    "split": _split,
}
"""Operations that are not called as `namespace.name(*operands, **attributes)`."""


REFUSALS = frozenset(ERROR_KINDS) - {"bad_type"}
"""The kinds that a RuntimeError or ValueError may stand for where nothing more is known of it."""


class TorchLike(Adapter):
    """The contract over a namespace with torch's names: `TorchLike(torch)`.

    Args:
        namespace: the module of the implementation.
    """

    features = frozenset(
        {
            "scalar",
            "array",
            "seed",
            "requires_grad",
            "frozen",
            "grad.assign",
            "retain_grad",
            "backward.inputs",
            "backward.many",
            "graph.retain",
            "grad",
            "higher",
            "no_grad",
            "complex",
            "warnings",
            "multi_output",
            "aliasing",
            "inplace",
            "hooks.tensor",
            "liveness",
            "layout",
        }
    )
    operations = frozenset(OPERATIONS)
    keywords = OPTIONAL - LEGACY
    max_rank = 4
    dtypes = ("float64", "float32", "complex128", "complex64", "int64", "bool")

    def __init__(self, namespace: Any) -> None:
        super().__init__()
        self.ns = namespace

    def start(self) -> None:
        super().start()
        self.ns.set_grad_enabled(True)

    def version(self) -> str:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
            return importlib.metadata.version(self.distribution)
        return ""  # not installed as a distribution

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        """By type alone: torch raises RuntimeError for almost everything. A subclass that can tell more says more."""
        kinds = super().error_kinds(error)
        if isinstance(error, TypeError):
            return kinds | {"bad_type", "bad_argument"}
        return kinds | REFUSALS if isinstance(error, RuntimeError | ValueError) else kinds

    # -- values ------------------------------------------------------------------------------------------------------

    def tensor(
        self, data: Any, *, shape: tuple[int, ...] = (), dtype: str = "float64", requires_grad: bool = False
    ) -> Native:
        if 0 in shape:  # nested lists cannot say it
            return self.ns.zeros(shape, dtype=getattr(self.ns, dtype), requires_grad=requires_grad)
        return self.ns.tensor(data, dtype=getattr(self.ns, dtype), requires_grad=requires_grad)

    def value(self, x: Native) -> Value:
        return Value(tuple(x.shape), str(x.dtype).rpartition(".")[2], x.detach().tolist())

    def shape(self, x: Native) -> tuple[int, ...]:
        return tuple(x.shape)

    def dtype(self, x: Native) -> str:
        return str(x.dtype).rpartition(".")[2]

    def strides(self, x: Native) -> tuple[int, ...]:
        return tuple(x.stride())

    def apply(self, op: str, *operands: Native, **attributes: Any) -> Native:
        if op in OWN_CALLS:
            return OWN_CALLS[op](self.ns, *operands, **attributes)
        return getattr(self.ns, op)(*operands, **attributes)

    def native_operation(self, op: str) -> Callable[..., Native]:
        return functools.partial(OWN_CALLS[op], self.ns) if op in OWN_CALLS else getattr(self.ns, op)

    def apply_(self, op: str, x: Native, *operands: Native, **attributes: Any) -> Native:
        return getattr(x, f"{op}_")(*operands, **attributes)

    def shares_storage(self, a: Native, b: Native) -> bool:
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0

    def watch(self, x: Native) -> Native:
        return weakref.ref(x)

    def alive(self, watch: Native) -> bool:
        return watch() is not None and (gc.collect(), watch() is not None)[1]

    # -- flags -------------------------------------------------------------------------------------------------------

    def requires_grad(self, x: Native) -> bool:
        return x.requires_grad

    def set_requires_grad(self, x: Native, flag: bool) -> None:
        x.requires_grad_(flag)

    def is_leaf(self, x: Native) -> bool:
        return x.is_leaf

    def detach(self, x: Native) -> Native:
        return x.detach()

    def version_of(self, x: Native) -> int:
        return x._version

    # -- gradients ---------------------------------------------------------------------------------------------------

    def grad(self, x: Native) -> Native | None:
        return x.grad

    def set_grad(self, x: Native, value: Any) -> None:
        x.grad = value

    def retain_grad(self, x: Native) -> None:
        x.retain_grad()

    def retains_grad(self, x: Native) -> bool:
        return x.retains_grad

    def grad_dtype(self, x: Native) -> str:
        return str(x.grad_dtype).rpartition(".")[2].lower()

    def set_grad_dtype(self, x: Native, dtype: str) -> None:
        x.grad_dtype = None if dtype == "none" else getattr(self.ns, dtype)

    # -- engine ------------------------------------------------------------------------------------------------------

    def backward(self, root: Native, gradient: Any = None, **keywords: Any) -> None:
        root.backward(gradient, **keywords)

    def backward_many(self, roots: Sequence[Native], gradients: Sequence[Any] | None = None, **keywords: Any) -> None:
        self.ns.autograd.backward(roots, gradients, **keywords)

    def gradients(
        self,
        outputs: Sequence[Native],
        inputs: Sequence[Native],
        grad_outputs: Sequence[Any] | None = None,
        *,
        materialize: bool = False,
        **keywords: Any,
    ) -> tuple[Native | None, ...]:
        if materialize:
            keywords["materialize_grads"] = True
        return self.ns.autograd.grad(outputs, inputs, grad_outputs, **keywords)

    def gradient_edge(self, x: Native) -> Native:
        return self.ns.autograd.graph.get_gradient_edge(x)

    # -- modes -------------------------------------------------------------------------------------------------------

    def no_grad(self) -> contextlib.AbstractContextManager[Any]:
        return self.ns.no_grad()

    def enable_grad(self) -> contextlib.AbstractContextManager[Any]:
        return self.ns.enable_grad()

    def is_grad_enabled(self) -> bool:
        return self.ns.is_grad_enabled()

    def inference_mode(self) -> contextlib.AbstractContextManager[Any]:
        return self.ns.inference_mode()

    # -- tensor hooks ------------------------------------------------------------------------------------------------

    def register_hook(self, x: Native, hook: Behaviour) -> Native:
        return x.register_hook(hook)

    def remove(self, handle: Native) -> None:
        handle.remove()
