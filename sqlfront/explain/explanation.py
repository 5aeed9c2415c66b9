"""EXPLAIN: the class per task, the cost and the reason, and the tree drawn from the object that the engine runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlfront.binding.session_settings import settings_of
from sqlfront.database.transactions import check_all
from sqlfront.database.user_settings import frozen
from sqlfront.define.linear_space import STRATEGY, saves_space, takes_linear_space
from sqlfront.explain.described_boxes import block_box, block_data, node_data, node_line, tree_boxes, view_data
from sqlfront.explain.drawing import Box, draw_svg, draw_text
from sqlfront.explain.heavy import choice_plot, skew_data, skew_lines
from sqlfront.explain.kept_orders import kept_orders, order_lines, order_names
from sqlfront.explain.rewrites import Rewrite, find_rewrites
from sqlfront.maintenance.output.computed_nodes import describe_planned
from sqlfront.maintenance.output.described_node import describe_unbuilt
from sqlfront.maintenance.tree.description import DescribedTree, Description, walk
from sqlfront.maintenance.view.prediction import predicted_mean
from sqlfront.planner.model.bound import between_rows
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.model.whole_cost import spell_deciding, spell_path
from sqlfront.planner.rules.distinct_in_turn import shows_variables
from sqlfront.planner.tasks import Task, classify_tasks
from sqlfront.planner.theory.wording import enumerate_words, table_name
from sqlfront.sql.name_parts import split_name
from sqlfront.sql.own_statements import read_own
from sqlfront.sql.recognise import is_own
from sqlfront.sql.statements import CreateMaterializedView
from sqlfront.storage.errors import Error
from sqlfront.storage.sql_text import literal
from sqlfront.storage.stores.spill import spilled_bytes

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.define.part import ComputedPart, Part, Parts
    from sqlfront.shards.shard_explanation import Spread


_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Explanation:
    """How a query is kept. `str()` is for people, `to_dict()` for machines, `svg()` is the tree as a picture.

    All three come from the plan and from the descriptions of the `nodes`: those of the query's blocks, each after
    the nodes that it reads, then the view's own. Figures of a running view are those of the moment they are asked for.
    `views` are the tables in the definition whose rows are those of other views; `spread` is about shards, if asked
    for. `collation` is the default_collation that is written out in the definition.
    """

    definition: Definition
    plan: Plan
    describe: Callable[[], list[Description]]
    rewrites: tuple[Rewrite, ...] = ()
    views: frozenset[str] = frozenset()
    spread: Spread | None = None
    waiting: int = 0
    collation: str = ""

    @property
    def nodes(self) -> list[Description]:
        return self.describe()

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """What theory allows and what the view pays, for reading all, count, exists and membership; nothing of a view
        that is only the first rows of its query, or reads what DuckDB computes: theory is about view trees."""
        if self.definition.limit is not None or self.definition.merged or self.plan.stated_shape == "dataflow":
            return ()
        return classify_tasks(self.definition, self.plan, self.views)

    def to_dict(self) -> dict[str, Any]:
        """shape, strategy, cost {preprocessing, update, delay, space}, decided by (the block, for each of these), path
        (the nodes on the way of the changes that decide the update), nodes (with the bounds and steps of each), reason,
        witness, suggestion, tasks, rewrites, settings (as far as the answer depends on them), steps {predicted,
        by table, observed, changes, weights}, replans (when and why the view was planned anew), waiting (how many
        changed rows wait for a deferred view), spilled (the bytes of its stores that are in files), heavy {epsilon,
        choices, figures}, tree, joins (those stored beside the tree), orders {order, strategy, cost, reason, crossover,
        after, trees}, distinct values, blocks, shards (if asked for). A value that is not known is None; so is `heavy`
        of a view that does not tell heavy values from light ones."""
        *blocks, own = nodes = self.nodes
        tree = _tree_of(own)
        return {
            "shape": self.plan.stated_shape,
            "strategy": self.plan.strategy,
            "cost": self.plan.stated_cost.to_dict(),
            "decided by": self.plan.decided_by,
            "path": [
                {"node": one.label, "rows": str(one.rows), "work": str(one.work), "total": str(one.total)}
                for one in self.plan.deciding_path
            ],
            "nodes": list(map(node_data, nodes)),
            "reason": " ".join((*(f"{note}." for note in self.definition.notes), self.plan.reason, *_symmetry(tree))),
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
            "settings": dict(self.definition.settings)
            | ({"default_collation": self.collation} if self.collation else {}),
            "steps": self._steps(own),
            "replans": list(own.replans),
            "waiting": self.waiting,
            "spilled": _spilled(nodes),
            "heavy": skew_data(self.definition, self.plan, tree),
            "tree": view_data(tree.root),
            "joins": list(map(view_data, tree.joins)),
            "orders": kept_orders(self.definition, self.plan, tree),
            "distinct_sets": [view_data(kept.root) for _, _, kept in tree.distinct_sets],
            "blocks": {table_name(block.name): block_data(block) for block in blocks},
        } | ({} if self.spread is None else {"shards": self.spread.to_dict()})

    def lines(self) -> list[tuple[str, str]]:
        """The explanation as (property, value) rows, the tree one line a row."""
        data = self.to_dict()
        rows = [("shape", data["shape"]), ("strategy", data["strategy"])]
        rows += list(data["cost"].items())
        rows += [("decided by", line) for line in spell_deciding(data["decided by"])]
        rows += self._node_lines()
        rows += [(key, data[key]) for key in ("reason", "witness", "suggestion") if data[key]]
        rows += [(task.name, self._spell_task(task)) for task in self.tasks]
        for rewrite in self.rewrites:
            rows += [("rewrite", f"{rewrite.what}: {rewrite.update} per change"), ("", rewrite.sql)]
        rows += [("settings", f"{name} = {literal(value)}") for name, value in data["settings"].items()]
        rows += [("range", line) for line in self._ranges()]
        for order, planned in zip(data["orders"], self.plan.orders, strict=True):
            rows += [("order", line) for line in order_lines(order, planned.cost)]
        rows += [("steps", line) for line in self._spell_steps(data["steps"])]
        rows += [("replanned", line) for line in data["replans"]]
        rows += [("waiting", f"{self.waiting:,} changed rows, until the view is read")] if self.waiting else []
        rows += [("spilled", _spell_spilled(data["spilled"]))] if data["spilled"] else []
        rows += [("heavy", line) for line in skew_lines(data["heavy"], self.definition, self.plan)]
        rows += [("shards", line) for line in (self.spread.lines() if self.spread else ())]
        return rows + [("tree" if i == 0 else "", line) for i, line in enumerate(self.drawing())]

    def drawing(self) -> list[str]:
        """The tree as text: variables, what is stored and how it is indexed, and live rows if it is running."""
        return [line for root in self._boxes() for line in draw_text(root)]

    def svg(self) -> str:
        """The tree as an SVG document: the very nodes of `drawing`, the class above them, and below them the exponents
        that other epsilons would have."""
        cost, own = self.plan.stated_cost, self.nodes[-1]
        heading = [
            f"{self.plan.stated_shape}: {self.plan.strategy}",
            f"{cost.update} per change, {between_rows(cost.delay)}, {cost.space} space",
            *self._spell_steps(self._steps(own)),
        ]
        heavy = skew_data(self.definition, self.plan, _tree_of(own))
        plot = choice_plot(self.definition, self.plan, heavy["epsilon"]) if heavy is not None else None
        return draw_svg(self._boxes(), heading, plot)

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(key) for key, _ in lines)
        return "\n".join(
            f"{key if i == 0 else '':<{width}}  {line}".rstrip()
            for key, value in lines
            for i, line in enumerate(value.splitlines() or [""])
        )

    def _spell_task(self, task: Task) -> str:
        source = f" ({task.theorem})" if task.theorem else ""
        because = f"; {task.witness}" if task.witness and task.witness != self.plan.witness else ""
        return f"{task.verdict}: {task.bound}{source}{because}; here {task.here}"

    def _boxes(self) -> list[Box]:
        """What the view's own node keeps, then what its blocks do."""
        *blocks, own = self.nodes
        return [*tree_boxes(_tree_of(own), order_names(self.definition)), *map(block_box, blocks)]

    def _node_lines(self) -> Iterator[tuple[str, str]]:
        """The nodes, where there are several, and the way of the changes that decide the update."""
        *blocks, own = self.nodes
        if blocks:
            yield from (("node", node_line(node, last=node is own)) for node in (*blocks, own))
        if len(path := self.plan.deciding_path) > 1:
            yield "path", spell_path(path)

    def _ranges(self) -> Iterator[str]:
        """How changes find rows that are compared, in the view's own tree and in those of its blocks."""
        trees = (node.tree for node in reversed(self.nodes))
        return (line for tree in trees if tree is not None for view in walk(tree.root) for line in view.met)

    # Steps ---------------------------------------------------------------------------------------

    def _steps(self, own: Description) -> dict[str, Any]:
        """Elementary steps per changed row: predicted by table and for the mix, observed, and the mix itself."""
        weights = {table_name(table): weight for table, weight in self.plan.weights}
        if not own.runs:
            return {"predicted": None, "by table": None, "observed": None, "changes": None, "weights": weights}
        mix = own.changes if any(own.changes.values()) else dict(self.plan.weights)
        return {
            "predicted": predicted_mean(own.predicted, {table: float(share) for table, share in mix.items()}),
            "by table": {table_name(table): cost for table, cost in own.predicted.items()},
            "observed": own.per_change,
            "changes": {table_name(table): count for table, count in own.changes.items()},
            "weights": weights,
        }

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
    """The explanation of a view, by its name, of a SELECT as if it were one, or of what CREATE MATERIALIZED VIEW would
    make; in `shards` if so many are given."""
    parts, query = split_name(view_or_sql), view_or_sql
    if parts:
        found = explain_view(database, con, parts)
    elif is_own(view_or_sql) and isinstance(statement := read_own(view_or_sql, 0), CreateMaterializedView):
        found, query = explain_creation(database, con, statement), statement.query
    else:
        found = explain_query(database, con, view_or_sql)
    if shards is None:
        return found
    from sqlfront.shards.shard_explanation import spread_of

    return replace(found, spread=spread_of(database, con, shards, parts or query))


def _spilled(nodes: Iterable[Description]) -> int:
    """The bytes of stores that are in files."""
    tables = {id(one.table): one.table for node in nodes for one in node.state}
    return sum(map(spilled_bytes, tables.values()))


def _spell_spilled(size: int) -> str:
    return (
        f"{size:,} bytes of its stores are in files; changes and reads are slower if the view does not fit into memory"
    )


def explain_view(database: Database, con: Any, parts: list[str] | tuple[str, ...]) -> Explanation:
    """The explanation of a running view: the very tree that the engine updates."""
    check_all(database)
    entry = database.view(con, parts)
    view, engine = entry.maintained, database.engine
    with database.lock:
        engine.pulled.catch_up(view.relations)
    with frozen(con, entry.settings):
        rewrites = _rewrites(database, con, entry.written, view.definition, view.plan)
    read, waiting = _views_read(database, view.definition), engine.deferred.rows(view.name)
    describe = partial(engine.describe, view)
    collation = entry.settings.get("default_collation", "")
    return Explanation(view.definition, view.plan, describe, rewrites, read, waiting=waiting, collation=collation)


def explain_query(
    database: Database, con: Any, query: str, statement: str | None = None, offset: int = 0
) -> Explanation:
    """The explanation of a query that is not a view: bound and planned, nothing built."""
    return _of_parts(database, con, query, *_planned(database, con, query, statement, offset))


def explain_creation(database: Database, con: Any, statement: CreateMaterializedView) -> Explanation:
    """The explanation of the view that a CREATE makes, with its options; of the view that is there if IF NOT EXISTS
    leaves it. Nothing is built. Raises what the CREATE raises for its text and options."""
    from sqlfront.define.ddl import drafted_view
    from sqlfront.define.part import ComputedPart

    with database.lock:
        created = drafted_view(database, con, statement)
    if created is None:
        return explain_view(database, con, statement.name.parts)
    *inner, own = created.draft.parts
    assert not isinstance(own, ComputedPart)
    return _of_parts(database, con, created.bound.query, inner, own)


def _of_parts(database: Database, con: Any, query: str, inner: Parts, own: Part) -> Explanation:
    """The explanation of a query that is planned as blocks and its own part."""
    nodes = [_unbuilt(database, part) for part in (*inner, own)]
    rewrites = _rewrites(database, con, query, own.definition, own.plan)
    read = _views_read(database, own.definition)
    collation = settings_of(con)["default_collation"]
    return Explanation(own.definition, own.plan, lambda: nodes, rewrites, read, collation=collation)


def _views_read(database: Database, definition: Definition) -> frozenset[str]:
    """The tables of a definition that are materialized views or blocks or unions of its query."""
    tables = {atom.table for atom in definition.atoms}
    views = database.engine.views
    return frozenset(table for table in tables if table in views or table_name(table).startswith(("block ", "union ")))


def _unbuilt(database: Database, part: Part | ComputedPart) -> Description:
    """What the node of a part would say of itself."""
    from sqlfront.define.part import ComputedPart

    if isinstance(part, ComputedPart):
        return describe_planned(part.name, part.rows)
    dictionaries = database.engine.dictionaries
    return describe_unbuilt(part.name, part.definition, part.plan, dictionaries, stateless=part.stateless)


def _tree_of(node: Description) -> DescribedTree:
    """The tree of the view's own node."""
    assert node.tree is not None
    return node.tree


def _symmetry(tree: DescribedTree) -> list[str]:
    """What a self-join saves that looks the same from each of its atoms."""
    if not tree.symmetric:
        return []
    names = enumerate_words(tree.symmetric)
    return [f"It looks the same from {names}, so they read one store, and a change is joined with it once for all."]


def _planned(
    database: Database,
    con: Any,
    query: str,
    statement: str | None = None,
    offset: int = 0,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> tuple[Parts, Part]:
    """The blocks of a query under some options of a view, and its own part."""
    from sqlfront.database.catalog import EngineCatalog
    from sqlfront.define.build import bind
    from sqlfront.define.part import ComputedPart
    from sqlfront.define.parts import plan_parts

    saving = saves_space(options)
    bound = bind(EngineCatalog(database, con), con, query, statement=statement, offset=offset, saves_space=saving)
    *inner, own = plan_parts(database, bound, "query", options)
    assert not isinstance(own, ComputedPart)
    return inner, own


def _rewrites(database: Database, con: Any, query: str, definition: Definition, plan: Plan) -> tuple[Rewrite, ...]:
    if definition.limit is not None:
        return ()
    fixed = {database.relation_key(table.name) for table in database.change_tables.values()}
    fixed |= _views_read(database, definition)
    found = find_rewrites(
        query, definition, plan, lambda sql: _planned(database, con, sql)[1].plan, lambda table: table not in fixed
    )
    # Only distinct rows are found in turn. A query whose DISTINCT became blocks is one of distinct rows without them.
    may_turn = not takes_linear_space(plan) and (shows_variables(definition) or definition.derived)
    return (*found, *_without_combinations(database, con, query)) if may_turn else found


def _without_combinations(database: Database, con: Any, query: str) -> Iterator[Rewrite]:
    """The strategy by which no combinations of rows are stored, if the query has such a plan."""
    try:
        plan = _planned(database, con, query, options={"strategy": STRATEGY})[1].plan
    except Error:
        return
    if plan.turns is not None:
        what = (
            f"store no combinations of rows, {plan.stated_cost.space} space, with a delay of {plan.stated_cost.delay}"
        )
        sql = f"CREATE MATERIALIZED VIEW ... WITH (strategy = '{STRATEGY}') AS ..."
        yield Rewrite(what, sql, plan.stated_cost.update)
