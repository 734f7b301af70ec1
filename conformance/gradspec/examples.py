"""Runs the example of a card on an implementation.

The code comes from this repository's own spec/; the implementation's namespace is passed in as `ag`. Nothing here knows
which implementation that is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import threading
import traceback
import warnings
from dataclasses import dataclass
from typing import Any, Literal

from gradspec.spec import Clause

LONGEST_MESSAGE = 500
# Redirecting stdout and catching warnings change the state of the process: one example at a time.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class ExampleOutcome:
    """How an example went.

    Attributes:
        status: "holds"; "fails" (an assert of the example, or the lines it printed); "error" (it could not run).
        message: one line for people, with the place; empty where it holds.
        line: the line of the card's file, None where it holds.
        printed: what the example printed.
    """

    status: Literal["holds", "fails", "error"]
    message: str = ""
    line: int | None = None
    printed: str = ""

    @property
    def holds(self) -> bool:
        """Whether the example ran to its end and its claim is true."""
        return self.status == "holds"


def run_example(clause: Clause, namespace: Any) -> ExampleOutcome:
    """Execute the example of a card with `ag` = `namespace` and compare what it prints.

    What the implementation itself prints or warns is swallowed. Only KeyboardInterrupt comes out.

    Args:
        clause: the card.
        namespace: the implementation's module, or any object with the attributes that the example uses.
    """
    printed = io.StringIO()
    # The blank lines put every traceback and syntax error on its line in the card's file.
    text = "\n" * (clause.example_line - 1) + clause.example
    linecache.cache[clause.path] = (len(text), None, text.splitlines(keepends=True), clause.path)
    scope = {"__name__": f"example_{clause.chapter}_{clause.number}", "ag": namespace}
    scope["print"] = functools.partial(print, file=printed)
    failure: ExampleOutcome | None = None
    with _LOCK, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            exec(compile(text, clause.path, "exec", dont_inherit=True), scope)  # noqa: S102 - our own spec's text
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - an implementation may raise anything
            failure = _raised(clause, exc, printed.getvalue())
        finally:
            scope.clear()
    return failure or _compared(clause, printed.getvalue())


def _raised(clause: Clause, exc: BaseException, printed: str) -> ExampleOutcome:
    frames = traceback.extract_tb(exc.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == clause.path and frame.lineno is not None]
    line = own[-1] if own else clause.example_line
    place = f"{clause.path}:{line}"
    text = " ".join(str(exc).split())[:LONGEST_MESSAGE]
    # An AssertionError from inside the implementation is a crash of its own, not the example's claim.
    if isinstance(exc, AssertionError) and frames and frames[-1].filename == clause.path:
        code = clause.example.split("\n")[line - clause.example_line].strip()
        message = f"{place}: the example of {clause.id} does not hold: {code}" + (f" ({text})" if text else "")
        return ExampleOutcome("fails", message, line, printed)
    name = type(exc).__name__
    message = f"{place}: the example of {clause.id} could not run: {name}" + (f": {text}" if text else "")
    return ExampleOutcome("error", message, line, printed)


def _compared(clause: Clause, printed: str) -> ExampleOutcome:
    """Compare line by line, blanks at line ends and blank lines at the end apart."""
    if clause.example_output is None or clause.example_output_line is None:
        return ExampleOutcome("holds", printed=printed)
    wanted = [line.rstrip() for line in clause.example_output.rstrip().splitlines()]
    found = [line.rstrip() for line in printed.rstrip().splitlines()]
    if wanted == found:
        return ExampleOutcome("holds", printed=printed)
    common = (n for n, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b)
    n = next(common, min(len(wanted), len(found)))
    line = clause.example_output_line + min(n, len(wanted) - 1)
    expected = repr(wanted[n]) if n < len(wanted) else "nothing more"
    actual = repr(found[n][:LONGEST_MESSAGE]) if n < len(found) else "nothing more"
    message = (
        f"{clause.path}:{line}: the example of {clause.id} does not hold: expected it to print {expected}, got {actual}"
    )
    return ExampleOutcome("fails", message, line, printed)
