"""Cases for the command machines: a program and a list of commands, drawn as data.

A machine interprets the commands against a model (`suite/machines.py`); a command that makes no sense in the state it
meets is a no-op, so that every list is valid and shrinking is free to drop any of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gradspec.capabilities import Capabilities
from gradspec.programs.building import Draw, dyadics
from gradspec.programs.program import Case
from gradspec.programs.strategies import graphs

MAX_COMMANDS = 8


def lifetimes(offered: Capabilities) -> st.SearchStrategy[Case]:
    """A program with two or three roots, and commands ("pass" | "grad", root, retain)."""
    ways = ("pass", "grad") if "grad" in offered.features else ("pass",)

    programs = graphs(exact=True, apart=True, roots=(2, 3))(offered)

    @st.composite
    def cases(draw: Draw) -> Case:
        case: Case = draw(programs)
        roots = len(case.the_program.roots)
        commands = [
            (draw(st.sampled_from(ways)), draw(st.integers(0, roots - 1)), draw(st.integers(0, 2)) > 0)
            for _ in range(draw(st.integers(2, MAX_COMMANDS)))
        ]
        return replace(case, commands=tuple(commands))

    strategy: st.SearchStrategy[Case] = cases()
    return strategy


def slot_lives(offered: Capabilities) -> st.SearchStrategy[Case]:
    """A program, and commands on the slots of its leaves.

    ("backward",) runs the program again on the same leaves and walks back; ("forward",) runs it only; ("read", leaf);
    ("clear", leaf); ("assign", leaf, numbers); ("use", leaf) makes a new consumer of the leaf and drops it.
    """
    programs = graphs(exact=True, apart=True)(offered)

    @st.composite
    def cases(draw: Draw) -> Case:
        case: Case = draw(programs)
        program = case.the_program
        count = draw(st.integers(1, MAX_COMMANDS))
        return replace(case, commands=tuple(_slot_command(draw, program) for _ in range(count)))

    strategy: st.SearchStrategy[Case] = cases()
    return strategy


def _slot_command(draw: Draw, program: Any) -> tuple[Any, ...]:
    name = draw(st.sampled_from(("backward", "backward", "assign", "clear", "forward", "use", "read")))
    if name in ("backward", "forward"):
        return (name,)
    leaf = draw(st.sampled_from(program.leaves))
    if name == "assign":
        return (name, leaf, dyadics(draw, len(program.inputs[leaf].values)))
    return (name, leaf)
