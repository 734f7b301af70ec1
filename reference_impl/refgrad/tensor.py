"""The tensor: an ndarray, where it came from, and the slot for its gradient.

Operations are no methods here: `methods.py` attaches them, so that function and method are one.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from .errors import (
    BadGradDtypeError,
    BadGradShapeError,
    BadTypeError,
    NonLeafGradWarning,
    NotDifferentiableError,
    NotLeafError,
    NotRequiringGradError,
    NotScalarError,
    RequiresGradError,
    SelfGradError,
)
from .modes import state
from .slots import check_grad_dtype, check_leaf, set_slot_dtype, slot_dtype
from .tape import Node, Watch, first_use, next_order, node_of

if TYPE_CHECKING:
    from .tape import AccumulateGrad
    from .views import View


class Meta:
    """What few tensors have. A tensor gets one when it first needs one."""

    __slots__ = ("accumulator", "any_dtype", "grad", "grad_dtype", "hooks", "retains", "view", "views")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.grad_dtype: np.dtype[Any] | None = None  # what .grad must have; None: the tensor's own
        self.any_dtype = False  # .grad may have any
        self.accumulator: weakref.ref[AccumulateGrad] | None = None
        self.hooks: dict[int, Callable[[Tensor], Any]] = {}  # of a leaf; those of a non-leaf are at its node
        self.retains = False
        self.view: View | None = None  # of what it is a view
        self.views: dict[int, weakref.ref[Tensor]] = {}  # its own views that follow its history


class Tensor:
    """A multidimensional array that remembers how it was computed.

    Made by `tensor`, `zeros`, ... and by operations, never by its constructor.
    """

    __slots__ = ("__weakref__", "_counter", "_data", "_meta", "_node", "_tracked")

    _data: NDArray[Any]  # always an ndarray, 0-d included
    _node: Any  # the Node (or the Slot of one) that made it; None for a leaf
    _tracked: bool  # requires grad
    _counter: list[int] | None  # version, shared with every tensor of the same memory; None: 0 and not shared
    _meta: Meta | None

    __array_ufunc__ = None  # `ndarray * tensor` is ours to compute

    if TYPE_CHECKING:  # attached by methods.py

        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes along the axes."""
        return self._data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._data.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._data.ndim

    @property
    def device(self) -> str:
        """Where the elements are."""
        return "cpu"

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size along one axis."""
        return self._data.shape if dim is None else self._data.shape[dim]

    def dim(self) -> int:
        """Number of axes."""
        return self._data.ndim

    def numel(self) -> int:
        """Number of elements."""
        return self._data.size

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._data.itemsize

    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self._data.dtype.kind == "c"

    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers."""
        return self._data.dtype.kind == "f"

    # --- memory -----------------------------------------------------------------------------------------------------

    def stride(self, dim: int | None = None) -> Any:
        """Steps along the axes, in elements."""
        steps = tuple(s // self._data.itemsize for s in self._data.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return self._data.flags.c_contiguous

    def data_ptr(self) -> int:
        """Address of the first element; 0 where there is none."""
        return self._data.ctypes.data if self._data.size else 0

    def untyped_storage(self) -> Storage:
        """The memory this tensor lies in, alone or with others."""
        return Storage(self._data)

    def storage_offset(self) -> int:
        """Where in its storage it begins, in elements."""
        return int((self._data.ctypes.data - self.untyped_storage().data_ptr()) // self._data.itemsize)

    @property
    def _version(self) -> int:
        """How often the memory was written in place (INPLACE-01)."""
        return 0 if self._counter is None else self._counter[0]

    # --- values out -------------------------------------------------------------------------------------------------

    def item(self) -> Any:
        """The only element as a Python number."""
        if self._data.size != 1:
            raise NotScalarError(f"item() needs one element, this tensor has {self._data.size}; use tolist()")
        return self._data.item()

    def tolist(self) -> Any:
        """The elements as nested lists, a 0-d tensor as a number."""
        return self._data.tolist()

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        """The ndarray over the same memory.

        Raises:
            RequiresGradError: in grad mode, if the tensor requires grad and `force` is not given (LEAF-21).
        """
        if self._tracked and state.recording and not force:
            raise RequiresGradError(
                "numpy() would lose the history of a tensor that requires grad; call detach() first"
            )
        return self._data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.numpy(), dtype=dtype, copy=bool(copy) or None)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._data.dtype.kind not in "iu":
            raise BadTypeError(f"only an integer tensor can be an index, this one is {self._data.dtype}")
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if self._data.ndim == 0:
            raise BadTypeError("a 0-d tensor has no length")
        return int(self._data.shape[0])

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        text = np.array2string(self._data, separator=", ", prefix="tensor(")
        kind = "" if self._data.dtype in (np.float32, np.int64, np.bool_) else f", dtype={self._data.dtype}"
        if self._node is not None:
            return f"tensor({text}{kind}, grad_fn={self.grad_fn!r})"
        return f"tensor({text}{kind}{', requires_grad=True' if self._tracked else ''})"

    # --- history ----------------------------------------------------------------------------------------------------

    @property
    def grad_fn(self) -> Node | None:
        """The node that made it; None for a leaf."""
        return None if self._node is None else node_of(self._node)

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return self._node is None

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for it."""
        return self._tracked

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if self._node is not None:
            if not wanted:  # LEAF-10
                raise NotLeafError("requires_grad of a non-leaf cannot be switched off; use detach()")
            return
        if wanted:
            check_differentiable(self._data.dtype)
        self._tracked = bool(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets the flag and returns the tensor itself."""
        self.requires_grad = requires_grad
        return self

    def detach(self) -> Tensor:
        """A tensor over the same memory that has no history and requires no grad (LEAF-14)."""
        return alias(self._data, shared_counter(self))

    def detach_(self) -> Tensor:
        """Cuts the tensor itself off its history.

        Raises:
            NotLeafError: if it is a view (LEAF-17).
        """
        if self._meta is not None:
            if self._meta.view is not None:
                raise NotLeafError("a view cannot be detached in place; use detach()")
            self._meta.retains = False
            self._meta.accumulator = None
        self._node, self._tracked = None, False
        return self

    # --- gradients --------------------------------------------------------------------------------------------------

    def _rare(self) -> Meta:
        """The meta record, made if need be."""
        if self._meta is None:
            with first_use:
                self._meta = self._meta or Meta()
        return self._meta

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient; None before there is one."""
        grad = None if self._meta is None else self._meta.grad
        if grad is None and self._node is not None:
            warn_unretained(self)
        return grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        check_grad(self, value)
        self._rare().grad = value  # GRADSLOT-06: this very object, later passes add to it

    @grad.deleter
    def grad(self) -> None:
        self._rare().grad = None

    @property
    def grad_dtype(self) -> np.dtype[Any] | None:
        """The dtype that `.grad` of this leaf must have and gradients are cast to (GRADSLOT-19); None: any will do.

        At first it is the leaf's own. With None (GRADSLOT-23) gradients stay in the dtype in which they arrive.

        Raises:
            NotLeafError: on a non-leaf, also when it is set (GRADSLOT-24).
            BadTypeError: if it is set to something that is neither a dtype nor None.
            BadGradDtypeError: if it is set while `.grad` has another dtype, or to one no gradient of the leaf can have.
        """
        check_leaf(self)
        return slot_dtype(self)

    @grad_dtype.setter
    def grad_dtype(self, dtype: np.dtype[Any] | None) -> None:
        check_leaf(self)
        check_grad_dtype(self, dtype)
        set_slot_dtype(self, dtype)

    @property
    def retains_grad(self) -> bool:
        """Whether it is a non-leaf whose `.grad` backward fills."""
        return self._node is not None and self._meta is not None and self._meta.retains

    def retain_grad(self) -> None:
        """Makes backward fill `.grad` of this non-leaf; does nothing on a leaf (GRADSLOT-10).

        Raises:
            NotRequiringGradError: if the tensor does not require grad (GRADSLOT-11).
        """
        if not self._tracked:
            raise NotRequiringGradError("retain_grad() needs a tensor that requires grad; this one does not")
        if self._node is not None:
            self._rare().retains = True
            watch_of(self._node).retained[self._node.slot or 0] = weakref.ref(self)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Handle:
        """Calls `hook(gradient)` in every pass that computes the gradient of this tensor; a result replaces it.

        Raises:
            NotRequiringGradError: if the tensor does not require grad.
        """
        if not self._tracked:
            raise NotRequiringGradError("register_hook() needs a tensor that requires grad; this one does not")
        if self._node is None:  # THOOK-19: with the leaf, not with a graph
            return Handle(self._rare().hooks, hook)
        return Handle(watch_of(self._node).hooks.setdefault(self._node.slot or 0, {}), hook)

    # --- copies -----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self._node is not None:  # LEAF-30
            raise NotLeafError("only leaves can be deep-copied; detach() first, or clone()")
        copy = alias(self._data.copy(order="K"))
        memo[id(self)] = copy
        copy._tracked = self._tracked
        if self._meta is not None:
            copied = copy._rare()
            copied.grad_dtype, copied.any_dtype = self._meta.grad_dtype, self._meta.any_dtype
            if self._meta.grad is not None:
                copied.grad = self._meta.grad.__deepcopy__(memo)
        return copy

    def __reduce__(self) -> Any:
        if self._node is not None:
            raise NotLeafError("only leaves can be pickled; detach() first")
        return _rebuild, (self._data, self._tracked)


class Storage:
    """The memory of a tensor, as far as it can be asked about."""

    def __init__(self, data: NDArray[Any]) -> None:
        while isinstance(data.base, np.ndarray):
            data = data.base
        self._root = data

    def data_ptr(self) -> int:
        """Its address."""
        return self._root.ctypes.data

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._root.nbytes


class Handle:
    """Takes a hook off again: by `remove()`, or at the end of a `with` block."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Callable[[Tensor], Any]], hook: Callable[[Tensor], Any]) -> None:
        self._hooks, self._key = hooks, next_order()
        hooks[self._key] = hook

    def remove(self) -> None:
        """The hook is not called any more."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def alias(data: NDArray[Any], counter: list[int] | None = None) -> Tensor:
    """An untracked tensor over `data`."""
    made = Tensor.__new__(Tensor)
    made._data = data
    made._node = None
    made._tracked = False
    made._counter = counter
    made._meta = None
    return made


def _rebuild(data: NDArray[Any], tracked: bool) -> Tensor:
    """A tensor out of its pickle."""
    made = alias(data)
    made._tracked = tracked
    return made


def shared_counter(tensor: Tensor) -> list[int]:
    """The version counter, for another tensor over the same memory (INPLACE-02)."""
    if tensor._counter is None:
        with first_use:
            tensor._counter = tensor._counter or [0]
    return tensor._counter


def bump(tensor: Tensor) -> None:
    """Counts a write to the memory of the tensor (INPLACE-01)."""
    shared_counter(tensor)[0] += 1


def watch_of(edge: Any) -> Watch:
    """The watch of the node an edge points to, made if need be."""
    node = node_of(edge)
    if node.watch is None:
        node.watch = Watch()
    return node.watch


def check_differentiable(dtype: np.dtype[Any]) -> None:
    """Refuses to track integers and booleans (LEAF-03, LEAF-04)."""
    if dtype.kind not in "fc":
        raise NotDifferentiableError(f"only floating-point and complex tensors can require grad, not {dtype}")


def warn_unretained(tensor: Tensor) -> None:
    """Warns who reads `.grad` of a non-leaf that does not retain it (GRADSLOT-08)."""
    if not tensor.retains_grad:
        warnings.warn(
            "backward fills .grad of leaves only; call retain_grad() on this non-leaf before backward",
            NonLeafGradWarning,
            stacklevel=3,
        )


def check_grad(tensor: Tensor, value: Any) -> None:
    """Refuses what cannot be the gradient of `tensor` (GRADSLOT-02 to -05)."""
    if value is None:
        return
    if not isinstance(value, Tensor):
        raise BadTypeError(f".grad takes a tensor or None, not {type(value).__name__}")
    if value is tensor:
        raise SelfGradError("a tensor cannot be its own .grad; assign a clone")
    if value._data.shape != tensor._data.shape:
        raise BadGradShapeError(f".grad of a tensor of shape {tensor.shape} cannot have shape {value.shape}")
    wanted = slot_dtype(tensor)
    if wanted is not None and value._data.dtype != wanted:
        raise BadGradDtypeError(
            f".grad of this {tensor.dtype} tensor must be {wanted}, not {value.dtype}; convert it, or set grad_dtype"
        )
