"""What a check of an adapter is, and how it is run.

The clauses judge an implementation; these judge the translation in front of it: values that go in come out, flags and
slots are read from the right place, refusals and warnings are named, what is declared can be asked for. Each check is a
few acts on small fixed data, run only where what it needs is declared. What it says is one sentence: what was expected,
what came back, which method of the adapter to look at and what to do. Where the implementation may be at fault as well,
the sentence says so; what only the implementation can get wrong is left to the clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gradspec.adapter import ActInfo, Adapter, Gone, Unsupported
from gradspec.capabilities import Capabilities
from gradspec.engine import isolated
from gradspec.programs.operations import OPERATIONS, Shape
from gradspec.report.record import Finding
from gradspec.session import Handle, NativeError, Session
from gradspec.wire import bounded

SLIPS = frozenset({"AttributeError", "NameError", "UnboundLocalError", "ZeroDivisionError", "RecursionError"})
"""Types that no implementation refuses with on purpose."""

MISCALLED = SLIPS | {"TypeError", "NotImplementedError"}
"""Types by which a call that does not fit its callee shows."""


class Said(Exception):
    """A sentence of a check; raised where nothing more can be checked, yielded where more can."""

    result = "wrong"


class Wrong(Said):
    """The adapter (or the implementation behind it) misleads the suite."""


class Remark(Said):
    """Worth a look, but may be as it should be."""

    result = "remark"


class Lacking(Exception):
    """The check needs something that is not declared, or nothing that works is left to check with."""


Sentences = Iterator[Said]


@dataclass(frozen=True)
class Check:
    """One check: its name, what must be declared (features, keywords, "rank:N", "dtype:NAME"), and what it does."""

    name: str
    needs: tuple[str, ...]
    function: Callable[[Subject], Sentences]


CHECKS: dict[str, Check] = {}
"""Every check by its name, in the order in which they are run."""


def check(name: str, *needs: str) -> Callable[[Callable[[Subject], Sentences]], Callable[[Subject], Sentences]]:
    """Enter the decorated function as a check."""

    def enter(function: Callable[[Subject], Sentences]) -> Callable[[Subject], Sentences]:
        assert name not in CHECKS, f"there are two checks called {name}"
        CHECKS[name] = Check(name, needs, function)
        return function

    return enter


class Subject(Session):
    """A session that remembers which act was asked for last, and makes the small data of the checks.

    Args:
        adapter: the adapter.
        offered: what it declares, less the operations that do not work by themselves.
        tell: told of each act before it is performed.
    """

    def __init__(
        self, adapter: Adapter, offered: Capabilities | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(adapter)
        self.offered = offered or Capabilities.of(adapter)
        self.asked, self._tell = "", tell

    def perform(self, info: ActInfo, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """One act; its name is remembered."""
        self.asked = info.name
        if self._tell is not None:
            self._tell(info.name)
        return super().perform(info, arguments, keywords)

    @property
    def real(self) -> str:
        """The widest real element type that is declared."""
        try:
            return self.offered.real_dtype
        except Unsupported as error:
            raise Lacking(str(error)) from None

    def leaf(self, shape: Shape = (), *, grad: bool = True, dtype: str = "", number: Any = 2.0) -> Handle:
        """A leaf with one number in every place."""
        data: Any = number
        for size in reversed(shape):
            data = [data] * size
        handle: Handle = self.tensor(data, shape=shape, dtype=dtype or self.real, requires_grad=grad)
        return handle

    def step(self, x: Handle, *, saves: bool = False, dtype: str = "") -> Handle:
        """The result of one elementwise operation on `x`, of one that must save values where `saves`."""
        for name in _PREFERRED:
            row = OPERATIONS[name]
            fits = name in self.offered.operations and (row.saves or not saves)
            if fits and (row.complex or not dtype.startswith("complex")):
                others = [self.leaf(self.shape(x), dtype=dtype)] if row.arity == 2 else []
                result: Handle = self.apply(name, x, *others, **({"exponent": 2} if name == "pow" else {}))
                return result
        raise Lacking("an elementwise operation that works by itself")


_PREFERRED = (
    "mul",
    "square",
    "exp",
    "sin",
    "tanh",
    "sigmoid",
    "pow",
    "div",
    "sqrt",
    "log",
    "add",
    "sub",
    "neg",
    "clone",
)


# --- running ------------------------------------------------------------------------------------------------------


def run_check(subject: Subject, one: Check) -> list[Finding]:
    """What one check says: one finding for each sentence, or a single one where it says nothing.

    Raises:
        Gone: the process that the implementation lives in ended.
    """
    lack = next((need for need in one.needs if not _declared(subject, need)), None)
    if lack is not None:
        return [Finding(one.name, "not declared", f"needs {lack}")]
    said: list[Said] = []
    with isolated():
        try:
            subject.asked = "start"
            subject.start()
            for sentence in one.function(subject):
                said.append(sentence)  # noqa: PERF402 - what was said before an error is kept
        except Lacking as lacking:
            return [Finding(one.name, "not declared", f"needs {lacking}")]
        except Said as last:
            said.append(last)
        except Unsupported as error:
            said.append(_not_offered(subject, one, str(error)))
        except NativeError as error:
            said.append(unexpected(error))
        except (Gone, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - a result that no check foresaw
            text = f"`{subject.asked}` returned something that cannot be used ({type(error).__name__}: {error})"
            said.append(Wrong(f"{text}: see in gradspec.adapter what it returns"))
    found = [Finding(one.name, sentence.result, bounded(str(sentence))) for sentence in said]
    return found or [Finding(one.name, "ok")]


def _declared(subject: Subject, need: str) -> bool:
    kind, colon, name = need.partition(":")
    if kind == "rank":
        return int(name) <= subject.max_rank
    if colon:
        return name in subject.dtypes
    return need in subject.features | subject.keywords


def _not_offered(subject: Subject, one: Check, text: str) -> Wrong:
    act = subject.asked
    declared = next((need for need in one.needs if need in subject.features), "")
    if declared:
        why = f"the feature {declared} is declared, and {act} says: {text}"
        return Wrong(f"{why}: implement `{act}` in the adapter, or leave {declared!r} out of `features`")
    return Wrong(f"every adapter needs {act}, which says: {text}: implement `{act}` in the adapter")


def unexpected(error: NativeError) -> Wrong:
    """The sentence for an act that must succeed and raised."""
    if error.type == "nonsense":
        return Wrong(f"{error.text}: look at `{error.act}` of the adapter: it must return what gradspec.adapter says")
    came = f"{error.act} raised {error.type}: {error.text}, where it must succeed"
    if error.type in MISCALLED:
        return Wrong(f"{came}: look at `{error.act}` of the adapter first, then at the implementation")
    return Wrong(f"{came}: either the adapter's `{error.act}` asks wrongly, or the implementation cannot do it")


def refusal(offence: Callable[[], Any]) -> NativeError | None:
    """What an act raises, None where it succeeds."""
    try:
        offence()
    except NativeError as error:
        return error
    return None
