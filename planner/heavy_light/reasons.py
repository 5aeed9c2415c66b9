"""The sentences that the strategies' reasons share."""

from __future__ import annotations

from sqlfront.planner.model.heavy_light import Reading, Union
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import are, labels

TRIANGLES = "Kara, Nikolic, Ngo, Olteanu and Zhang 2020, Theorem 3"
BEYOND_TRIANGLES = "Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 12"


def say_query(definition: Definition, union: Union, free: tuple[str, ...]) -> str:
    """The sentence for what is asked, over which joins."""
    variables = {variable for edge in union.edges for group in edge.groups for variable in group}
    asked = "a sum over"
    if free:
        asked = f"{'the' if definition.mode != 'group' else 'an aggregate by'} {labels(definition, free)} of"
    return f"The query is {asked} {union.strategy.what} of {labels(definition, sorted(variables))}."


def say_apart(epsilon: float) -> str:
    """The sentence for heavy and light values, to be continued."""
    return (
        f"A value that N^{epsilon:g} rows of a table have is heavy there: light values have short lists, heavy ones "
        "are few"
    )


def say_division(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    """The reason of a strategy whose part trees have no joins in common."""
    cost = union.exponents.cost(epsilon)
    return (
        f"{say_query(definition, union, free)} {say_apart(epsilon)}. The join is divided by the status of its values "
        f"into {len(union.part_trees)} part trees, each a view tree of its own{_how_read(union)}. A change costs "
        f"{cost.update}, with the rebalances that it makes necessary, and "
        f"{'rows come' if free else 'the answer comes'} at {cost.delay} ({union.strategy.source})."
    )


def _how_read(union: Union) -> str:
    listed = [part_tree.name for part_tree in union.part_trees if part_tree.reading == Reading.ENUMERATED]
    if len(listed) == len(union.part_trees):
        return ", enumerated: no two have a row in common"
    if not listed:
        return "; all add to one output"
    return f", {len(listed)} of which {are(listed)} enumerated, each row once; the others add to one output"
