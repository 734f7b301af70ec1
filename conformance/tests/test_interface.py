"""The interface that scripts and CI of others rely on: the README's block is what the command line says of itself."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import click
import gradspec
import pytest
from gradspec import bundle, journal, plugin
from gradspec.adapters.torch_like import TorchLike
from gradspec.cli import command

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
PLAIN = {"list", "failures-only", "quiet", "jobs", "json"}
"""Options of `check` that the command line alone has; jobs and json have other names in pytest."""


def usage(name: str) -> str:
    """One command as the block shows it."""
    one = command.commands[name]
    context = click.Context(one, info_name=f"gradspec {name}")
    arguments = [piece for piece in one.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    options = [option(p) for p in one.params if isinstance(p, click.Option)]
    lines = textwrap.wrap("   ".join(options), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([" ".join(["gradspec", name, *arguments]), *lines])


def option(parameter: click.Option) -> str:
    """One option with the name of its value, in one word that is not broken."""
    words = ["|".join(parameter.opts), *([] if parameter.is_flag else [str(parameter.metavar)])]
    return "\u00a0".join(words)


def interface() -> str:
    """The whole block."""
    return "\n".join(usage(name) for name in command.commands).replace("\u00a0", " ") + "\n"


def test_the_block_of_the_readme_is_what_the_command_line_has() -> None:
    block = README.split("```text\ngradspec check", 1)[1].split("```", 1)[0]
    assert f"gradspec check{block}" == interface()


@pytest.mark.parametrize("name", command.commands)
def test_every_option_says_what_it_is_for(name: str) -> None:
    assert command.commands[name].help, "a command has a docstring"
    for parameter in command.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.is_flag or parameter.metavar, parameter.name


def checking() -> set[str]:
    """The options of `gradspec check`, without dashes."""
    return {p.opts[0].lstrip("-") for p in command.commands["check"].params if isinstance(p, click.Option)}


def test_python_takes_what_the_command_line_takes() -> None:
    taken = set(inspect.signature(gradspec.check).parameters) - {"adapter"}
    assert taken == checking() - (PLAIN - {"jobs", "json"})


def test_pytest_takes_what_the_command_line_takes() -> None:
    named = set(re.findall(r'"--gradspec-([a-z]+)"', inspect.getsource(plugin.pytest_addoption)))
    named |= {"requirement", "feature", "chapter", "clause"}  # in a loop
    assert named - {"record", "journal"} == checking() - PLAIN


def test_the_defaults_the_readme_states_are_those_of_the_commands() -> None:
    defaults = {p.opts[0]: p.default for p in command.commands["check"].params}
    assert f"`--timeout S` ({defaults['--timeout']} seconds)" in README
    assert defaults["--profile"] == "default"
    assert defaults["--seed"] == "0"


def test_the_other_numbers_of_the_readme_are_those_of_the_code() -> None:
    assert "rank 4 and six dtypes" in README
    assert (TorchLike.max_rank, len(TorchLike.dtypes)) == (4, 6)
    assert "four fifths of the machine" in README
    assert journal._SHARE == 4 / 5
    assert "(3.11 or newer)" in README
    assert "sys.version_info < (3, 11)" in inspect.getsource(bundle)
    shown = README.split("class Engine(Adapter):", 1)[1].split("```", 1)[0]
    assert "a scalar engine needs five\nof them" in README
    assert len(re.findall(r"^    def ", shown, re.MULTILINE)) == 5
