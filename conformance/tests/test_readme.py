"""What README, CHANGELOG and CONTRIBUTING state: every flag, count, default and piece of output is compared here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gradspec.adapters import load_adapter, shipped
from gradspec.cli import command
from gradspec.engine import EXAMPLES
from gradspec.programs.operations import OPERATIONS
from gradspec.spec import load_spec
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [(t.info, t.content) for t in MarkdownIt().parse(README) if t.type == "fence"]


def gradspec(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NO_COLOR"))} | {"COLUMNS": "80"}
    command_line = [sys.executable, "-m", "gradspec", *arguments]
    return subprocess.run(command_line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_output_shown_is_what_the_command_prints(tmp_path: Path) -> None:
    at = next(n for n, (info, text) in enumerate(BLOCKS) if info == "console" and "gradspec.faults" in text)
    done = gradspec(*BLOCKS[at][1].split()[1:], cwd=tmp_path)
    printed = [line.rstrip() for line in done.stdout.splitlines() if "clauses," not in line]
    assert done.returncode == 1
    assert "\n".join(printed).strip("\n") == BLOCKS[at + 1][1].strip("\n")


def test_every_command_named_exists_and_every_command_is_named() -> None:
    named = set(re.findall(r"`gradspec ([a-z-]+)", README))
    assert named == set(command.commands)


def test_the_profiles_are_those_of_the_engine() -> None:
    counts = ", ".join(str(n) for n in EXAMPLES.values())
    assert f"`--profile {'|'.join(EXAMPLES)}` ({counts} examples a clause)" in README


def test_what_refgrad_leaves_out_is_said() -> None:
    sentence = re.search(r"does not offer\s(.*?) yet", README, re.DOTALL)
    assert sentence is not None
    offered = load_adapter("refgrad").features
    assert set(re.findall(r"`([a-z_.]+)`", sentence[1])) == set(load_spec().features) - offered


def test_the_chapters_named_are_those_of_the_spec() -> None:
    sentence = re.search(r"the clauses: chapters (.*?) and one clause of (\w+) so far", README)
    assert sentence is not None
    assert set(re.findall(r"[A-Z]+", " ".join(sentence.groups()))) == {c.chapter for c in load_spec().clauses.values()}


def test_the_counts_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"Programs over {len(OPERATIONS)} operations" in changelog
    assert all(name in changelog.lower() for name in shipped())


def test_the_adapter_shown_checks_a_library(tmp_path: Path) -> None:
    source = next(text for info, text in BLOCKS if info == "python")
    (tmp_path / "mylib.py").write_text("from refgrad import *\n")
    (tmp_path / "mylib_adapter.py").write_text(source.replace('"mylib"\n    features', '"gradspec"\n    features'))
    done = gradspec("check", "mylib_adapter.py", "--profile", "smoke", "--chapter", "RETAIN", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_house_of_contributing_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text[text.index("```\nspec/") :].split("```")[1]
    names = re.findall(r"^  (\S[^ ]*(?: \w+\.py)*)  ", block, re.MULTILINE)
    for name in " ".join(names).split():
        assert (ROOT / "conformance" / "gradspec" / name).exists(), name
    for path in re.findall(r"`((?:conformance|spec|reference_impl|programs|refgrad|faults)/[\w./]+)`", text):
        homes = (ROOT, ROOT / "conformance/gradspec", ROOT / "reference_impl")
        assert any((home / path).exists() for home in homes), path


ENGINE = """
class Number:
    def __init__(self, value, parents=()):
        self.value, self.parents, self.grad = value, parents, None

    def __add__(self, other):
        return Number(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other):
        return Number(self.value * other.value, ((self, other.value), (other, self.value)))

    def backward(self):
        sums, order = {self: 1.0}, []
        def visit(node):
            if node not in order:
                [visit(parent) for parent, _ in node.parents]
                order.append(node)
        visit(self)
        for node in reversed(order):
            total = sums.get(node, 0.0)
            if not node.parents:
                node.grad = total + (node.grad or 0.0)
            for parent, slope in node.parents:
                sums[parent] = sums.get(parent, 0.0) + total * slope
"""


WRONG = ENGINE.replace("((self, other.value), (other", "((self, 2 * other.value), (other")


@pytest.mark.parametrize(("engine", "status"), [(ENGINE, 0), (WRONG, 1)])
def test_the_scalar_adapter_shown_judges_an_engine(tmp_path: Path, engine: str, status: int) -> None:
    """A right engine conforms; one wrong derivative does not."""
    source = next(text for info, text in BLOCKS if info == "python" and "class Engine" in text)
    (tmp_path / "engine.py").write_text(engine, encoding="utf-8")
    (tmp_path / "adapter.py").write_text(source, encoding="utf-8")
    done = gradspec("check", "adapter.py", "--profile", "smoke", "--level", "L0", cwd=tmp_path)
    assert done.returncode == status, done.stdout + done.stderr


def test_the_expectation_file_shown_lists_the_failure_shown(tmp_path: Path) -> None:
    (tmp_path / "known.yaml").write_text(next(text for info, text in BLOCKS if info == "yaml"), encoding="utf-8")
    selected = ("gradspec.faults:H04", "--profile", "smoke", "--clause", "RETAIN-03")
    done = gradspec("check", *selected, "--expect", "known.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "expected failures (1): RETAIN-03" in done.stdout
