"""What is declared can be asked for: the acts of features, the keywords of acts, devices and version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradspec.adapter import Unsupported
from gradspec.selftest.checks import (
    MISCALLED,
    Lacking,
    Remark,
    Sentences,
    Subject,
    Wrong,
    check,
    refusal,
    unexpected,
)
from gradspec.session import Handle

# --- what is declared can be asked for ----------------------------------------------------------------------------


def _zero(subject: Subject) -> None:
    subject.apply_("zero", subject.leaf(grad=False))


def _assign(subject: Subject) -> None:
    x = subject.leaf()
    subject.set_grad(x, subject.leaf(grad=False))
    subject.set_grad(x, None)


def _keep(subject: Subject) -> None:
    y = subject.step(subject.leaf())
    subject.retain_grad(y)
    subject.retains_grad(y)


def _infer(subject: Subject) -> None:
    with subject.inference_mode():
        pass


def _slot_dtype(subject: Subject) -> None:
    x = subject.leaf()
    subject.grad_dtype(x)
    subject.set_grad_dtype(x, "none")


def _returned(subject: Subject) -> None:
    x = subject.leaf()
    subject.gradients([subject.step(x)], [x])


def _seeded(subject: Subject) -> None:
    subject.backward(subject.step(subject.leaf()), subject.leaf(grad=False))


_ACTS: Mapping[str, Callable[[Subject], Any]] = {
    "seed": _seeded,
    "requires_grad": lambda subject: subject.set_requires_grad(subject.leaf(), True),
    "grad.assign": _assign,
    "retain_grad": _keep,
    "backward.many": lambda subject: subject.backward_many([subject.step(subject.leaf())]),
    "grad": _returned,
    "inplace": _zero,
    "grad_dtype": _slot_dtype,
    "gradient_edges": lambda subject: subject.gradient_edge(subject.step(subject.leaf())),
    "inference_mode": _infer,
}
"""For features that no check above asks for: their acts in their plainest use."""


def _acts_of(feature: str, act: Callable[[Subject], Any]) -> None:
    @check(f"the acts of {feature} can be asked for", feature)
    def asked(subject: Subject) -> Sentences:
        error = refusal(lambda: act(subject))
        if error is not None and (error.type in MISCALLED or error.type == "nonsense"):
            yield unexpected(error)


for _feature, _act in _ACTS.items():
    _acts_of(_feature, _act)


def _two(subject: Subject) -> tuple[Handle, Handle]:
    x = subject.leaf()
    return x, subject.step(x)


def _backward(subject: Subject, keyword: str, given: Any) -> None:
    x, y = _two(subject)
    given = [x] if keyword == "inputs" else given
    subject.backward(y, **{keyword: given})


def _backward_many(subject: Subject, keyword: str, given: Any) -> None:
    x, y = _two(subject)
    given = {"inputs": [x], "grad_variables": [subject.leaf(grad=False)]}.get(keyword, given)
    subject.backward_many([y], **{keyword: given})


def _gradients(subject: Subject, keyword: str, given: Any) -> None:
    x, y = _two(subject)
    subject.gradients([y], [x], **{keyword: given})


_CALLS: Mapping[str, tuple[Callable[[Subject, str, Any], None], str, tuple[str, ...]]] = {
    "backward": (_backward, "scalar", ("retain_graph", "create_graph", "inputs")),
    "backward_many": (_backward_many, "backward.many", ("retain_graph", "create_graph", "inputs", "grad_variables")),
    "gradients": (_gradients, "grad", ("retain_graph", "create_graph", "allow_unused", "materialize", "only_inputs")),
}


def _takes(act: str, keyword: str, call: Callable[[Subject, str, Any], None], feature: str) -> None:
    # the keyword may have the name of a feature: the set that the adapter must change is `keywords`
    @check(f"the keyword {act}.{keyword} is taken", feature)
    def taken(subject: Subject) -> Sentences:
        name = f"{act}.{keyword}"
        if name not in subject.keywords:
            raise Lacking(f"keyword {name}")
        what = f"take {keyword!r} in `{act}` of the adapter, or leave {name!r} out of `keywords`"
        try:
            error = refusal(lambda: call(subject, keyword, keyword != "only_inputs"))
        except Unsupported as lack:
            raise Wrong(f"the keyword {name} is declared, and {act} says: {lack}: {what}") from None
        if error is not None and error.act == act and error.type in MISCALLED:
            yield Wrong(f"the keyword {name} is declared, and with it {act} raised {error.type}: {error.text}: {what}")


for _name, (_call, _needed, _keywords) in _CALLS.items():
    for _keyword in _keywords:
        _takes(_name, _keyword, _call, _needed)


_MEANS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "graph.retain": (("backward.retain_graph", "backward_many.retain_graph", "gradients.retain_graph"), "keywords"),
    "higher": (("backward.create_graph", "backward_many.create_graph", "gradients.create_graph"), "keywords"),
    "backward.inputs": (("backward.inputs", "backward_many.inputs"), "keywords"),
    "complex": (("complex128", "complex64"), "dtypes"),
    "multi_output": (("split", "unbind"), "operations"),
}
"""For a feature the names of which at least one must be declared for it to mean anything, and where they stand."""


@check("features are declared with what they need")
def _consistent(subject: Subject) -> Sentences:
    for feature, (names, where) in _MEANS.items():
        if feature in subject.features and not set(names) & set(getattr(subject, where)):
            yield Remark(
                f"the feature {feature} is declared and none of {', '.join(names)}, so that little can be asked of it:"
                f" name what the implementation takes in `{where}`"
            )
    if subject.features and "array" not in subject.features and subject.max_rank:
        yield Remark("max_rank is above 0 and the feature array is not declared: declare it, or set max_rank to 0")


@check("a device is named")
def _devices(subject: Subject) -> Sentences:
    if not subject.devices:
        yield Wrong("devices is empty: name where tensors live in `devices`, such as ('cpu',)")


@check("the version is known")
def _version(subject: Subject) -> Sentences:
    if subject.adapter.distribution and not subject.adapter.version():
        yield Remark(
            f"distribution is {subject.adapter.distribution!r} and version() is empty, so that no record tells which"
            " version was checked: return it in `version` of the adapter, or correct the name"
        )
