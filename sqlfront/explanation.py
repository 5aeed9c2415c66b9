"""EXPLAIN: the class, the cost and the reason, and the tree drawn from the object that the engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.tree import Tree, View
from maintenance.view import MaintainedView
from planner.plan import Plan
from planner.query import Definition

if TYPE_CHECKING:
    from sqlfront.database import Database


@dataclass(frozen=True)
class Explanation:
    """How a query is kept. `str()` is for people, `to_dict()` for machines."""

    definition: Definition
    plan: Plan
    tree: Tree
    maintained: MaintainedView | None = None

    def to_dict(self) -> dict[str, Any]:
        """shape, strategy, cost {preprocessing, update, delay, space}, reason, witness, suggestion, tree."""
        cost = self.plan.cost
        return {
            "shape": self.plan.shape,
            "strategy": self.plan.strategy,
            "cost": {
                "preprocessing": cost.preprocessing,
                "update": cost.update,
                "delay": cost.delay,
                "space": cost.space,
            },
            "reason": self.plan.reason,
            "witness": self.plan.witness,
            "suggestion": self.plan.suggestion,
            "tree": self._node(self.tree.root),
        }

    def lines(self) -> list[tuple[str, str]]:
        """The explanation as (property, value) rows, the tree one line a row."""
        data = self.to_dict()
        rows = [("shape", data["shape"]), ("strategy", data["strategy"])]
        rows += [(key, value) for key, value in data["cost"].items()]
        rows += [(key, data[key]) for key in ("reason", "witness", "suggestion") if data[key]]
        return rows + [("tree" if i == 0 else "", line) for i, line in enumerate(self.drawing())]

    def drawing(self) -> list[str]:
        """The tree as text: variables, what is stored and how it is indexed, and live rows if it is running."""
        lines: list[str] = []
        self._draw(self.tree.root, "", "", lines)
        if self.tree.output is not None:
            names = ", ".join(map(self.definition.label, self.tree.output))
            rows = f", {self.tree.projection.live} rows" if self.tree.projection is not None else ""
            lines.append(f"projection [{names}] maintained{rows}")
        return lines

    def __str__(self) -> str:
        width = max(len(key) for key, _ in self.lines())
        return "\n".join(f"{key:<{width}}  {value}".rstrip() for key, value in self.lines())

    def _draw(self, view: View, prefix: str, branch: str, lines: list[str]) -> None:
        lines.append(f"{prefix}{branch}{self._title(view)}")
        below = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for child in view.children:
            self._draw(child, below, "└─ " if child is view.children[-1] else "├─ ", lines)

    def _title(self, view: View) -> str:
        names = ", ".join(map(self.definition.label, view.node.variables))
        title = f"[{names}]"
        if view.node.atom is not None:
            atom = self.definition.atom(view.node.atom)
            title = f"{view.node.atom}({names})"
            title += f" of {atom.table}" if atom.table.split(".")[-1] != atom.name else ""
            title += f" where {atom.predicate}" if atom.predicate else ""
        notes = [_form(view)]
        if view.node.connex and view.parent is not None:
            notes.append("enumerated")
        notes += [f"index on {', '.join(map(self.definition.label, index)) or 'all rows'}" for index in view.indexes]
        if view.table is not None and self.maintained is not None:
            notes.append(f"{view.table.live} rows")
        return f"{title}  {'; '.join(notes)}"

    def _node(self, view: View) -> dict[str, Any]:
        running = view.table is not None and self.maintained is not None
        return {
            "variables": [self.definition.label(v) for v in view.node.variables],
            "atom": view.node.atom,
            "form": _form(view),
            "enumerated": view.node.connex,
            "indexes": [[self.definition.label(v) for v in index] for index in view.indexes],
            "rows": view.table.live if running and view.table is not None else None,
            "bytes": view.table.bytes() if running and view.table is not None else None,
            "children": [self._node(child) for child in view.children],
        }


def explain(database: Database, con: Any, view_or_sql: str) -> Explanation:
    """The explanation of a view, by its name, or of a SELECT as if it were one."""
    from sqlfront.tokens import tokenize

    tokens = tokenize(view_or_sql)
    parts = [token.name for token in tokens if token.is_name]
    if len(tokens) == 2 * len(parts) - 1 and len(parts) <= 3:
        return explain_view(database, con, parts)
    return explain_query(database, con, view_or_sql)


def explain_view(database: Database, con: Any, parts: list[str] | tuple[str, ...]) -> Explanation:
    """The explanation of a running view: the very tree that the engine updates."""
    view = database.view(con, parts).maintained
    return Explanation(view.definition, view.plan, view.tree, view)


def explain_query(
    database: Database, con: Any, query: str, statement: str | None = None, offset: int = 0
) -> Explanation:
    """The explanation of a query that is not a view: bound and planned, nothing built."""
    from sqlfront.binder import bind_view
    from sqlfront.catalog import EngineCatalog
    from sqlfront.ddl import cardinalities, plan_definition
    from storage.encoding import codec_for

    definition = bind_view(query, con, EngineCatalog(database, con), statement=statement, offset=offset)
    plan = plan_definition(definition, cardinalities(database, con, definition))
    widths = {
        c.name: codec_for(c.type, database.engine.dictionaries).words
        for atom in definition.atoms
        for c in atom.variables
    }
    return Explanation(definition, plan, Tree(definition, plan, widths, counted=definition.mode == "bag"))


def _form(view: View) -> str:
    if not view.stored:
        return "computed on the way"
    return "stored" if view.full else "stored as sums by what its parent shares"
