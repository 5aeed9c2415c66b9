"""How the change of a view's rows is learnt: from what its paths gather, or from first rows that are noted or known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class ChangeReader(Protocol):
    """The rows of a view in SQL that went and came since `forget`; made when somebody begins to want them."""

    def rows(self) -> tuple[pa.Table, np.ndarray]:
        """The rows with their weights; those of equal rows may cancel. DataError if one cannot be computed."""
        ...

    def read(self) -> Any:
        """The rows as an `OutputChange`, netted. To be called before any other epoch is applied."""
        ...

    def forget(self) -> None:
        """Begin anew: an epoch has been told, or undone."""
        ...

    def commit(self) -> None:
        """The epoch that has been read stays."""
        ...

    def close(self) -> None:
        """Nobody wants the changes any more."""
        ...
