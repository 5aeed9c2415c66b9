"""Prints our own statements in the words they are read from."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.query_printer import QueryPrinter


class StatementPrinter(QueryPrinter):
    """The part of `Printer` that prints statements of ours."""

    def option(self, node: trees.Option) -> str:
        return f"{self.sql(node, 'this')} = {self.sql(node, 'expression')}"

    def _with(self, options: Sequence[exp.Expr] | None) -> str:
        return f" WITH {self.enclosed(options)}" if options else ""

    def _opening(self, node: exp.Expr, words: str) -> str:
        replace = "OR REPLACE " if node.args.get("or_replace") else ""
        exists = "IF NOT EXISTS " if node.args.get("if_not_exists") else ""
        return f"CREATE {replace}{words} {exists}{self.sql(node, 'this')}"

    def create_view(self, node: trees.CreateMaterializedView) -> str:
        columns = node.args.get("columns")
        text = self._opening(node, "MATERIALIZED VIEW") + (f" {self.enclosed(columns)}" if columns else "")
        return f"{text}{self._with(node.args.get('options'))} AS {self.sql(node, 'query')}"

    def create_table(self, node: trees.CreateChangeTable) -> str:
        elements = [self.sql(column) for column in node.expressions]
        if node.args.get("primary_key") is not None:
            elements.append(f"PRIMARY KEY {self.enclosed(node.args['primary_key'].expressions)}")
        elements += [f"UNIQUE {self.enclosed(key.expressions)}" for key in node.args.get("unique") or []]
        text = f"{self._opening(node, 'CHANGE TABLE')} ({', '.join(elements)}){self._with(node.args.get('options'))}"
        if node.args.get("source") is None:
            return text
        return f"{text} FROM {self.sql(node, 'source')} OPTIONS {self.enclosed(node.args.get('source_options') or [])}"

    def column_definition(self, node: trees.ChangeColumn) -> str:
        default = node.args.get("default")
        text = f"{self.sql(node, 'this')} {self.sql(node, 'kind')}" + (" NOT NULL" if node.args.get("not_null") else "")
        return text + (f" DEFAULT {self.operand(default)}" if default is not None else "")

    def drop_own(self, node: trees.Drop) -> str:
        exists = "IF EXISTS " if node.args.get("if_exists") else ""
        return f"DROP {node.args['kind']} {exists}{self.sql(node, 'this')}" + (
            " CASCADE" if node.args.get("cascade") else ""
        )

    def refresh(self, node: trees.Refresh) -> str:
        return f"REFRESH {node.args['kind']} {self.listed(node.expressions)}"

    def alter_view(self, node: trees.AlterMaterializedView) -> str:
        return f"ALTER MATERIALIZED VIEW {self.sql(node, 'this')} SET {self.enclosed(node.args['options'])}"

    def rename_view(self, node: trees.RenameMaterializedView) -> str:
        return f"ALTER MATERIALIZED VIEW {self.sql(node, 'this')} RENAME TO {self.sql(node, 'to')}"

    def set_own(self, node: trees.SetOwn) -> str:
        return f"SET {self.sql(node, 'this')} = {self.sql(node, 'expression')}"

    def create_index(self, node: trees.CreateViewIndex) -> str:
        using = f" USING {self.sql(node, 'using')}" if node.args.get("using") else ""
        target = f"{self.sql(node, 'table')}{using} {self.enclosed(node.expressions)}"
        return f"{self._opening(node, 'UNIQUE INDEX' if node.args.get('unique') else 'INDEX')} ON {target}"

    def show_own(self, node: trees.ShowOwn) -> str:
        return f"SHOW {node.args['kind']}" + (f" FOR {self.sql(node, 'this')}" if node.this else "")

    def explain_view(self, node: trees.ExplainMaterializedView) -> str:
        return f"EXPLAIN MATERIALIZED VIEW {self.sql(node, 'this')}{self._with(node.args.get('options'))}"

    def explain_query(self, node: trees.ExplainMaterialized) -> str:
        shards = "".join(f", SHARDS {self.sql(o, 'expression')}" for o in node.args.get("options") or [])
        return f"EXPLAIN (MATERIALIZED{shards}) {self.sql(node, 'query')}"

    def explain_creation(self, node: trees.ExplainCreation) -> str:
        return f"EXPLAIN {self.sql(node, 'this')}"

    def explain_algebra(self, node: trees.ExplainAlgebra) -> str:
        return f"EXPLAIN (ALGEBRA) {self.sql(node, 'query')}"

    def check_view(self, node: trees.CheckMaterializedView) -> str:
        return f"CHECK MATERIALIZED VIEW {self.sql(node, 'this')}"

    def subscribe(self, node: trees.Subscribe) -> str:
        return f"SUBSCRIBE TO {self.sql(node, 'this')}{self._with(node.args.get('options'))}"


StatementPrinter.TRANSFORMS = {
    **QueryPrinter.TRANSFORMS,
    trees.Option: StatementPrinter.option,
    trees.CreateMaterializedView: StatementPrinter.create_view,
    trees.CreateChangeTable: StatementPrinter.create_table,
    trees.ChangeColumn: StatementPrinter.column_definition,
    trees.Drop: StatementPrinter.drop_own,
    trees.Refresh: StatementPrinter.refresh,
    trees.AlterMaterializedView: StatementPrinter.alter_view,
    trees.RenameMaterializedView: StatementPrinter.rename_view,
    trees.SetOwn: StatementPrinter.set_own,
    trees.CreateViewIndex: StatementPrinter.create_index,
    trees.ShowOwn: StatementPrinter.show_own,
    trees.ExplainMaterializedView: StatementPrinter.explain_view,
    trees.ExplainMaterialized: StatementPrinter.explain_query,
    trees.ExplainCreation: StatementPrinter.explain_creation,
    trees.ExplainAlgebra: StatementPrinter.explain_algebra,
    trees.CheckMaterializedView: StatementPrinter.check_view,
    trees.Subscribe: StatementPrinter.subscribe,
}
