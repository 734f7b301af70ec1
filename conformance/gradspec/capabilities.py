"""What strategies may draw for one implementation: what it declares and what qualified."""

from __future__ import annotations

from dataclasses import dataclass

from gradspec.adapter import Adapter, Unsupported
from gradspec.programs.operations import OPERATIONS


@dataclass(frozen=True)
class Capabilities:
    """What an implementation offers, as strategies see it: never its name or version.

    Attributes:
        features, keywords: as declared.
        operations: declared and qualified names of the operation table, in the order of the table.
        declared: all declared names, qualified or not.
        dtypes: declared element types. max_rank: the highest rank. devices: declared devices.
    """

    features: frozenset[str]
    keywords: frozenset[str]
    operations: tuple[str, ...]
    dtypes: tuple[str, ...]
    max_rank: int
    devices: tuple[str, ...] = ("cpu",)
    declared: tuple[str, ...] = ()

    @classmethod
    def of(cls, adapter: Adapter, without: frozenset[str] = frozenset()) -> Capabilities:
        """What `adapter` declares, less the operations `without`."""
        declared = tuple(name for name in OPERATIONS if name in adapter.operations)
        return cls(
            features=adapter.features,
            keywords=adapter.keywords,
            operations=tuple(name for name in declared if name not in without),
            dtypes=tuple(adapter.dtypes),
            max_rank=adapter.max_rank,
            devices=tuple(adapter.devices),
            declared=declared,
        )

    def require(self, *operations: str) -> None:
        """Raise Unsupported where one of `operations` may not be drawn."""
        for name in operations:
            if name not in self.operations:
                raise Unsupported(f"operation {name}")

    @property
    def real_dtype(self) -> str:
        """The widest real floating dtype on offer."""
        for name in ("float64", "float32", "float16"):
            if name in self.dtypes:
                return name
        raise Unsupported("a real floating dtype")
