"""Generate docs/support-matrix.md from the binder's fixtures: what is kept in which class, what is refused and why.

`python -m tests.support_matrix` writes the page; a test asserts that it is up to date.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlfront.binding.table_catalog import DuckDBCatalog
from sqlfront.cut.view_query import bind_view
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.division import divide
from sqlfront.planner.model.heavy_light import EPSILON
from sqlfront.planner.model.query import BlockRows, Definition
from sqlfront.planner.model.whole_cost import Block
from sqlfront.planner.passes.block_costs import block_cost, computed_cost
from tests.catalogs import WithoutMacros

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "binder"
PAGE = ROOT / "docs" / "support-matrix.md"
SUPPORTED = (
    "windows",
    "joins",
    "constants",
    "pivots",
    "shares",
    "macros",
    "comparisons",
    "aggregates",
    "distinct",
    "outputs",
    "inlining",
    "blocks",
    "unions",
    "orders",
    "rewritten",
    "computed",
    "temporal",
    "partners",
    "nearest",
    "nested",
    "collations",
)

HEAD = """# SQL support matrix

Generated from tests/fixtures/binder by `python -m tests.support_matrix`; every line is bound, planned and
compared with DuckDB by the test suite. The tables' definitions are in tests/fixtures/binder/schema.sql.
N is the number of rows in the view's tables.
"""


def matrix() -> str:
    """The page's text."""
    import duckdb

    con = duckdb.connect()
    con.execute((FIXTURES / "schema.sql").read_text())
    sections = [HEAD]
    for name in SUPPORTED:
        catalog = DuckDBCatalog(con) if name == "macros" else WithoutMacros(con)
        text = (FIXTURES / f"{name}.sql").read_text()
        sections.append(f"## {first_comment(text)}\n\n| query | shape | update | delay |\n| --- | --- | --- | --- |")
        sections.append("\n".join(row(query, con, catalog) for query in queries(text)) + "\n")
    sections.append("## Refused, with the construct named\n\n| query | error |\n| --- | --- |")
    sections.append("\n".join(refusals((FIXTURES / "refused.sql").read_text())) + "\n")
    con.close()
    return "\n".join(sections)


def row(query: str, con: Any, catalog: DuckDBCatalog) -> str:
    """One supported query with the class its plan states."""
    definition = bind_view(query, con, catalog).definition
    plan = divide(definition, plan_view(definition), EPSILON)
    feeds = {branch: table for table, branches in definition.unions for branch in branches}
    blocks = (cost for table, block in definition.derived for cost in _cost(block, feeds.get(table, table)))
    plan = replace(plan, blocks=tuple(blocks), inputs=definition.tables)
    cost = plan.stated_cost
    return f"| `{cell(query)}` | {plan.stated_shape} | {cost.update} | {cost.delay} |"


def _cost(block: BlockRows, feeds: str) -> list[Block]:
    if isinstance(block, Definition):
        return [block_cost(block, plan_view(block), feeds)]
    return computed_cost(block, feeds)


def refusals(text: str) -> list[str]:
    """The refused fixtures as table rows."""
    rows, error = [], ""
    for line in text.splitlines():
        if line.startswith("-- error: "):
            error = line.removeprefix("-- error: ")
        elif line.strip() and not line.startswith("--") and error:
            rows.append(f"| `{cell(line.strip().rstrip(';'))}` | {cell(error)} |")
            error = ""
    return rows


def queries(text: str) -> list[str]:
    return [line.strip().rstrip(";") for line in text.splitlines() if line.strip() and not line.startswith("--")]


def first_comment(text: str) -> str:
    return text.splitlines()[0].removeprefix("-- ").rstrip(".")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(matrix())
