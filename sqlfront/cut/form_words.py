"""What EXPLAIN says of the forms in which operators are kept."""

from __future__ import annotations

FORMS = {
    "left": "a left join is its pairs of rows and, with NULLs, the rows without a partner",
    "full": "a full join is its pairs of rows and, with NULLs, the rows of either side without a partner",
    "semi": "rows with a partner join the distinct values that have one",
    "anti": "rows without a partner join the keys that no partner has: both sides are counted by key",
    "mark": "a subquery in an expression is true for rows with a partner, NULL or false for others: a union",
    "single": "a scalar subquery is a left join with its only row",
    "intersect": "rows of both sides are counted, and those stay that each side has",
    "except": "rows of both sides are counted, and those stay that the second has not",
    "intersect all": "rows of both sides are counted, and each stays as often as the side that has it less often",
    "except all": "rows of both sides are counted, and each stays as often as the first has it more often",
}
"""Those of joins and set operations that are other joins, unions and counts."""

CHILDREN = {
    "left": "a left join is an optional child: a row without a partner meets a row of NULLs, which is not stored",
    "anti": "an anti join is an absent child: a row counts where no partner is found",
    "full": "a full join is two optional children of the keys of both sides, which are kept: a key without rows on one "
    "side meets a row of NULLs there, which is not stored",
    "mark": "a subquery in an expression is an optional child of the rows that ask, or an absent one where it must be "
    "false: the keys that it has, and those for which a NULL leaves it open, are looked up",
    "single": "a scalar subquery is an optional child: a row without a partner meets NULL, which is not stored",
}
"""Those of joins that are children of a tree's node."""
LEFT_SIDE = "the left side of an outer join is a view of its own: with it, no tree has the right side as its child"
COMPARED = (
    "a join whose condition compares both sides looks its partners up by the compared values of its left side, each of "
    "which is kept once with its partners"
)
