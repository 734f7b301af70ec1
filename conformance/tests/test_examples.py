"""The runner of examples: holds, fails and error are told apart, each with its line in the card's file."""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from gradspec.examples import LONGEST_MESSAGE, ExampleOutcome, run_example
from gradspec.spec import Clause


def run(example: str, output: str | None = None, **namespace: Any) -> ExampleOutcome:
    """Run an example that begins in line 21 of its card."""
    clause = Clause(
        id="RETAIN-01",
        chapter="RETAIN",
        number=1,
        title="t",
        requirement="MUST",
        feature="scalar",
        level="L0",
        source="s",
        status="stable",
        sentence="It MUST.",
        path="spec/RETAIN.md",
        line=6,
        example=example,
        example_line=21,
        example_output=output,
        example_output_line=None if output is None else 31,
    )
    return run_example(clause, SimpleNamespace(**namespace))


def refuse(text: str, kind: type[BaseException] = ValueError) -> None:
    """An implementation that raises."""
    raise kind(text)


def test_a_true_claim_holds() -> None:
    """Asserts and printed lines, blanks at line ends and blank lines at the end apart."""
    assert run("assert ag.one == 1\n", one=1) == ExampleOutcome("holds")
    outcome = run("print(ag.one, 'a', sep='-')\nprint('b ')\n", "1-a\nb\n\n", one=1)
    assert outcome.holds
    assert outcome.printed == "1-a\nb \n"


def test_a_false_assert_fails_with_its_line() -> None:
    """The line is that of the file, and the message shows the assert."""
    outcome = run("x = ag.one\n\nassert x == 2, 'not two'\n", one=1)
    assert (outcome.status, outcome.line) == ("fails", 23)
    assert outcome.message == (
        "spec/RETAIN.md:23: the example of RETAIN-01 does not hold: assert x == 2, 'not two' (not two)"
    )


def test_an_assert_inside_a_function_of_the_example_fails_there() -> None:
    """The innermost line of the example counts."""
    outcome = run("def check(x):\n    assert x == 2\n\ncheck(ag.one)\n", one=1)
    assert (outcome.status, outcome.line) == ("fails", 22)


@pytest.mark.parametrize(
    ("printed", "line", "message"),
    [
        ("'a'", 31, "expected it to print 'b', got 'a'"),
        ("'b\\nx'", 32, "expected it to print 'c', got 'x'"),
        ("'b'", 32, "expected it to print 'c', got nothing more"),
        ("'b\\nc\\nd'", 32, "expected it to print nothing more, got 'd'"),
    ],
)
def test_other_printed_lines_fail(printed: str, line: int, message: str) -> None:
    """The first line that differs is named."""
    outcome = run(f"ag\nprint({printed})\n", "b\nc\n")
    assert (outcome.status, outcome.line) == ("fails", line)
    assert outcome.message == f"spec/RETAIN.md:{line}: the example of RETAIN-01 does not hold: {message}"


def test_an_exception_is_an_error_at_the_line_of_the_example() -> None:
    """Not at the line of the implementation where it was raised."""
    outcome = run("ag\nag.refuse('no\\nway')\n", refuse=refuse)
    assert (outcome.status, outcome.line) == ("error", 22)
    assert outcome.message == "spec/RETAIN.md:22: the example of RETAIN-01 could not run: ValueError: no way"


def test_an_assertion_of_the_implementation_is_an_error() -> None:
    """A crash of theirs is no claim of ours."""
    assert run("ag.refuse('x', AssertionError)\n", refuse=refuse).status == "error"


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, BaseException])
def test_whatever_an_implementation_raises_is_caught(kind: type[BaseException]) -> None:
    """An implementation cannot end the run."""
    assert run("ag.refuse('x', ag.kind)\n", refuse=refuse, kind=kind).status == "error"


def test_an_interrupt_comes_out() -> None:
    """It is the user's."""
    with pytest.raises(KeyboardInterrupt):
        run("ag.refuse('x', KeyboardInterrupt)\n", refuse=refuse)


def test_a_missing_function_is_an_error_with_its_name() -> None:
    """What the implementation does not offer is said."""
    assert "could not run: AttributeError" in run("ag.split\n").message


def test_long_messages_are_cut() -> None:
    """What comes back from an implementation is bounded."""
    assert len(run("ag.refuse('x' * 10**6)\n", refuse=refuse).message) < LONGEST_MESSAGE + 100
    assert len(run("ag\nprint('x' * 10**6)\n", "y\n").message) < LONGEST_MESSAGE + 150


def test_chatter_and_warnings_of_the_implementation_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what the example itself prints is compared; nothing reaches the terminal."""

    def chatter() -> None:
        sys.stdout.write("loading\n")
        warnings.warn("slow", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        assert run("ag.chatter()\nprint('a')\n", "a\n", chatter=chatter).holds
        filters = list(warnings.filters)
    assert (seen, filters[0][0], capsys.readouterr()) == ([], "error", ("", ""))


def test_an_example_sees_its_own_warnings() -> None:
    """Each of them, every time."""

    def warn() -> None:
        warnings.warn("a", UserWarning, stacklevel=1)

    text = "import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    ag.warn()\n    ag.warn()\n"
    for _ in range(2):
        assert run(text + "assert len(seen) == 2\n", warn=warn).holds


def test_nothing_of_an_example_stays_alive() -> None:
    """Neither its variables nor the frames of its exception: else every clause about liveness would be in doubt."""
    made: list[weakref.ref[set[int]]] = []

    def make() -> set[int]:
        value: set[int] = set()
        made.append(weakref.ref(value))
        return value

    gc.disable()
    try:
        run("x = ag.make()\ndef f():\n    return x\n", make=make)
        run("x = ag.make()\nraise KeyError\n", make=make)
        assert [ref() for ref in made] == [None, None]
    finally:
        gc.enable()


def test_tracebacks_show_the_line_of_the_card() -> None:
    """An implementation that formats its caller's stack sees the example's text in the card's file."""
    seen: list[str] = []
    run("ag\nag.look(1 + 1)\n", look=lambda _: seen.extend(traceback.format_stack()))
    entry = next(entry for entry in seen if "spec/RETAIN.md" in entry)
    assert "line 22" in entry
    assert "ag.look(1 + 1)" in entry


def test_examples_do_not_see_one_another() -> None:
    """Each has a scope of its own, and the implementation is its only `ag`."""
    assert run("x = ag.one\nassert x\n", one=1).holds
    assert "NameError" in run("ag\nx\n").message
    assert not any(name.startswith("example_") for name in sys.modules)
