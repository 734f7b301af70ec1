"""The one exception for bad input by the user, and the error kinds that a clause may ask for.

Imports nothing but the standard library, so that every other module may import it.
"""

from __future__ import annotations

from pathlib import PurePath

ERROR_KINDS: tuple[str, ...] = (
    "graph_freed",
    "not_scalar",
    "not_real",
    "nothing_requires_grad",
    "bad_seed_shape",
    "bad_seed_dtype",
    "bad_type",
    "wrong_seed_count",
    "empty_inputs",
    "bad_grad_shape",
    "bad_grad_dtype",
    "self_grad",
    "not_requiring_grad",
    "modified_in_place",
    "not_leaf",
    "unreachable_input",
    "bad_shape",
    "bad_argument",
)
"""What a refusal may mean; an adapter maps an exception to the set of kinds it may stand for."""


class GradspecError(Exception):
    """Bad input by the user: shown as one line without a traceback, exit status 2.

    Args:
        message: one clear sentence: what is wrong and what to do about it.
        path: the file where it is wrong, as it should be shown.
        line: the line in that file, counted from 1.
    """

    status = 2
    """The exit status of a process that ends with it."""

    def __init__(self, message: str, *, path: str | PurePath | None = None, line: int | None = None) -> None:
        # All three go to Exception.__init__ so that the error survives pickling between xdist workers.
        super().__init__(message, path, line)
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.path, self.line)

    def __str__(self) -> str:
        place = "" if self.path is None else self.path
        if place and self.line is not None:
            place += f":{self.line}"
        return f"{place}: {self.message}" if place else self.message


def _rebuild(cls: type[GradspecError], message: str, path: str | None, line: int | None) -> GradspecError:
    return cls(message, path=path, line=line)
