"""The errors refgrad raises: one class a kind, each a subclass of the Python type that torch raises.

The message of every error says what was wrong and what to do about it.
"""

from __future__ import annotations


class GraphFreedError(RuntimeError):
    """A pass needs values that an earlier pass has freed."""


class NotScalarError(RuntimeError):
    """A seed was left out for a root that has not exactly one element."""


class NotRealError(RuntimeError):
    """A seed was left out for a complex root."""


class NothingRequiresGradError(RuntimeError):
    """A root of a pass does not require grad."""


class BadSeedShapeError(RuntimeError):
    """A seed has another shape than its root."""


class BadSeedDtypeError(RuntimeError):
    """A seed is complex and its root real, or the other way round."""


class BadTypeError(TypeError):
    """An argument has a type that the call does not take."""


class WrongSeedCountError(RuntimeError):
    """The number of seeds is not the number of roots."""


class EmptyInputsError(RuntimeError):
    """`inputs` was given, but holds nothing."""


class BadGradShapeError(RuntimeError):
    """A gradient was assigned whose shape is not that of its tensor."""


class BadGradDtypeError(RuntimeError):
    """A gradient was assigned whose dtype is not that of its tensor."""


class SelfGradError(RuntimeError):
    """A tensor was assigned as its own gradient."""


class NotRequiringGradError(RuntimeError):
    """The call needs a tensor that requires grad."""


class NotDifferentiableError(RuntimeError):
    """A tensor of integers or booleans was asked to require grad."""


class RequiresGradError(RuntimeError):
    """The call needs a tensor that does not require grad: detach it first."""


class ModifiedInPlaceError(RuntimeError):
    """A value that a derivative needs was overwritten after it had been saved."""


class NotLeafError(RuntimeError):
    """The call is right for the other kind of tensor: a leaf for a non-leaf, or a non-leaf for a leaf."""


class UnreachableInputError(RuntimeError):
    """A gradient was asked for a tensor that the outputs do not depend on."""


class BadShapeError(RuntimeError):
    """Shapes, sizes or axes do not fit the operation."""


class BadIndexError(BadShapeError, IndexError):
    """An index or an axis lies outside the tensor."""


class BadArgumentError(ValueError):
    """An argument has a value that the call does not take."""


class BadResultDtypeError(BadArgumentError, RuntimeError):
    """An in-place result is of a higher category of numbers than its target."""


class NonLeafGradWarning(UserWarning):
    """The `.grad` of a non-leaf that does not retain it was read."""
