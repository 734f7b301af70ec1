"""Rules over the syntax trees of the suite: each takes the text of a module and returns what breaks it, one line each.

Loaded by path (`runpy.run_path`), since tests are not a package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

WIDE = frozenset(
    {
        "floats",
        "text",
        "binary",
        "randoms",
        "random_module",
        "complex_numbers",
        "data",
        "characters",
        "decimals",
        "fractions",
        "from_type",
        "builds",
        "arrays",
        "from_regex",
        "uuids",
        "datetimes",
        "dates",
        "times",
        "timedeltas",
    }
)
"""Strategies that mix in constants of loaded modules, or draw more than a small choice."""

PLAIN = frozenset({"SearchStrategy", "DrawFn"})
"""What may be imported from `hypothesis.strategies` by name: types, not strategies."""

MAX_CHOICES = 100


def drawing_files(package: Path) -> list[Path]:
    """The modules that may draw."""
    return [*sorted((package / "programs").glob("*.py")), *sorted((package / "suite").glob("*.py"))]


# -- draws -----------------------------------------------------------------------------------------------------------


def wide_draws(text: str) -> list[str]:
    """Draws that would depend on what else is loaded."""
    tree = ast.parse(text)
    aliases = _strategy_modules(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            ("hypothesis.strategies", "hypothesis.extra")
        ):
            # called as st.name, so that the rule sees it
            found += [f"line {node.lineno}: imports {a.name}" for a in node.names if a.name not in PLAIN]
        if isinstance(node, ast.Call) and (complaint := _complaint(node, aliases)):
            found.append(f"line {node.lineno}: {complaint}")
    return found


def _strategy_modules(tree: ast.AST) -> set[str]:
    aliases = {"st", "strategies"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            aliases |= {a.asname or a.name for a in node.names if a.name in ("strategies", "hypothesis.strategies")}
    return aliases


def _complaint(call: ast.Call, aliases: set[str]) -> str:
    name = called(call)
    if not isinstance(call.func, ast.Attribute) or _last(call.func.value) not in aliases:
        return ""  # something else that happens to be called alike
    if name in WIDE:
        return f"draws {name}"
    if name == "integers":
        return _wide_integers(call)
    if name == "sampled_from" and call.args and (_choices(call.args[0]) or 0) > MAX_CHOICES:
        return "sampled_from more choices than 100"
    return ""


def _wide_integers(call: ast.Call) -> str:
    given = dict(zip(("min_value", "max_value"), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    if any(isinstance(bound, ast.Starred) for bound in call.args):
        return ""  # a pair of bounds handed in: a test counts what is really drawn
    if len(given) < 2:
        return "draws integers without two bounds"
    low, high = (_number(given[name]) for name in ("min_value", "max_value"))
    return "draws integers of a range of more than 100" if None not in (low, high) and high - low >= MAX_CHOICES else ""


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _choices(node: ast.expr) -> int | None:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return len(node.elts)
    if isinstance(node, ast.Call) and called(node) == "range":
        numbers = [_number(argument) for argument in node.args]
        return None if None in numbers else len(range(*numbers))
    return None


# -- names -----------------------------------------------------------------------------------------------------------


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def called(call: ast.Call) -> str:
    """The name of what is called, without what it belongs to."""
    return _last(call.func)


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """Every call inside."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


# -- tests of the suite ----------------------------------------------------------------------------------------------

MAX_LINES = 25
ID = re.compile(r"[A-Z]+(-[A-Z]+)*-\d{2,}")
IMPLEMENTATIONS = frozenset({"impl", "session", "adapter", "offered", "capabilities"})
FACTS = frozenset({"name", "version", "distribution"})


def suite_functions(text: str) -> list[ast.FunctionDef]:
    """The test functions of a module of the suite."""
    return [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]


def docstrings(text: str) -> list[str]:
    """A test has a docstring of one sentence."""
    found = []
    for test in suite_functions(text):
        doc = ast.get_docstring(test) or ""
        if not doc.endswith(".") or "\n" in doc or re.search(r"[.!?] [A-Z]", doc):
            found.append(f"{test.name}: the docstring is one sentence on one line")
    return found


def lengths(text: str) -> list[str]:
    """A test has at most 25 lines."""
    return [
        f"{test.name}: {size} lines"
        for test in suite_functions(text)
        if (size := (test.end_lineno or 0) - test.lineno + 1) > MAX_LINES
    ]


def decorators(text: str) -> list[str]:
    """A test is decorated by `@clause` with literal ids over `@given`, nothing else."""
    return [f"{test.name}: @clause(ids) over @given(cases)" for test in suite_functions(text) if not _decorated(test)]


def _decorated(test: ast.FunctionDef) -> bool:
    marks = test.decorator_list
    if len(marks) != 2 or not all(isinstance(mark, ast.Call) for mark in marks):
        return False
    ids = marks[0].args if isinstance(marks[0], ast.Call) else []
    literal = all(isinstance(i, ast.Constant) and isinstance(i.value, str) and ID.fullmatch(i.value) for i in ids)
    return (
        [called(mark) for mark in marks if isinstance(mark, ast.Call)] == ["clause", "given"] and bool(ids) and literal
    )


def statements(text: str) -> list[str]:
    """A test has no try, no print, no global state and no function of its own."""
    forbidden = (
        ast.Try | ast.TryStar | ast.Global | ast.Nonlocal | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )
    found = []
    for test in suite_functions(text):
        inside = [n for n in ast.walk(test) if n is not test]
        bad = [type(n).__name__ for n in inside if isinstance(n, forbidden)]
        bad += ["print" for n in inside if isinstance(n, ast.Call) and called(n) == "print"]
        found += [f"{test.name}: {what} in a test" for what in bad]
    return found


def closures(text: str) -> list[str]:
    """No function is passed to an act: what the contract calls back is a behaviour."""
    tree = ast.parse(text)
    functions = {
        n.name
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and "behaviour" not in {_last(mark) for mark in n.decorator_list}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Lambda) for n in ast.walk(node.value)):
            functions |= {_last(target) for target in node.targets}
    return [
        f"line {call.lineno}: a function is passed to {called(call)}"
        for call in calls(tree)
        if _is_act(call) and any(_is_function(part, functions) for part in [*call.args, *call.keywords])
    ]


def _is_act(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and _last(call.func.value) == "impl"


def _is_function(argument: ast.AST, functions: set[str]) -> bool:
    inside = list(ast.walk(argument))
    callees = {id(n.func) for n in inside if isinstance(n, ast.Call)}
    return any(
        isinstance(n, ast.Lambda) or (isinstance(n, ast.Name) and n.id in functions and id(n) not in callees)
        for n in inside
    )


def identities(text: str) -> list[str]:
    """Nothing asks an implementation who it is."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in FACTS and _last(node.value) in IMPLEMENTATIONS:
            found.append(f"line {node.lineno}: reads .{node.attr}")
        if isinstance(node, ast.Call) and node.args and called(node) in ("getattr", "type", "isinstance", "vars"):
            found += [
                f"line {node.lineno}: {called(node)} of one" for n in node.args[:1] if _last(n) in IMPLEMENTATIONS
            ]
    return found


def ids(text: str) -> list[str]:
    """The ids that a test asserts, or passes on to a machine, are those of its decorator."""
    found = []
    for test in suite_functions(text):
        declared, used = _declared(test), _used(test)
        found += [f"{test.name}: {name} is asserted and not declared" for name in sorted(used - declared)]
        found += [f"{test.name}: {name} is declared and never asserted" for name in sorted(declared - used)]
    return found


def _declared(test: ast.FunctionDef) -> set[str]:
    marks = [mark for mark in test.decorator_list if isinstance(mark, ast.Call) and called(mark) == "clause"]
    return {i.value for mark in marks for i in mark.args if isinstance(i, ast.Constant)}


def _used(test: ast.FunctionDef) -> set[str]:
    parts = [part for statement in test.body[1:] for part in ast.walk(statement)]
    texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {text for text in texts if ID.fullmatch(text)}


def twins(text: str) -> list[str]:
    """What a test refuses has its positive twin in the same test."""
    found = []
    for test in suite_functions(text):
        put_right = {_named(call) for call in calls(test) if called(call) == "twin"}
        for call in calls(test):
            if called(call) == "refused" and not _twinned(call) and _named(call) not in put_right:
                found.append(f"{test.name}: {_named(call)} is refused without a twin")
            if called(call) in ("refused", "twin") and _named(call) not in _declared(test):
                found.append(f"{test.name}: {called(call)} names {_named(call)}, which is not declared")
    return found


def _named(call: ast.Call) -> str:
    named = call.args[1] if len(call.args) > 1 else None
    return str(named.value) if isinstance(named, ast.Constant) else "no literal id"


def _twinned(call: ast.Call) -> bool:
    return any(
        word.arg == "twinned" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )
