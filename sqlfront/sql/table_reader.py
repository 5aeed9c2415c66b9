"""FROM: tables, functions, subqueries and VALUES with their aliases, joined and pivoted."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.keywords import OPERATORS, RESERVED
from sqlfront.sql.operator_reader import OperatorReader
from sqlfront.sql.token_reader import TEXTS

_NEAREST = ("NEAREST", "APPROX", "EXACT")


class TableReader(OperatorReader):
    """Reads table references into `From` and `Join` nodes, in sqlglot's form: the first table, then all joins."""

    def from_clause(self) -> tuple[exp.From, list[exp.Expr]]:
        """FROM and what is joined to its first table. A comma is a join without kind."""
        first = self._index
        self.expect("FROM")
        begin = self._index
        source, joins = self._joined()
        node = exp.From(this=source)
        while self.token() == ",":
            comma = self._index
            self._advance()
            if self.kind() is None or self.token() in RESERVED - {"LATERAL"} - {"TABLE"}:
                break
            item = self.table_reference()
            joins.append(self.noted(comma, exp.Join(this=item)))
        self.noted(first, node)
        if node.this.meta.get(trees.SPAN) is None:
            self.noted(begin, node.this)
        return node, joins

    def table_reference(self) -> exp.Expr:
        """A table with all that is joined to it, kept in its `joins`."""
        first = self._index
        source, joins = self._joined()
        if not joins:
            return source
        if "joins" not in source.arg_types:
            source = exp.Table(this=source)
        source.set("joins", joins)
        return self.noted(first, source)

    def _joined(self) -> tuple[exp.Expr, list[exp.Expr]]:
        source = self._source()
        joins: list[exp.Expr] = []
        while (join := self._join() or self._pivot()) is not None:
            joins.append(join)
        return source, joins

    def _source(self) -> exp.Expr:
        first = self._index
        alias = None
        if self.token(1) == ":" and self.kind() in (TokenType.VAR, TokenType.IDENTIFIER, *TEXTS):
            alias = exp.TableAlias(this=self.name_or_text())
            self._advance()
        source = self._unaliased()
        if self.accept("WITH", "ORDINALITY"):
            source.set("ordinality", True)
        if alias is None:
            alias = self._alias()
        if alias is not None:
            source.set("alias", alias)
        if self.token() == "AT" and self.token(1) == "(":
            source.set("when", self._at())
        if self.token() == "TABLESAMPLE":
            source.set("sample", self.sample())
        return self.noted(first, source)

    def _unaliased(self) -> exp.Expr:
        first = self._index
        lateral = self.accept("LATERAL")
        if self.token() == "VALUES" and self.token(1) == "(":
            return self.values()
        if self.token() == "(":
            query = self.attempt(self.enclosed_query)
            if query is not None:
                return exp.Lateral(this=query) if lateral else query
            self._advance()
            inner = self.table_reference()
            self.expect(")")
            return exp.Subquery(this=inner)
        if self.kind() in TEXTS:
            return exp.Table(this=self.name_or_text())
        parts = [self.identifier("a table", RESERVED | (OPERATORS - {"GLOB"} if self.token(1) == "(" else OPERATORS))]
        while self.accept("."):
            parts.append(self.label("a table"))
        if self.token() == "(":
            called = self.call(first, parts)
            return exp.Lateral(this=called) if lateral else exp.Table(this=called)
        self._retreat(first)
        return self.relation()

    def _alias(self) -> exp.TableAlias | None:
        first = self._index
        if self.accept("AS"):
            alias = exp.TableAlias(this=self.name_or_text())
        elif self.kind() in (TokenType.VAR, TokenType.IDENTIFIER) and self.token() not in RESERVED | OPERATORS:
            if self.token() in _NEAREST and (self.kind(1) is TokenType.NUMBER or self.token(1) in ("BY", "NEAREST")):
                return None
            alias = exp.TableAlias(this=self.identifier())
        else:
            return None
        if self.token() == "(":
            alias.set("columns", self.names())
        return self.noted(first, alias)

    def _at(self) -> trees.At:
        first = self._index
        self.expect("AT", "(")
        unit = self.accept_any("VERSION", "TIMESTAMP") or self.raise_error("Expected VERSION or TIMESTAMP")
        self.expect("=>")
        at = trees.At(this=unit, expression=self.scalar())
        self.expect(")")
        return self.noted(first, at)

    def sample(self) -> trees.Sample:
        """The sample after TABLESAMPLE or USING SAMPLE, as text."""
        self._advance()
        first = self._index
        if self.kind() is TokenType.VAR:
            self._advance()
        if self.token() == "(":
            self.skip_enclosed()
        else:
            if self.token() in ("?", "$"):
                self.primary()
            else:
                self.number()
            self.accept_any("%", "PERCENT", "ROWS")
            if self.token() == "(":
                self.skip_enclosed()
        if self.accept("REPEATABLE"):
            self.skip_enclosed()
        return self.noted(first, trees.Sample(this=self.source(first)))

    def values(self) -> exp.Values:
        first = self._index
        self.expect("VALUES")
        return self.noted(first, exp.Values(expressions=self.listed(self._row)))

    def _row(self) -> exp.Tuple:
        first = self._index
        return self.noted(first, exp.Tuple(expressions=self.enclosed(self.scalar)))

    def _join(self) -> exp.Join | None:
        first = self._index
        join = exp.Join()
        for word in ("CROSS", "POSITIONAL"):
            if self.accept(word, "JOIN"):
                join.set("kind", word)
                join.set("this", self._source())
                return self.noted(first, join)
        natural, asof = self.accept("NATURAL"), self.accept("ASOF")
        if natural or asof:
            join.set("method", "NATURAL" if natural else "ASOF")
        side = self.accept_any("LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "INNER")
        if side in ("LEFT", "RIGHT", "FULL"):
            join.set("side", side)
            self.accept("OUTER")
        elif side:
            join.set("kind", side)
        if not self.accept("JOIN"):
            if natural or asof or side:
                self.raise_error("Expected JOIN")
            return None
        if self.accept("BY", "("):
            self._join_type(join)
        if natural:
            join.set("this", self._source())
        else:
            join.set("this", self.table_reference())
            self._qualify_join(join)
        return self.noted(first, join)

    def _join_type(self, join: exp.Join) -> None:
        """JOIN BY (TYPE left_join)"""
        self.expect("TYPE")
        words = self.label("a join's type").name.upper().removesuffix("_JOIN").split("_")
        if words[0] in ("LEFT", "RIGHT", "FULL"):
            join.set("side", words.pop(0))
        words = [word for word in words if word != "OUTER"]
        join.set("kind", " ".join(words) or None)
        self.expect(")")

    def _qualify_join(self, join: exp.Join) -> None:
        if self.accept("ON"):
            join.set("on", self.scalar())
        elif self.accept("USING"):
            join.set("using", self.names())
        else:
            join.set("nearest", self._nearest())

    def _nearest(self) -> exp.Nearest:
        first = self._index
        approximate = self.accept("APPROX")
        if not approximate:
            self.accept("EXACT")
        if not self.accept("NEAREST"):
            self.raise_error("Expected ON or USING")
        count = self.number() if self.kind() is TokenType.NUMBER else exp.Literal.number(1)
        self.expect("BY")
        measure = self.accept_any("DISTANCE", "SIMILARITY") or self.raise_error("Expected DISTANCE or SIMILARITY")
        nearest = exp.Nearest(
            this=self.scalar(), count=count, approximate=approximate, similarity=measure == "SIMILARITY"
        )
        return self.noted(first, nearest)

    def _pivot(self) -> trees.Pivot | None:
        first = self._index
        if self.token() == "PIVOT":
            self._advance()
            self.expect("(")
            pivot = trees.Pivot(expressions=self.listed(self.target))
        elif self.token() == "UNPIVOT":
            self._advance()
            nulls = self.accept_any("INCLUDE", "EXCLUDE")
            if nulls:
                self.expect("NULLS")
            self.expect("(")
            pivot = trees.Pivot(expressions=[self._unpivot_header()], unpivot=True, nulls=nulls)
        else:
            return None
        self.expect("FOR")
        fields = [self.pivot_field()]
        while self.token() not in (")", "GROUP"):
            fields.append(self.pivot_field())
        pivot.set("fields", fields)
        if self.accept("GROUP", "BY"):
            pivot.set("group", self.names() if self.token() == "(" else self.listed(self.name_or_text))
        self.expect(")")
        pivot.set("alias", self._alias())
        return self.noted(first, pivot)

    def _unpivot_header(self) -> exp.Expr:
        first = self._index
        if self.token() == "(":
            return self.noted(first, exp.Tuple(expressions=self.names()))
        return self.name_or_text()

    def pivot_field(self) -> trees.PivotField:
        """column IN (value [AS name], ...), or IN enum, or IN (query)"""
        first = self._index
        field = trees.PivotField(this=self._signed())
        self.expect("IN")
        if self.token() != "(":
            field.set("enum", self.identifier("an enum"))
            return self.noted(first, field)
        query = self.attempt(self.enclosed_query)
        if query is not None:
            field.set("query", query)
        else:
            field.set("expressions", self.enclosed(self.target))
        return self.noted(first, field)

    def target(self) -> exp.Expr:
        """expression [[AS] name], or name: expression"""
        first = self._index
        if self.token(1) == ":" and self.kind() in (TokenType.VAR, TokenType.IDENTIFIER):
            name = self.identifier()
            self._advance()
            return self.noted(first, exp.Alias(this=self.scalar(), alias=name))
        this = self.scalar()
        alias = self.label_or_text() if self.accept("AS") else self.bare_label()
        return this if alias is None else self.noted(first, exp.Alias(this=this, alias=alias))
