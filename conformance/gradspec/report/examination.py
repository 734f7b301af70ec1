"""The self-test of an adapter in the terminal: each check with its word, the operations, and the last sentence."""

from __future__ import annotations

import collections

from rich.console import Console
from rich.text import Text

from gradspec.probe import Examined
from gradspec.report.board import make_console, plain
from gradspec.report.record import RESULTS, Finding

_STYLES = {"wrong": "bold red", "remark": "yellow", "ok": "green", "not declared": "dim"}
_INDENT = 14
"""Columns of the words in front of the checks."""


def show_examined(examined: Examined, console: Console | None = None) -> int:
    """Show what was found out about an adapter.

    Args:
        examined: as `probe.examine` returns it.
        console: where to; standard output by default.

    Returns:
        The exit status: 0 where nothing is wrong, else 1.
    """
    console = console or make_console()
    declared, said = examined.declared, [*examined.findings, *_operations(examined)]
    name = plain(f"{declared.name} {declared.version()}".strip())
    console.print(Text(f"{name}: self-test of the adapter", style="bold"))
    before = ""
    for finding in said:
        if finding.check != before:
            head = Text(f"{finding.result:<{_INDENT}}", style=_STYLES[finding.result])
            console.print(head.append(finding.check, "default"), soft_wrap=True)
        before = finding.check
        _show_text(finding, console)
    counts = collections.Counter(finding.result for finding in said)
    told = ", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result])
    status = int(counts["wrong"] > 0)
    word = "the suite could not believe this adapter" if status else "the suite can believe this adapter"
    style = "bold red" if status else "bold green"
    console.print(Text(f"{name}: {told}; {word}. Exit status {status}.", style=style))
    return status


def _show_text(finding: Finding, console: Console) -> None:
    for part in Text(plain(finding.text)).wrap(console, max(console.width - _INDENT, 20)) if finding.text else ():
        part.rstrip()
        console.print(Text(" " * _INDENT).append_text(part), soft_wrap=True)


def _operations(examined: Examined) -> list[Finding]:
    """One finding for each operation that failed alone, or one for all of them."""
    qualification, all_ = examined.qualification, len(examined.declared.operations)
    found = []
    for name, misfits in qualification.failed.items():
        absent = qualification.not_offered.get(name)
        if absent is not None:
            text = f"{name} is declared and not offered ({absent}): implement it in `apply`, or leave it out of"
            found.append(Finding(f"the operation {name} works alone", "wrong", f"{text} `operations`"))
            continue
        first = misfits[0]
        text = f"{first['class']}: expected {first['expected']}, found {first['found']}; the clause VALUE-61 judges it"
        found.append(Finding(f"the operation {name} works alone", "remark", text))
    right = all_ - len(qualification.failed)
    return [*found, Finding(f"{right} of {all_} operations work alone", "ok")] if right else found
