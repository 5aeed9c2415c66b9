"""EXPLAIN: the class per task, the cost and the reason, and the tree drawn from the object that the engine runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.user_settings import frozen
from sqlfront.explain.drawing import Box, draw_svg, draw_text
from sqlfront.explain.heavy import skew_data, skew_lines
from sqlfront.explain.kept_orders import kept_orders, order_lines
from sqlfront.explain.rewrites import Rewrite, find_rewrites
from sqlfront.explain.tradeoff import choice_plot
from sqlfront.maintenance.heavy_light.part_trees import PartTrees, StoredPartTree
from sqlfront.maintenance.output.constant_rows import ConstantNode
from sqlfront.maintenance.output.node import Node, TreeNode
from sqlfront.maintenance.output.touched_groups import TouchedGroupsNode
from sqlfront.maintenance.tree.symmetric_delta import symmetric_terms
from sqlfront.maintenance.tree.view_tree import Tree, View
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.prediction import Spending, predict, predicted_mean, spending
from sqlfront.maintenance.view.tuple_count import TupleCount
from sqlfront.maintenance.view.unbuilt import codecs_of
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import ConstantRows, Definition, TouchedGroups
from sqlfront.planner.model.whole_cost import spell_deciding
from sqlfront.planner.tasks import Task, classify_tasks
from sqlfront.planner.theory.wording import enumerate_words, spell_comparison, table_name
from sqlfront.sql.name_parts import split_name
from sqlfront.storage.sql_text import literal
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.define.parts import Part, Parts
    from sqlfront.shards.shard_explanation import Spread


@dataclass(frozen=True)
class Explanation:
    """How a query is kept. `str()` is for people, `to_dict()` for machines, `svg()` is the tree as a picture.

    All three come from the plan and the tree that run; figures of a running view are those of the moment they are
    asked for. `distinct_sets` are the trees of the values kept for MIN, MAX and DISTINCT, `blocks` those of the query's
    blocks that are views of their own, or the groups that DuckDB computes, by name as the definition calls them;
    `spent()` gives the steps of updates, `views` the tables in the definition whose rows are those of other views;
    `spread` is about shards, if asked for.
    """

    definition: Definition
    plan: Plan
    tree: Tree
    distinct_sets: tuple[Tree, ...] = ()
    blocks: tuple[tuple[str, Tree | TouchedGroups | ConstantRows], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    maintained: MaintainedView | None = None
    spent: partial[int] | None = None
    views: frozenset[str] = frozenset()
    spread: Spread | None = None
    waiting: int = 0

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What theory allows and what the view pays, for reading all, count, exists and membership; nothing of a view
        that is only the first rows of its query, or reads what DuckDB computes: theory is about view trees."""
        if self.definition.limit is not None or self.plan.stated_shape == "dataflow":
            return ()
        return classify_tasks(self.definition, self.plan, self.views)

    def to_dict(self) -> dict[str, Any]:
        """shape, strategy, cost {preprocessing, update, delay, space}, decided by (the block, for each of these),
        reason, witness, suggestion, tasks, rewrites, settings (as far as the answer depends on them), steps {predicted,
        by table, observed, changes, weights}, waiting (how many changed rows wait for a deferred view), heavy {epsilon,
        choices, figures}, tree, joins (those stored beside the tree), orders {order, strategy, cost, reason, crossover,
        after, trees}, distinct values, blocks, shards (if asked for). A value that is not known is None; so is
        `heavy` of a view that does not tell heavy values from light ones."""
        return {
            "shape": self.plan.stated_shape,
            "strategy": self.plan.strategy,
            "cost": self.plan.stated_cost.to_dict(),
            "decided by": self.plan.decided_by,
            "reason": " ".join((*(f"{note}." for note in self.definition.notes), self.plan.reason, *self._symmetry())),
            "witness": self.plan.witness,
            "suggestion": self.plan.suggestion,
            "tasks": {
                task.name: {
                    "verdict": task.verdict,
                    "bound": task.bound,
                    "theorem": task.theorem,
                    "witness": task.witness,
                    "here": task.here,
                }
                for task in self.tasks
            },
            "rewrites": [{"what": r.what, "sql": r.sql, "update": str(r.update)} for r in self.rewrites],
            "settings": dict(self.definition.settings),
            "steps": self._steps(),
            "waiting": self.waiting,
            "heavy": skew_data(self.tree, self.plan, self.maintained),
            "tree": _node(self.tree, self.tree.root),
            "joins": [_node(self.tree, join) for join in self.tree.side_joins()],
            "orders": kept_orders(self.definition, self.plan, self.maintained),
            "distinct_sets": [_node(tree, tree.root) for tree in self.distinct_sets],
            "blocks": {table_name(name): _block(block) for name, block in self.blocks},
        } | ({} if self.spread is None else {"shards": self.spread.to_dict()})

    def lines(self) -> list[tuple[str, str]]:
        """The explanation as (property, value) rows, the tree one line a row."""
        data = self.to_dict()
        rows = [("shape", data["shape"]), ("strategy", data["strategy"])]
        rows += list(data["cost"].items())
        rows += [("decided by", line) for line in spell_deciding(data["decided by"])]
        rows += [(key, data[key]) for key in ("reason", "witness", "suggestion") if data[key]]
        rows += [(task.name, self._spell_task(task)) for task in self.tasks]
        for rewrite in self.rewrites:
            rows += [("rewrite", f"{rewrite.what}: {rewrite.update} per change"), ("", rewrite.sql)]
        rows += [("settings", f"{name} = {literal(value)}") for name, value in data["settings"].items()]
        rows += [("order", line) for order in data["orders"] for line in order_lines(order)]
        rows += [("steps", line) for line in self._spell_steps(data["steps"])]
        rows += [("waiting", f"{self.waiting:,} changed rows, until the view is read")] if self.waiting else []
        rows += [("heavy", line) for line in skew_lines(data["heavy"], self.definition, self.plan)]
        rows += [("shards", line) for line in (self.spread.lines() if self.spread else ())]
        return rows + [("tree" if i == 0 else "", line) for i, line in enumerate(self.drawing())]

    def drawing(self) -> list[str]:
        """The tree as text: variables, what is stored and how it is indexed, and live rows if it is running."""
        return [line for root in self._boxes() for line in draw_text(root)]

    def svg(self) -> str:
        """The tree as an SVG document: the very nodes of `drawing`, the class above them, and below them the exponents
        that other epsilons would have."""
        cost = self.plan.stated_cost
        heading = [
            f"{self.plan.stated_shape}: {self.plan.strategy}",
            f"{cost.update} per change, {cost.delay} between rows, {cost.space} space",
            *self._spell_steps(self._steps()),
        ]
        heavy = skew_data(self.tree, self.plan, self.maintained)
        plot = choice_plot(self.definition, self.plan, heavy["epsilon"]) if heavy is not None else None
        return draw_svg(self._boxes(), heading, plot)

    def __str__(self) -> str:
        width = max(len(key) for key, _ in self.lines())
        return "\n".join(
            f"{key if i == 0 else '':<{width}}  {line}".rstrip()
            for key, value in self.lines()
            for i, line in enumerate(value.splitlines() or [""])
        )

    def _spell_task(self, task: Task) -> str:
        source = f" ({task.theorem})" if task.theorem else ""
        because = f"; {task.witness}" if task.witness and task.witness != self.plan.witness else ""
        return f"{task.verdict}: {task.bound}{source}{because}; here {task.here}"

    def _symmetry(self) -> list[str]:
        """What a self-join saves that looks the same from each of its atoms."""
        terms = symmetric_terms(self.tree)
        if terms is None:
            return []
        names = enumerate_words(self.tree.leaves)
        return [f"It looks the same from {names}, so they read one store, and a change is joined with it once for all."]

    def _part_trees(self) -> list[StoredPartTree]:
        """The trees over heavy and light parts: those that run, or would."""
        if self.maintained is not None:
            return self.maintained.balance.part_trees.trees if self.maintained.balance is not None else []
        if self.plan.union is None:
            return []
        counted, symmetric = self.definition.mode == "bag", symmetric_terms(self.tree) is not None
        return PartTrees(self.tree, self.plan.union, 0, counted=counted, symmetric=symmetric).trees

    def _boxes(self) -> list[Box]:
        """The tree, the joins and the projection maintained beside it, the trees over parts, and the distinct
        values."""
        boxes = [_box(self.tree, self.tree.root), *(_join(self.tree, join) for join in self.tree.side_joins())]
        if self.tree.output is not None:
            names = ", ".join(map(self.definition.label, self.tree.output))
            boxes.append(Box(f"projection [{names}]", ("maintained", *_figures(self.tree.projection)), "projection"))
        if self.maintained is not None and self.maintained.tuple_count is not None:
            boxes.append(_tuple_count(self.maintained.tuple_count))
        for kept in (one for one in self._part_trees() if one.planned.changed is None):
            parts = ", ".join(f"{atom} {part}" for atom, part in kept.planned.parts if not part.is_whole)
            boxes.append(
                Box(
                    f"part tree {kept.planned.name}",
                    (kept.planned.reading.value, parts),
                    "projection",
                    (_box(kept.tree, kept.tree.root),),
                )
            )
        for distinct_set, tree in zip(self.definition.distinct_sets, self.distinct_sets, strict=True):
            notes = ("sorted" if distinct_set.ordered else "counted", *_figures(tree.projection))
            boxes.append(Box(f"values of {distinct_set.label}", notes, "projection", (_box(tree, tree.root),)))
        for order in kept_orders(self.definition, self.plan, self.maintained):
            if order["trees"]:
                ranked = tuple(map(_ranked_box, order["trees"]))
                boxes.append(Box(f"ranked by {order['order']}", ("first rows first",), "projection", ranked))
        return [*boxes, *(_block_box(table_name(name), block) for name, block in self.blocks)]

    # Steps ---------------------------------------------------------------------------------------

    def _steps(self) -> dict[str, Any]:
        """Elementary steps per changed row: predicted by table and for the mix, observed, and the mix itself."""
        weights = {table_name(table): weight for table, weight in self.plan.weights}
        if self.maintained is None or self.spent is None:
            return {"predicted": None, "by table": None, "observed": None, "changes": None, "weights": weights}
        predicted, seen = predict(self.maintained), self._spending()
        mix = seen.changes if any(seen.changes.values()) else dict(self.plan.weights)
        return {
            "predicted": predicted_mean(predicted, {table: float(share) for table, share in mix.items()}),
            "by table": {table_name(table): cost for table, cost in predicted.items()},
            "observed": seen.per_change,
            "changes": {table_name(table): count for table, count in seen.changes.items()},
            "weights": weights,
        }

    def _spending(self) -> Spending:
        assert self.maintained is not None and self.spent is not None
        return spending(self.maintained, self.spent())

    @staticmethod
    def _spell_steps(steps: Mapping[str, Any]) -> list[str]:
        mix = ", ".join(f"{table}: {weight:g}" for table, weight in steps["weights"].items())
        lines = [f"tree chosen for changes as {mix}"] if len(steps["weights"]) > 1 else []
        total = sum((steps["changes"] or {}).values())
        seen = f"observed {steps['observed']:.1f} over {total} changed rows" if total else "none observed yet"
        if steps["predicted"] is not None:
            by_table = ", ".join(f"{table} {cost:.1f}" for table, cost in steps["by table"].items())
            lines.append(f"predicted {steps['predicted']:.1f} per changed row ({by_table}), {seen}")
        elif total:
            lines.append(seen)
        return lines


def explain(database: Database, con: Any, view_or_sql: str, shards: int | None = None) -> Explanation:
    """The explanation of a view, by its name, or of a SELECT as if it were one; in `shards` if so many are given."""
    parts = split_name(view_or_sql)
    found = explain_view(database, con, parts) if parts else explain_query(database, con, view_or_sql)
    if shards is None:
        return found
    from sqlfront.shards.shard_explanation import spread_of

    return replace(found, spread=spread_of(database, con, shards, parts or view_or_sql))


def explain_view(database: Database, con: Any, parts: list[str] | tuple[str, ...]) -> Explanation:
    """The explanation of a running view: the very tree that the engine updates."""
    entry = database.view(con, parts)
    view = entry.maintained
    spent = partial(database.engine.counters, view)
    with frozen(con, entry.settings):
        rewrites = _rewrites(database, con, entry.written, view.definition, view.plan)
    distinct_sets = tuple(one.tree for one in view.distinct_sets)
    read = _views_read(database, view.definition)
    blocks = _blocks(database, view.name)
    waiting = database.engine.deferred.rows(view.name)
    found = Explanation(view.definition, view.plan, view.tree, distinct_sets, blocks, rewrites, view, spent, read)
    return replace(found, waiting=waiting)


def explain_query(
    database: Database, con: Any, query: str, statement: str | None = None, offset: int = 0
) -> Explanation:
    """The explanation of a query that is not a view: bound and planned, nothing built."""
    from sqlfront.define.parts import ComputedPart

    inner, own = _planned(database, con, query, statement, offset)
    definition, plan = own.definition, own.plan
    tree = _unbuilt(database, definition, plan)
    blocks = tuple(
        (part.name, part.rows)
        if isinstance(part, ComputedPart)
        else (part.name, _unbuilt(database, part.definition, part.plan, stateless=part.stateless))
        for part in inner
    )
    kept = zip(definition.distinct_sets, plan.distinct_sets, strict=True)
    distinct_sets = tuple(_unbuilt(database, distinct_set.definition, own) for distinct_set, own in kept)
    rewrites = _rewrites(database, con, query, definition, plan)
    return Explanation(definition, plan, tree, distinct_sets, blocks, rewrites, views=_views_read(database, definition))


def _blocks(database: Database, view: str) -> tuple[tuple[str, Tree | TouchedGroups | ConstantRows], ...]:
    """The trees, and the computed groups, of the blocks that a running view consists of besides its own."""
    nodes = database.engine.nodes
    found = [(name, node) for name, node in nodes.items() if re.fullmatch(rf"{re.escape(view)}/\d+", name)]
    return tuple((name, _kept_by(node)) for name, node in found)


def _kept_by(node: Node) -> Tree | TouchedGroups | ConstantRows:
    match node:
        case TouchedGroupsNode(groups=groups):
            return groups
        case ConstantNode(rows=rows):
            return rows
    assert isinstance(node, TreeNode)
    return node.view.tree


def _views_read(database: Database, definition: Definition) -> frozenset[str]:
    """The tables of a definition that are materialized views or blocks or unions of its query."""
    tables = {atom.table for atom in definition.atoms}
    views = database.engine.views
    return frozenset(table for table in tables if table in views or table_name(table).startswith(("block ", "union ")))


def _unbuilt(database: Database, definition: Definition, plan: Plan, *, stateless: bool = False) -> Tree:
    codecs = codecs_of(definition, database.engine.dictionaries)
    tree = Tree(definition, plan, codecs, counted=definition.mode == "bag")
    for leaf in tree.leaves.values():
        leaf.stateless = stateless
    return tree


def _planned(
    database: Database, con: Any, query: str, statement: str | None = None, offset: int = 0
) -> tuple[Parts, Part]:
    """The blocks of a query, and its own part."""
    from sqlfront.database.catalog import EngineCatalog
    from sqlfront.define.build import bind
    from sqlfront.define.parts import ComputedPart, plan_parts

    bound = bind(EngineCatalog(database, con), con, query, statement=statement, offset=offset)
    *inner, own = plan_parts(database, bound, "query", {})
    assert not isinstance(own, ComputedPart)
    return inner, own


def _rewrites(database: Database, con: Any, query: str, definition: Definition, plan: Plan) -> tuple[Rewrite, ...]:
    if definition.limit is not None:
        return ()
    fixed = {database.relation_key(table.name) for table in database.change_tables.values()}
    fixed |= _views_read(database, definition)
    return find_rewrites(
        query, definition, plan, lambda sql: _planned(database, con, sql)[1].plan, lambda table: table not in fixed
    )


def _block(block: Tree | TouchedGroups | ConstantRows) -> dict[str, Any]:
    if isinstance(block, ConstantRows):
        return {"constant": list(block.columns), "sql": block.query}
    if isinstance(block, TouchedGroups):
        return {"computed": block.label, "of": table_name(block.table), "keys": list(block.keys), "sql": block.query}
    return _node(block, block.root)


def _block_box(name: str, block: Tree | TouchedGroups | ConstantRows) -> Box:
    if isinstance(block, ConstantRows):
        return Box(name, ("constant rows: no change reaches them",), "projection")
    if isinstance(block, TouchedGroups):
        by = f"by {', '.join(block.keys)}" if block.keys else "all rows are one group"
        return Box(name, (f"touched groups of {table_name(block.table)} {by}", block.label), "projection")
    return Box(name, ("a view of its own",), "projection", (_box(block, block.root),))


def _node(tree: Tree, view: View) -> dict[str, Any]:
    """A node of the tree; rows and bytes if it is stored by a view that runs."""
    return {
        "variables": _labels(tree, view.node.variables),
        "atom": view.node.atom,
        "filters": view.node.filters,
        "form": _form(view),
        "enumerated": view.node.connex,
        "indexes": [_labels(tree, index) for index in view.indexes],
        "order": _order(tree, view),
        "comparisons": [spell_comparison(tree.definition, test) for test in view.node.comparisons],
        "rows": view.table.live if view.table is not None else None,
        "bytes": view.table.bytes() if view.table is not None else None,
        "children": [_node(tree, child) for child in view.children],
    }


def _order(tree: Tree, view: View) -> dict[str, Any] | None:
    """The index of a view whose groups are sorted, and by what; whether sums over their ranges are kept."""
    if view.order is None:
        return None
    index, variable = view.order
    return {"index": _labels(tree, index), "by": tree.definition.label(variable), "sums": view.ranges}


def _ranked_box(node: Mapping[str, Any]) -> Box:
    title = f"{node['atom'] or ''}{'(' if node['atom'] else '['}{', '.join(node['variables'])}"
    title += ")" if node["atom"] else "]"
    anchor = ", ".join(node["anchor"]) or "all rows"
    notes = (f"sorted by best, per {anchor}", f"{node['rows']} rows, {node['bytes']} bytes")
    return Box(title, notes, "leaf" if node["atom"] else "stored", tuple(map(_ranked_box, node["children"])))


def _box(tree: Tree, view: View) -> Box:
    node = _node(tree, view)
    names = ", ".join(node["variables"])
    title = f"[{names}]"
    name = view.node.atom or view.node.filters
    if name is not None:
        atom = tree.definition.atom(name)
        table = table_name(atom.table)
        title = f"{name}({names})"
        title += f" of {table}" if table != atom.name else ""
        title += f" where {atom.predicate}" if atom.predicate else ""
    notes = [node["form"]]
    notes += ["enumerated"] if node["enumerated"] and view.parent is not None else []
    for index in node["indexes"]:
        order = node["order"] if node["order"] and node["order"]["index"] == index else None
        by = f", sorted by {order['by']}" + (" with sums of ranges" if order["sums"] else "") if order else ""
        notes.append(f"index on {', '.join(index) or 'all rows'}{by}")
    if node["comparisons"]:
        notes.insert(0, f"where {' and '.join(node['comparisons'])}")
    kind = "leaf" if name is not None else "enumerated" if view.node.connex else "stored"
    children = tuple(_box(tree, child) for child in view.children)
    if view.stateless or not view.stored:
        kind = "passed"
    return Box(title, (*notes, *_figures(view.table)), kind, children)


def _join(tree: Tree, view: View) -> Box:
    """A join that is stored beside the tree, for changes to be joined with."""
    names = ", ".join(leaf.node.atom or "" for leaf in view.children)
    return replace(_box(tree, replace(view, children=[])), title=f"join of {names}")


def _tuple_count(tuple_count: TupleCount) -> Box:
    """The number of rows that is kept beside a tree whose nodes hold them together."""
    tables = tuple_count.tables()
    figures = f"{sum(table.live for table in tables)} rows, {sum(table.bytes() for table in tables)} bytes"
    return Box("number of rows", ("counted in a tree of the same shape", figures), "projection")


def _figures(table: Table | None) -> list[str]:
    return [f"{table.live} rows, {table.bytes()} bytes"] if table is not None else []


def _labels(tree: Tree, variables: Sequence[str]) -> list[str]:
    return [tree.definition.label(variable) for variable in variables]


def _form(view: View) -> str:
    if view.stateless:
        return "passed on, not stored"
    if not view.stored:
        return "computed on the way"
    if view.node.filters is not None:
        return "filters only"
    return "stored" if view.full else "stored as sums by what its parent shares"
