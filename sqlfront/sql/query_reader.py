"""Queries: WITH, set operations, SELECT and its clauses, ORDER BY and LIMIT."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.primary_reader import QUERY_WORDS
from sqlfront.sql.table_reader import TableReader
from sqlfront.sql.token_reader import TEXTS


class QueryReader(TableReader):
    """Reads a query as DuckDB 2.0's grammar has it (src/parser/peg/grammar/statements/select.gram)."""

    def query(self) -> exp.Expr:
        """[WITH ...] selects joined by set operations [ORDER BY ...] [LIMIT ...]"""
        first = self._index
        with_ = self._with() if self.token() == "WITH" else None
        this = self._set_operations()
        if with_ is not None:
            if this.args.get("with_") is not None:
                this = exp.Subquery(this=this)
            this.set("with_", with_)
        order = self.order()
        if order is not None:
            this.set("order", order)
        self._limits(this)
        return self.noted(first, this)

    def _with(self) -> exp.With:
        first = self._index
        self.expect("WITH")
        recursive = self.accept("RECURSIVE")
        tables = [self._common_table()]
        while self.accept(","):
            if self.token() in QUERY_WORDS | {"("} and self.token(1) not in ("AS", "("):
                break
            tables.append(self._common_table())
        return self.noted(first, exp.With(expressions=tables, recursive=recursive or None))

    def _common_table(self) -> exp.CTE:
        first = self._index
        alias = exp.TableAlias(this=self.name_or_text())
        if self.token() == "(":
            alias.set("columns", self.names())
        self.noted(first, alias)
        keys = self.enclosed(self.target) if self.accept("USING", "KEY") else None
        self.expect("AS")
        materialized = None
        if self.accept("NOT", "MATERIALIZED"):
            materialized = False
        elif self.accept("MATERIALIZED"):
            materialized = True
        query = self.enclosed_query().this
        cte = exp.CTE(this=query, alias=alias, materialized=materialized, key_expressions=keys)
        return self.noted(first, cte)

    def _set_operations(self) -> exp.Expr:
        first, this = self._index, self._intersections()
        while word := self.accept_any("UNION", "EXCEPT"):
            this = self._set_operation(first, exp.Union if word == "UNION" else exp.Except, this)
        return this

    def _intersections(self) -> exp.Expr:
        first, this = self._index, self._select_atom()
        while self.accept("INTERSECT"):
            this = self._set_operation(first, exp.Intersect, this)
        return this

    def _set_operation(self, first: int, kind: type[exp.SetOperation], this: exp.Expr) -> exp.Expr:
        distinct = self.accept_any("ALL", "DISTINCT") != "ALL"
        by_name = self.accept("BY", "NAME") if kind is not exp.Intersect else False
        right = self._select_atom() if kind is exp.Intersect else self._intersections()
        return self.noted(first, kind(this=this, expression=right, distinct=distinct, by_name=by_name or None))

    def _select_atom(self) -> exp.Expr:
        first, word = self._index, self.token()
        if word == "(":
            return self.enclosed_query()
        if word in ("SELECT", "FROM"):
            return self._select()
        if word == "VALUES":
            return self.values()
        if word == "TABLE":
            self._advance()
            table = self.relation()
            return self.noted(first, exp.Select(expressions=[trees.Star()], from_=exp.From(this=table)))
        if word in ("PIVOT", "PIVOT_WIDER"):
            return self._pivot_query()
        if word in ("UNPIVOT", "PIVOT_LONGER"):
            return self._unpivot_query()
        if word in ("DESCRIBE", "DESC", "SHOW", "SUMMARIZE"):
            return self._describe()
        return self.raise_error("Expected SELECT")

    def _select(self) -> exp.Select:
        first, select = self._index, exp.Select()
        if self.token() == "FROM":
            self._from(select)
            if self.token() == "SELECT":
                self._select_list(select)
            else:
                select.set("expressions", [trees.Star()])
        else:
            self._select_list(select)
            if self.token() == "FROM":
                self._from(select)
        self._clauses(select)
        return self.noted(first, select)

    def _select_list(self, select: exp.Select) -> None:
        self.expect("SELECT")
        first = self._index
        if self.accept("DISTINCT"):
            distinct = exp.Distinct()
            if self.accept("ON"):
                begin = self._index
                distinct.set("on", self.noted(begin, exp.Tuple(expressions=self.enclosed(self.scalar))))
            select.set("distinct", self.noted(first, distinct))
        else:
            self.accept("ALL")
        select.set("expressions", self.listed(self.target))

    def _from(self, select: exp.Select) -> None:
        from_, joins = self.from_clause()
        select.set("from_", from_)
        if joins:
            select.set("joins", joins)

    def _clauses(self, select: exp.Select) -> None:
        first = self._index
        if self.accept("WHERE"):
            select.set("where", self.noted(first, exp.Where(this=self.scalar())))
        if self.token() == "GROUP":
            select.set("group", self._group())
        first = self._index
        if self.accept("HAVING"):
            select.set("having", self.noted(first, exp.Having(this=self.scalar())))
        if self.accept("WINDOW"):
            select.set("windows", self.listed(self._named_window))
        first = self._index
        if self.accept("QUALIFY"):
            select.set("qualify", self.noted(first, exp.Qualify(this=self.scalar())))
        if self.token() == "USING" and self.token(1) == "SAMPLE":
            self._advance()
            select.set("sample", self.sample())

    def _named_window(self) -> exp.Expr:
        first, window = self._index, trees.Window(this=self.identifier("a window"))
        self.expect("AS")
        self.window_definition(window)
        return self.noted(first, window)

    def _group(self) -> exp.Group:
        first = self._index
        self.expect("GROUP", "BY")
        if self.token() == "ALL" and self.token(1) != "(":
            self._advance()
            return self.noted(first, exp.Group(all=True))
        return self.noted(first, exp.Group(expressions=self.listed(self._group_item)))

    def _group_item(self) -> exp.Expr:
        first, word = self._index, self.token()
        if word in ("ROLLUP", "CUBE") and self.token(1) == "(":
            self._advance()
            kind = exp.Rollup if word == "ROLLUP" else exp.Cube
            return self.noted(first, kind(expressions=self.enclosed(self.scalar)))
        if self.accept("GROUPING", "SETS"):
            return self.noted(first, exp.GroupingSets(expressions=self.enclosed(self._group_item)))
        return self.scalar()

    def order(self) -> exp.Order | None:
        """ORDER BY, if it follows. NULLS and the direction are None where the session's settings decide."""
        first = self._index
        if self.token() != "ORDER" or self.token(1) != "BY":
            return None
        self._advance(2)
        return self.noted(first, exp.Order(expressions=self.listed(self._ordered)))

    def _ordered(self) -> exp.Ordered:
        first = self._index
        if self.token() == "ALL" and self.token(1) != "(":
            self._advance()
            this: exp.Expr = exp.var("ALL")
        else:
            this = self.scalar()
        direction = self.accept_any("ASC", "ASCENDING", "DESC", "DESCENDING")
        nulls_first = None
        if self.accept("NULLS"):
            nulls_first = self.accept("FIRST")
            if not nulls_first:
                self.expect("LAST")
        desc = direction.startswith("DESC") if direction else None
        return self.noted(first, exp.Ordered(this=this, desc=desc, nulls_first=nulls_first))

    def _limits(self, this: exp.Expr) -> None:
        """LIMIT and OFFSET in either order, or FETCH."""
        for _ in range(2):
            first = self._index
            if self.accept("LIMIT"):
                self._set_once(this, "limit", self.noted(first, self._limit()))
            elif self.accept("OFFSET"):
                offset = exp.Offset(expression=self.scalar())
                self.accept_any("ROW", "ROWS")
                self._set_once(this, "offset", self.noted(first, offset))
            elif self.accept("FETCH"):
                self._set_once(this, "limit", self.noted(first, self._fetch()))

    def _set_once(self, this: exp.Expr, key: str, clause: exp.Expr) -> None:
        if this.args.get(key) is not None:
            self.raise_error(f"{key.upper()} is given twice")
        this.set(key, clause)

    def _limit(self) -> exp.Limit:
        if self.accept("ALL"):
            return exp.Limit(expression=exp.var("ALL"))
        literal = self.attempt(self._percentage)
        if literal is not None:
            return exp.Limit(expression=literal, limit_options=exp.LimitOptions(percent=True))
        limit = exp.Limit(expression=self.scalar())
        if self.accept("%"):
            limit.set("limit_options", exp.LimitOptions(percent=True))
        return limit

    def _percentage(self) -> exp.Expr:
        literal = self.primary() if self.token() in ("?", "$") else self.number()
        if not self.accept("PERCENT") and not (self.token() == "%" and self._ends_after_sign()):
            self.raise_error("Expected PERCENT")
        self.accept("%")
        return literal

    def _ends_after_sign(self) -> bool:
        return self.kind(1) is None or self.token(1) in (")", "OFFSET")

    def _fetch(self) -> exp.Limit:
        if not self.accept_any("FIRST", "NEXT"):
            self.raise_error("Expected FIRST or NEXT")
        amount = exp.Literal.number(1) if self.token() in ("ROW", "ROWS") else self.scalar()
        if not self.accept_any("ROW", "ROWS"):
            self.raise_error("Expected ROWS")
        self.expect("ONLY")
        return exp.Limit(expression=amount)

    def _pivot_query(self) -> trees.PivotQuery:
        first = self._index
        self._advance()
        pivot = trees.PivotQuery(this=self.table_reference())
        if self.accept("ON"):
            pivot.set("on", self.listed(self._pivot_column))
        if self.accept("USING"):
            pivot.set("using", self.listed(self.target))
        if self.accept("GROUP", "BY"):
            pivot.set("group", self.names() if self.token() == "(" else self.listed(self.name_or_text))
        return self.noted(first, pivot)

    def _pivot_column(self) -> exp.Expr:
        return self.attempt(self.pivot_field) or self.scalar()

    def _unpivot_query(self) -> trees.PivotQuery:
        first = self._index
        self._advance()
        pivot = trees.PivotQuery(this=self.table_reference(), unpivot=True)
        self.expect("ON")
        pivot.set("on", self.listed(self.target))
        if self.accept("INTO", "NAME"):
            pivot.set("into", self.name_or_text())
            if not self.accept_any("VALUE", "VALUES"):
                self.raise_error("Expected VALUE")
            pivot.set("values", self.names() if self.token() == "(" else self.listed(self.name_or_text))
        return self.noted(first, pivot)

    def _describe(self) -> trees.Describe:
        first, word = self._index, self.token()
        self._advance()
        describe = trees.Describe(word="DESCRIBE" if word == "DESC" else word)
        if self.token() in QUERY_WORDS or self.token() == "(":
            describe.set("this", self.query())
        elif self.accept("ALL"):
            describe.set("this", exp.var("ALL TABLES" if self.accept("TABLES") else "ALL"))
        elif self.accept("TABLES", "FROM"):
            describe.set("this", exp.Tuple(expressions=[self.relation()]))
        elif self.kind() in TEXTS:
            describe.set("this", self.primary())
        elif self.kind() in (TokenType.VAR, TokenType.IDENTIFIER):
            describe.set("this", self.relation())
        return self.noted(first, describe)
