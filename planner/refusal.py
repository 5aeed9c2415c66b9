"""What the planner answers when it has no plan: the parts of an error message, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """`what` is refused, `why`, the `witness` in the user's own names, and a `suggestion` if one helps.

    `variables` and `atoms` are those of the witness, so that the SQL face can point at them.
    """

    what: str
    why: str
    witness: str
    suggestion: str | None
    variables: tuple[str, ...]
    atoms: tuple[str, ...]
