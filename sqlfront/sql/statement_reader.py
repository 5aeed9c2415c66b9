"""Our own statements: materialized views, change tables, their indexes, and what asks about them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.query_reader import QueryReader
from sqlfront.sql.token_reader import TEXTS

_VIEW, _TABLE = "the view's name", "the table's name"
_SCOPES = ("SESSION", "LOCAL", "GLOBAL")
_SPELLINGS = {"MATERIALISED": "MATERIALIZED"}
_SWITCHES = {"TRUE": True, "FALSE": False, "ON": True, "OFF": False}


class StatementReader(QueryReader):
    """Reads a statement of ours by its first words, anything else as a query."""

    def _advance_chunk(self) -> None:
        super()._advance_chunk()
        self._words = [_SPELLINGS.get(word, word) for word in self._words]

    def statement(self) -> exp.Expr:
        first = self._index
        for words, read in _STATEMENTS.items():
            begin = 0
            if words[0] == "CREATE" and [self.token(n) for n in range(3)] == ["CREATE", "OR", "REPLACE"]:
                begin = 2
            following = ["CREATE" if begin else self.token(), *(self.token(begin + n) for n in range(1, len(words)))]
            if following == list(words):
                return self.noted(first, read(self))
        return self.query()

    def _opening(self, *words: str) -> tuple[bool, bool, exp.Table]:
        """CREATE [OR REPLACE] words [IF NOT EXISTS] name"""
        self.expect("CREATE")
        or_replace = self.accept("OR", "REPLACE")
        self.expect(*words)
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        begin = self._index
        name = self.qualified(_VIEW if words[-1] == "VIEW" else _TABLE)
        if or_replace and if_not_exists:
            self.raise_error("OR REPLACE and IF NOT EXISTS exclude each other", self._tokens[begin])
        return or_replace, if_not_exists, name

    def qualified(self, what: str) -> exp.Table:
        """[[database.]schema.]name, where any word is a name, as everywhere in our statements."""
        first = self._index
        parts = [self.label(what)]
        while self.accept("."):
            parts.append(self.label(what))
        if len(parts) > 3:
            self.raise_error("A name has at most a database, a schema and a name", self._tokens[first + 6])
        return self.noted(first, exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts)))))

    def create_view(self) -> exp.Expr:
        or_replace, if_not_exists, name = self._opening("MATERIALIZED", "VIEW")
        columns = self.enclosed(lambda: self.label("a column's name")) if self.token() == "(" else []
        options = self._options() if self.accept("WITH") else []
        self.expect("AS")
        return trees.CreateMaterializedView(
            this=name,
            columns=columns,
            options=options,
            query=self.query(),
            or_replace=or_replace,
            if_not_exists=if_not_exists,
        )

    def create_table(self) -> exp.Expr:
        or_replace, if_not_exists, name = self._opening("CHANGE", "TABLE")
        table = trees.CreateChangeTable(this=name, or_replace=or_replace, if_not_exists=if_not_exists)
        self._elements(table)
        if self.accept("WITH"):
            table.set("options", self._options())
        if self.accept("FROM"):
            table.set("source", self.label("the kind of source"))
            self.expect("OPTIONS")
            table.set("source_options", self._options())
        return table

    def _elements(self, table: trees.CreateChangeTable) -> None:
        """(column type constraints, ..., PRIMARY KEY (...), UNIQUE (...))"""
        self.expect("(")
        while True:
            place = self._tokens[self._index] if self._index < len(self._tokens) else None
            if self.token() == "PRIMARY" and self.token(1) == "KEY":
                self._advance(2)
                self._primary_key(table, self._key(), place)
            elif self.token() == "UNIQUE" and self.token(1) == "(":
                self._advance()
                table.append("unique", self._key())
            else:
                self._column(table)
            if not self.accept(","):
                break
        self.expect(")")
        if not table.expressions:
            self.raise_error("A table needs a column", self._prev)
        self._check_keys(table)

    def _primary_key(self, table: trees.CreateChangeTable, key: exp.Tuple, place: object) -> None:
        if table.args.get("primary_key") is not None:
            self.raise_error("A table has one primary key", place)  # type: ignore[arg-type]
        table.set("primary_key", key)

    def _key(self) -> exp.Tuple:
        first = self._index
        return self.noted(first, exp.Tuple(expressions=self.enclosed(lambda: self.label("a column's name"))))

    def _column(self, table: trees.CreateChangeTable) -> None:
        """name type [NOT NULL | NULL | DEFAULT expression | PRIMARY KEY | UNIQUE] ..."""
        first, place = self._index, self._tokens[self._index] if self._index < len(self._tokens) else None
        name = self.label("a column's name")
        if any(name.name.lower() == other.this.name.lower() for other in table.expressions):
            self.raise_error("A column is declared twice", place)
        column = trees.ChangeColumn(this=name, kind=self.type_name())
        while self.token() not in (",", ")"):
            begin = self._index
            if self.accept("NOT", "NULL"):
                column.set("not_null", True)
            elif self.accept("DEFAULT"):
                column.set("default", self._default())
            elif self.accept("PRIMARY", "KEY"):
                self._primary_key(table, exp.Tuple(expressions=[name.copy()]), self._tokens[begin])
            elif self.accept("UNIQUE"):
                table.append("unique", exp.Tuple(expressions=[name.copy()]))
            elif not self.accept("NULL"):
                self.raise_error("Expected NOT NULL, DEFAULT, PRIMARY KEY or UNIQUE")
        table.append("expressions", self.noted(first, column))

    def _default(self) -> exp.Expr:
        """An expression in which NOT NULL is a constraint, no operator."""
        first, this = self._index, self.conjunction(self.distinction)
        while self.accept("OR"):
            this = self.noted(first, exp.Or(this=this, expression=self.conjunction(self.distinction)))
        return this

    def _check_keys(self, table: trees.CreateChangeTable) -> None:
        names = {column.this.name.lower() for column in table.expressions}
        keys = [table.args.get("primary_key"), *table.args.get("unique", [])]
        for name in (name for key in keys if key is not None for name in key.expressions):
            if name.name.lower() not in names:
                start, _ = trees.span(name) or (0, 0)
                place = next(token for token in self._tokens if token.start == start)
                self.raise_error("A key names a column that the table does not have", place)

    def _options(self) -> list[trees.Option]:
        """(name = value, ...), each name once."""
        seen: set[str] = set()

        def option() -> trees.Option:
            first, place = self._index, self._tokens[self._index] if self._index < len(self._tokens) else None
            name = self.label("an option's name").name.lower()
            if name in seen:
                self.raise_error("An option is given twice", place)
            seen.add(name)
            self.expect("=")
            return self.noted(first, trees.Option(this=exp.var(name), expression=self.option_value()))

        return self.enclosed(option)

    def option_value(self) -> exp.Expr:
        """A number, a text, a switch or a word."""
        first = self._index
        if self.token() in ("-", ".") or self.kind() is TokenType.NUMBER:
            negative = self.accept("-")
            number: exp.Expr = self.number()
            return self.noted(first, exp.Neg(this=number) if negative else number)
        if self.kind() in TEXTS:
            return self.primary()
        word, name = self.token(), self.label("a value")
        return self.noted(first, exp.Boolean(this=_SWITCHES[word])) if word in _SWITCHES else name

    def _drop(self, *words: str) -> exp.Expr:
        self.expect("DROP", *words)
        if_exists = self.accept("IF", "EXISTS")
        name = self.qualified(_TABLE if words[-1] == "TABLE" else _VIEW)
        cascade = self.accept_any("CASCADE", "RESTRICT") == "CASCADE"
        return trees.Drop(this=name, kind=" ".join(words), if_exists=if_exists, cascade=cascade)

    def drop_view(self) -> exp.Expr:
        return self._drop("MATERIALIZED", "VIEW")

    def drop_table(self) -> exp.Expr:
        return self._drop("CHANGE", "TABLE")

    def drop_index(self) -> exp.Expr:
        return self._drop("INDEX")

    def create_index(self) -> exp.Expr:
        """CREATE [UNIQUE] INDEX [IF NOT EXISTS] name ON relation [USING kind] (order)"""
        self.expect("CREATE")
        unique = self.accept("UNIQUE")
        self.expect("INDEX")
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        name = self.label("the index's name")
        self.expect("ON")
        table = self.qualified(_VIEW)
        using = self.label("a kind of index") if self.accept("USING") else None
        columns = self.enclosed(self._ordered)
        return trees.CreateViewIndex(
            this=name, table=table, expressions=columns, if_not_exists=if_not_exists, unique=unique, using=using
        )

    def refresh_view(self) -> exp.Expr:
        self.expect("REFRESH", "MATERIALIZED", "VIEW")
        return trees.Refresh(kind="MATERIALIZED VIEW", expressions=[self.qualified(_VIEW)])

    def refresh_tables(self) -> exp.Expr:
        self.expect("REFRESH", "CHANGE", "TABLE")
        return trees.Refresh(kind="CHANGE TABLE", expressions=self.listed(lambda: self.qualified(_TABLE)))

    def alter_view(self) -> exp.Expr:
        self.expect("ALTER", "MATERIALIZED", "VIEW")
        name = self.qualified(_VIEW)
        if self.accept("RENAME"):
            if not self.accept("TO"):
                self.raise_error("Expected TO; CREATE OR REPLACE MATERIALIZED VIEW gives columns other names")
            return trees.RenameMaterializedView(this=name, to=self.label("the view's new name"))
        if not self.accept("SET"):
            self.raise_error("Expected SET (option = value) or RENAME TO name")
        return trees.AlterMaterializedView(this=name, options=self._options())

    def show_tables(self) -> exp.Expr:
        self.expect("SHOW", "CHANGE", "TABLES")
        return trees.ShowOwn(kind="CHANGE TABLES")

    def show_views(self) -> exp.Expr:
        self.expect("SHOW", "MATERIALIZED", "VIEWS")
        return trees.ShowOwn(kind="MATERIALIZED VIEWS")

    def show_state(self) -> exp.Expr:
        self.expect("SHOW", "STATE")
        return trees.ShowOwn(kind="STATE", this=self.qualified(_VIEW) if self.accept("FOR") else None)

    def show_errors(self) -> exp.Expr:
        self.expect("SHOW", "ERRORS", "FOR")
        return trees.ShowOwn(kind="ERRORS", this=self.qualified(_VIEW))

    def show_epochs(self) -> exp.Expr:
        self.expect("SHOW", "EPOCHS")
        return trees.ShowOwn(kind="EPOCHS")

    def explain_view(self) -> exp.Expr:
        self.expect("EXPLAIN", "MATERIALIZED", "VIEW")
        name = self.qualified(_VIEW)
        options = self._options() if self.accept("WITH") else []
        return trees.ExplainMaterializedView(this=name, options=options)

    def explain_query(self) -> exp.Expr:
        self.expect("EXPLAIN", "(", "MATERIALIZED")
        options = []
        if self.accept(",", "SHARDS"):
            first = self._index - 1
            options = [self.noted(first, trees.Option(this=exp.var("shards"), expression=self.option_value()))]
        self.expect(")")
        return trees.ExplainMaterialized(options=options, query=self.query())

    def explain_creation(self) -> exp.Expr:
        self.expect("EXPLAIN")
        first = self._index
        return trees.ExplainCreation(this=self.noted(first, self.create_view()))

    def explain_algebra(self) -> exp.Expr:
        self.expect("EXPLAIN", "(", "ALGEBRA", ")")
        return trees.ExplainAlgebra(query=self.query())

    def check_view(self) -> exp.Expr:
        self.expect("CHECK", "MATERIALIZED", "VIEW")
        return trees.CheckMaterializedView(this=self.qualified(_VIEW))

    def subscribe(self) -> exp.Expr:
        self.expect("SUBSCRIBE", "TO")
        name = self.qualified(_VIEW)
        options = self._options() if self.accept("WITH") else []
        return trees.Subscribe(this=name, options=options)

    def set_own(self) -> exp.Expr:
        self.expect("SET")
        if self.token() in _SCOPES:
            self._advance()
        name = self.label("a setting")
        if not self.accept("="):
            self.expect("TO")
        return trees.SetOwn(this=name, expression=self.option_value())


_STATEMENTS: dict[tuple[str, ...], Callable[[StatementReader], exp.Expr]] = {
    ("CREATE", "MATERIALIZED"): StatementReader.create_view,
    ("CREATE", "CHANGE"): StatementReader.create_table,
    ("CREATE", "INDEX"): StatementReader.create_index,
    ("CREATE", "UNIQUE"): StatementReader.create_index,
    ("DROP", "MATERIALIZED"): StatementReader.drop_view,
    ("DROP", "CHANGE"): StatementReader.drop_table,
    ("DROP", "INDEX"): StatementReader.drop_index,
    ("REFRESH", "CHANGE"): StatementReader.refresh_tables,
    ("REFRESH",): StatementReader.refresh_view,
    ("ALTER", "MATERIALIZED"): StatementReader.alter_view,
    ("SHOW", "CHANGE"): StatementReader.show_tables,
    ("SHOW", "MATERIALIZED"): StatementReader.show_views,
    ("SHOW", "STATE"): StatementReader.show_state,
    ("SHOW", "ERRORS"): StatementReader.show_errors,
    ("SHOW", "EPOCHS"): StatementReader.show_epochs,
    ("EXPLAIN", "MATERIALIZED"): StatementReader.explain_view,
    ("EXPLAIN", "CREATE"): StatementReader.explain_creation,
    ("EXPLAIN", "(", "MATERIALIZED"): StatementReader.explain_query,
    ("EXPLAIN", "(", "ALGEBRA"): StatementReader.explain_algebra,
    ("CHECK",): StatementReader.check_view,
    ("SUBSCRIBE",): StatementReader.subscribe,
    ("SET",): StatementReader.set_own,
}
