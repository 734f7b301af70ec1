"""Refusals and warnings are named: each kind is provoked once on purpose, and what is none of them is named as none."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from gradspec.errors import ERROR_KINDS
from gradspec.selftest.checks import SLIPS, Lacking, Remark, Sentences, Subject, Wrong, check, refusal
from gradspec.session import Handle, NativeError

# --- refusals and warnings ----------------------------------------------------------------------------------------

Offence = Callable[[], Any]
UNASKED = frozenset({"modified_in_place", "unreachable_input", "bad_shape"})
"""Kinds that no clause asks for yet: what is not named there misleads nobody."""


def _kind(kind: str, *needs: str) -> Callable[[Callable[[Subject], Offence]], Callable[[Subject], Offence]]:
    """Enter a provocation: a function that makes everything ready and returns the one act that must be refused."""

    def enter(prepare: Callable[[Subject], Offence]) -> Callable[[Subject], Offence]:
        @check(f"the refusal {kind} is named", *needs)
        def named(subject: Subject) -> Sentences:
            try:
                offence = prepare(subject)
            except NativeError as other:  # other checks and the clauses tell of it
                raise Remark(f"{kind} could not be provoked: {other.act} raised {other.type}: {other.text}") from None
            error = refusal(offence)
            if error is not None:  # an implementation that does not refuse is left to the clauses
                yield from _named(kind, error)

        return prepare

    return enter


def _named(kind: str, error: NativeError) -> Sentences:
    strange = sorted(error.kinds - {*ERROR_KINDS, "behaviour_error"})
    for name in strange:
        near = difflib.get_close_matches(name, ERROR_KINDS, n=1)
        meant = f", did you mean {near[0]}?" if near else "; they stand in gradspec.errors"
        yield Wrong(f"error_kinds names {name!r} for {error.type}: {error.text}, which is no kind{meant}")
    if kind in error.kinds or strange:
        return
    came = f"{error.act} was refused with {error.type}: {error.text}, for which error_kinds names"
    if error.kinds:
        yield Remark(
            f"{came} {', '.join(sorted(error.kinds))} where {kind} was provoked: if that is how the implementation says"
            f" {kind}, add it; else the implementation refuses for another reason, which the clauses tell"
        )
    elif error.type in SLIPS or kind in UNASKED:
        yield Remark(f"{came} no kind: if that is how the implementation says {kind}, let `error_kinds` name it")
    else:
        yield Wrong(
            f"{came} no kind: let `error_kinds` of the adapter return frozenset({{{kind!r}}}) for it, by its type, or"
            " by a piece of its text where the type does not tell; if the implementation only stumbled there, it has to"
            " refuse on purpose"
        )


@_kind("graph_freed", "graph.retain")
def _freed(subject: Subject) -> Offence:
    y = subject.step(subject.leaf(), saves=True)
    subject.backward(y)
    return lambda: subject.backward(y)


@_kind("not_scalar", "array", "rank:1")
def _not_scalar(subject: Subject) -> Offence:
    y = subject.step(subject.leaf((2,)))
    return lambda: subject.backward(y)


@_kind("not_real", "complex")
def _not_real(subject: Subject) -> Offence:
    y = _complex_root(subject)
    return lambda: subject.backward(y)


def _complex_root(subject: Subject) -> Handle:
    dtype = next((name for name in ("complex128", "complex64") if name in subject.dtypes), None)
    if dtype is None:
        raise Lacking("a complex dtype")
    return subject.step(subject.leaf(dtype=dtype, number=1.0 + 2.0j), dtype=dtype)


@_kind("nothing_requires_grad", "frozen")
def _untracked(subject: Subject) -> Offence:
    x = subject.leaf(grad=False)
    return lambda: subject.backward(x)


@_kind("bad_seed_shape", "seed", "array", "rank:1")
def _seed_shape(subject: Subject) -> Offence:
    y, seed = subject.step(subject.leaf((2,))), subject.leaf((3,), grad=False)
    return lambda: subject.backward(y, seed)


@_kind("bad_seed_dtype", "seed", "complex")
def _seed_dtype(subject: Subject) -> Offence:
    y, seed = _complex_root(subject), subject.leaf(grad=False)
    return lambda: subject.backward(y, seed)


@_kind("bad_type", "seed")
def _seed_type(subject: Subject) -> Offence:
    y = subject.step(subject.leaf())
    return lambda: subject.backward(y, "no tensor")


@_kind("wrong_seed_count", "backward.many", "seed")
def _seed_count(subject: Subject) -> Offence:
    roots, seed = [subject.step(subject.leaf()) for _ in range(2)], subject.leaf(grad=False)
    return lambda: subject.backward_many(roots, [seed])


@_kind("empty_inputs", "backward.inputs")
def _no_inputs(subject: Subject) -> Offence:
    if "backward.inputs" not in subject.keywords:
        raise Lacking("keyword backward.inputs")
    y = subject.step(subject.leaf())
    return lambda: subject.backward(y, inputs=[])


@_kind("bad_grad_shape", "grad.assign", "rank:1")
def _slot_shape(subject: Subject) -> Offence:
    x, gradient = subject.leaf((2,)), subject.leaf((3,), grad=False)
    return lambda: subject.set_grad(x, gradient)


@_kind("bad_grad_dtype", "grad.assign", "dtype:float64", "dtype:float32")
def _slot_type(subject: Subject) -> Offence:
    x, gradient = subject.leaf(dtype="float64"), subject.leaf(dtype="float32", grad=False)
    return lambda: subject.set_grad(x, gradient)


@_kind("self_grad", "grad.assign")
def _own_slot(subject: Subject) -> Offence:
    x = subject.leaf()
    return lambda: subject.set_grad(x, x)


@_kind("not_requiring_grad", "retain_grad", "frozen")
def _keeping_nothing(subject: Subject) -> Offence:
    x = subject.leaf(grad=False)
    return lambda: subject.retain_grad(x)


@_kind("modified_in_place", "inplace", "no_grad")
def _written(subject: Subject) -> Offence:
    x = subject.leaf()
    y = subject.step(x, saves=True)
    with subject.no_grad():
        subject.apply_("zero", x)
    return lambda: subject.backward(y)


@_kind("not_leaf", "requires_grad")
def _inner_flag(subject: Subject) -> Offence:
    y = subject.step(subject.leaf())
    return lambda: subject.set_requires_grad(y, False)


@_kind("unreachable_input", "grad")
def _unreached(subject: Subject) -> Offence:
    y, other = subject.step(subject.leaf()), subject.leaf()
    return lambda: subject.gradients([y], [other])


@_kind("bad_argument", "backward.many", "seed", "backward_many.grad_variables")
def _both_names(subject: Subject) -> Offence:
    y, seed = subject.step(subject.leaf()), subject.leaf(grad=False)
    return lambda: subject.backward_many([y], [seed], grad_variables=[seed])


@_kind("bad_shape", "array", "rank:1")
def _misshaped(subject: Subject) -> Offence:
    if "reshape" not in subject.offered.operations:
        raise Lacking("operation reshape")
    x = subject.leaf((3,))
    return lambda: subject.apply("reshape", x, shape=(2,))


_UNRELATED: Sequence[Exception] = (
    AttributeError("'NoneType' object has no attribute 'elements'"),
    NameError("name 'elements' is not defined"),
    ZeroDivisionError("division by zero"),
)


@check("error_kinds says nothing of an error that is no refusal")
def _unrelated(subject: Subject) -> Sentences:
    for error in _UNRELATED:
        seen = subject._reduced("backward", error)  # noqa: SLF001 - what a test would see of it
        if "cannot be read" in seen.text:
            raise Wrong(
                f"error_kinds itself raised when it was asked about {type(error).__name__}: it must return a frozenset"
                " of names for any exception"
            )
        if 2 * len(seen.kinds) >= len(ERROR_KINDS):
            raise Wrong(
                f"error_kinds names {len(seen.kinds)} kinds for {type(error).__name__}: {error}, so that a slip of the"
                " adapter would pass for any refusal: name kinds in `error_kinds` for the exceptions by which the"
                " implementation refuses, and return an empty frozenset for all others"
            )
    yield from ()


def _warned(kind: str, act: str, *needs: str) -> Callable[[Callable[[Subject], Offence]], None]:
    def enter(prepare: Callable[[Subject], Offence]) -> None:
        @check(f"the warning {kind} is named", "warnings", *needs)
        def named(subject: Subject) -> Sentences:
            offence = prepare(subject)
            with subject.warnings() as caught:
                refusal(offence)
            texts = [text for text in caught.texts if not text.startswith(("Deprecation", "Future", "Pending"))]
            if texts and kind not in caught.kinds:
                yield Wrong(
                    f"{act} warned ({texts[0]}), for which warning_kinds names"
                    f" {', '.join(sorted(caught.kinds)) or 'no kind'}: if that warning is {kind}, name it in"
                    " `warning_kinds` of the adapter; else leave 'warnings' out of `features`"
                )

    return enter


@_warned("non_leaf_grad", "reading .grad of a non-leaf")
def _read_inner(subject: Subject) -> Offence:
    y = subject.step(subject.leaf())
    return lambda: subject.grad(y)


@_warned("create_graph_cycle", "backward(create_graph=True)", "higher", "backward.create_graph")
def _cycle(subject: Subject) -> Offence:
    y = subject.step(subject.leaf())
    return lambda: subject.backward(y, create_graph=True)


@check("warning_kinds says nothing of a warning that is none of these", "warnings")
def _unrelated_warning(subject: Subject) -> Sentences:
    found = subject.adapter.warning_kinds(ResourceWarning("unclosed file"))
    if found:
        yield Wrong(
            f"warning_kinds names {', '.join(sorted(found))} for ResourceWarning: unclosed file: name kinds for the"
            " warnings that they stand for, and return an empty frozenset for all others"
        )
