"""torch, eager mode."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from gradspec.adapter import OPTIONAL
from gradspec.adapters.torch_like import TorchLike

_RUNTIME_ERRORS: Mapping[str, str] = {
    r"through the graph a second time": "graph_freed",
    r"implicitly created only for scalar": "not_scalar",
    r"implicitly created only for real": "not_real",
    r"does not require grad and does not have a grad_fn": "nothing_requires_grad",
    r"Mismatch in shape": "bad_seed_shape",
    r"For complex Tensors": "bad_seed_dtype",
    r"got \d+ tensors and \d+ gradients": "wrong_seed_count",
    r"cannot be empty": "empty_inputs",
    r"assigned grad has data of a different size": "bad_grad_shape",
    r"assigned grad has data of a different type|to a tensor with grad_dtype|different dtype": "bad_grad_dtype",
    r"can't assign Variable as its own grad": "self_grad",
    r"can't retain_grad": "not_requiring_grad",
    r"modified by an inplace operation": "modified_in_place",
    r"non-leaf|on leaf tensors": "not_leaf",
}


class Torch(TorchLike):
    """torch as installed."""

    name = "torch"
    distribution = "torch"
    features = TorchLike.features | {"grad_dtype", "gradient_edges", "inference_mode"}
    keywords = OPTIONAL

    def __init__(self) -> None:
        super().__init__(torch)

    def start(self) -> None:
        super().start()
        torch.set_warn_always(True)  # torch warns once per process otherwise

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        if isinstance(error, RuntimeError):
            # nearly every error of torch is a RuntimeError: only its text tells which
            told = {kind for pattern, kind in _RUNTIME_ERRORS.items() if re.search(pattern, str(error))}
            if told:
                return frozenset(told)
        if isinstance(error, IndexError):
            return frozenset({"bad_shape", "bad_argument"})
        return super().error_kinds(error)

    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        text = str(warning)
        told = {
            "non_leaf_grad": "not a leaf Tensor" in text,
            "create_graph_cycle": "reference cycle" in text,
            "deprecated": isinstance(warning, FutureWarning | DeprecationWarning),
        }
        return frozenset(kind for kind, holds in told.items() if holds)
