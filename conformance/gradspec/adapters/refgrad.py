"""refgrad, the reference implementation."""

from __future__ import annotations

from types import ModuleType

import refgrad

from gradspec.adapter import Adapter
from gradspec.adapters.torch_like import TorchLike

_KINDS = {
    "GraphFreedError": "graph_freed",
    "NotScalarError": "not_scalar",
    "NotRealError": "not_real",
    "NothingRequiresGradError": "nothing_requires_grad",
    "BadSeedShapeError": "bad_seed_shape",
    "BadSeedDtypeError": "bad_seed_dtype",
    "BadTypeError": "bad_type",
    "WrongSeedCountError": "wrong_seed_count",
    "EmptyInputsError": "empty_inputs",
    "BadGradShapeError": "bad_grad_shape",
    "BadGradDtypeError": "bad_grad_dtype",
    "SelfGradError": "self_grad",
    "NotRequiringGradError": "not_requiring_grad",
    "ModifiedInPlaceError": "modified_in_place",
    "NotLeafError": "not_leaf",
    "UnreachableInputError": "unreachable_input",
    "BadShapeError": "bad_shape",
    "BadArgumentError": "bad_argument",
}


class Refgrad(TorchLike):
    """refgrad, or a copy of it under another name (a fault).

    Args:
        namespace: the module; the installed refgrad by default.
    """

    name = "refgrad"
    distribution = "gradspec"
    features = TorchLike.features | {"grad_dtype", "gradient_edges"}

    def __init__(self, namespace: ModuleType = refgrad) -> None:
        super().__init__(namespace)

    def version(self) -> str:
        return str(self.ns.__version__)

    def error_kinds(self, error: BaseException) -> frozenset[str]:
        # a class for each kind: nothing has to be guessed from type or text
        return Adapter.error_kinds(self, error) | {
            _KINDS[base.__name__] for base in type(error).__mro__ if base.__name__ in _KINDS
        }

    def warning_kinds(self, warning: Warning) -> frozenset[str]:
        kinds = {"NonLeafGradWarning": "non_leaf_grad", "CreateGraphCycleWarning": "create_graph_cycle"}
        return frozenset(kinds[base.__name__] for base in type(warning).__mro__ if base.__name__ in kinds)
