"""Behaviours: what a contract calls back (a hook, a forward, a constructor), as data.

A behaviour has parameters, a straight list of acts on them and a result. Every act is a method of the contract, so
there is no second vocabulary to specify, send, render or interpret. `@behaviour` traces an ordinary small function
once to make one; branching or iterating on a value is refused, since a straight list cannot express it.

    @behaviour
    def double(c, g):
        c.record("seen", g)
        return c.apply("mul", g, 2.0)

This module imports the standard library only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from gradspec.adapter import Adapter


class NotStraight(TypeError):
    """A traced function branched or iterated on a value, which a straight list of acts cannot express."""


@dataclass(frozen=True)
class Ref:
    """A parameter of a behaviour, the result of one of its acts, or a handle outside, by name."""

    name: str

    def __bool__(self) -> NoReturn:
        raise NotStraight(f"a behaviour cannot branch on {self.name}: its value is not known when it is traced")

    def __iter__(self) -> NoReturn:
        raise NotStraight(f"a behaviour cannot iterate over {self.name}: name the results of an act by `results=`")


class Traced(Ref):
    """A `Ref` while its function is traced: comparing it is branching too."""

    def _refuse(self, _other: object) -> NoReturn:
        raise NotStraight(f"a behaviour cannot compare {self.name}: its value is not known when it is traced")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = Ref.__hash__


@dataclass(frozen=True)
class Late:
    """A handle outside that is looked up when the behaviour runs, such as the hook's own handle."""

    name: str


@dataclass(frozen=True)
class Act:
    """One call of the contract: method, arguments, keywords and the name or names of its result."""

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    result: str | tuple[str, ...] | None = None


@dataclass(frozen=True)
class Behaviour:
    """A callable as data. Equal behaviours do the same; `name` is what a script calls it."""

    name: str
    parameters: tuple[str, ...]
    acts: tuple[Act, ...] = ()
    result: Any = None

    def mapped(self, change: Callable[[Any], Any]) -> Behaviour:
        """The behaviour with `change` made to all arguments (given as a tuple), keywords and the result."""
        acts = tuple(
            Act(a.method, change(a.arguments), tuple((k, change(v)) for k, v in a.keywords), a.result)
            for a in self.acts
        )
        return Behaviour(self.name, self.parameters, acts, change(self.result))


class Tracer:
    """Stands for the contract while a function is traced: notes each call and returns a `Ref` to its result."""

    def __init__(self) -> None:
        self.acts: list[Act] = []

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("__"):
            raise AttributeError(method)

        def note(*arguments: Any, results: int = 1, **keywords: Any) -> Any:
            names = tuple(f"v{len(self.acts)}_{n}" if results > 1 else f"v{len(self.acts)}" for n in range(results))
            given = tuple((key, _tuples(value)) for key, value in sorted(keywords.items()))
            self.acts.append(Act(method, _tuples(arguments), given, names if results > 1 else names[0]))
            refs = tuple(Traced(name) for name in names)
            return refs if results > 1 else refs[0]

        return note


def behaviour(function: Callable[..., Any]) -> Behaviour:
    """Trace `function(c, *parameters)` once; `c` takes contract acts. NotStraight where it branches on a value."""
    if not function.__name__.isidentifier():
        raise NotStraight("a behaviour needs a name that a script can use: trace a def, not a lambda")
    parameters = tuple(inspect.signature(function).parameters)[1:]
    tracer = Tracer()
    result = function(tracer, *(Traced(name) for name in parameters))
    return Behaviour(function.__name__, parameters, tuple(tracer.acts), _tuples(result))


def _tuples(value: Any) -> Any:
    if isinstance(value, Traced):
        return Ref(value.name)
    return tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value


class BehaviourCallable:
    """A behaviour as a native callable: with a real signature, copied by reference, pickled as data.

    It never holds an implementation's module in a copy: `deepcopy` returns the callable itself, pickling names
    the adapter class and carries the behaviour.
    """

    def __init__(self, adapter: Adapter, data: Behaviour) -> None:
        self.adapter, self.data = adapter, data
        self.__name__ = data.name
        # implementations look at signatures to decide how to call
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in data.parameters]
        )

    def __call__(self, *arguments: Any) -> Any:
        """Interpret the behaviour on native arguments."""
        return self.adapter.interpret(self.data, arguments)

    def __deepcopy__(self, _memo: dict[int, Any]) -> BehaviourCallable:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _revive, (type(self.adapter), self.data)


def _revive(adapter: Callable[[], Adapter], data: Behaviour) -> BehaviourCallable:
    return BehaviourCallable(adapter(), data)
