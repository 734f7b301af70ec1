"""The part of gradspec that another interpreter needs to serve an implementation, as a folder of its own.

Nothing of this process's environment goes with it: what the other interpreter imports besides comes from its own.
"""

from __future__ import annotations

import functools
import os
import site
import sysconfig
import tempfile
from pathlib import Path

from gradspec import __version__

MODULES = (
    "adapter",
    "behaviour",
    "declared",
    "descriptors",
    "errors",
    "journal",
    "messages",
    "results",
    "serve",
    "wire",
    "programs.operations",
    "programs.program",
)
"""What the server imports; the adapters go with it too."""

START = "_gradspec_start.py"
"""The script that the other interpreter runs: `START ADAPTER TIMEOUT MEMORY OWNER`."""

_HERE = Path(__file__).resolve().parent
_PACKAGE = """\
from pkgutil import extend_path

__version__ = {version!r}
__path__ = extend_path(__path__, __name__)  # the rest, such as the faults, where a whole gradspec is installed
"""
_SCRIPT = """\
# Understood by every Python, so that one that is too old can say so.
import json
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))


def main():
    argument, timeout, memory, owner = sys.argv[1:]
    sys.argv = sys.argv[:1]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if sys.version_info < (3, 11):
        version = ".".join(map(str, sys.version_info[:3]))
        text = "Python " + version + " is too old to serve an implementation: name one of 3.11 or newer"
        refused = {"status": 3, "text": text, "path": None, "line": None}
        print(json.dumps({"message": 1, "gradspec": %r, "python": version, "refused": refused}))
        return 3
    from gradspec.errors import GradspecError
    from gradspec.serve import serve

    try:
        serve(argument, timeout=float(timeout), memory=int(memory), owner=int(owner))
    except GradspecError as error:
        return error.status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
"""


_parent: list[Path] = []


def place(folder: Path) -> None:
    """Make the bundle of this process in a folder that somebody else removes: a worker may end without its word."""
    _parent[:] = [folder]


def remove() -> None:
    """Remove the bundle of this process, if it has one: for a process that ends without its atexit functions."""
    if _bundle.cache_info().currsize:
        _bundle().cleanup()
        _bundle.cache_clear()


@functools.cache
def _bundle() -> tempfile.TemporaryDirectory[str]:
    """The folder: made once in a process, removed at its end."""
    made = tempfile.TemporaryDirectory(
        prefix="gradspec-", dir=_parent[0] if _parent else None, ignore_cleanup_errors=True
    )
    package = Path(made.name) / "gradspec"
    for name in MODULES:
        _copy(Path(*name.split(".")).with_suffix(".py"), package)
    for file in sorted((_HERE / "adapters").glob("*.py")):
        _copy(file.relative_to(_HERE), package)
    for folder in (package, package / "programs"):
        (folder / "__init__.py").write_text(_PACKAGE.format(version=__version__), encoding="utf-8")
    (Path(made.name) / START).write_text(_SCRIPT % __version__, encoding="utf-8")
    return made


def _copy(file: Path, package: Path) -> None:
    target = package / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((_HERE / file).read_bytes())


def command(python: str, argument: str, *, timeout: float, memory: int, owner: int) -> list[str]:
    """The command that serves an adapter from an interpreter; see `serve.serve`."""
    script = Path(_bundle().name) / START
    return [python, str(script), argument, repr(timeout), str(memory), str(owner)]


def environment() -> dict[str, str]:
    """The environment variables for another interpreter: what would show it the modules of this one is left out."""
    paths = sysconfig.get_paths()
    ours = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], str(_HERE.parent)}
    ours.update(site.getsitepackages())
    ours.add(site.getusersitepackages())
    found = os.environ.copy()
    found.pop("PYTHONHOME", None)
    given = found.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in given if path and not any(Path(path).is_relative_to(folder) for folder in ours)]
    if kept:
        found["PYTHONPATH"] = os.pathsep.join(kept)
    return found
