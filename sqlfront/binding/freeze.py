"""A view's query made independent of what its tables get later, and of the search path.

`ALTER TABLE ADD COLUMN` changes what `*`, NATURAL and USING mean, makes bare names ambiguous, and lets a
column take the place of an alias. So a stored query reads each table through a subquery that names
its present columns, `FROM t` becomes `FROM (SELECT "a" AS "a" FROM main.t AS "t") AS "t"`, and plain
views are replaced by their text. A renaming then changes the subqueries alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sqlglot import exp

from sqlfront.binding.table_catalog import CatalogView, view_parts
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one
from sqlfront.sql.keywords import quoted
from sqlfront.sql.passthrough import classify
from sqlfront.sql.statements import TableReference
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.capture.trigger_sql import QualifiedName
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.sql_text import quote

Edit = tuple[int, int, str]


def frozen_tree(tree: exp.Expr, catalog: CatalogView) -> exp.Expr:
    """The query with each table and plain view replaced by a subquery over what it is now. The tree, which has been
    bound, is changed."""
    freezing = _Freezing(catalog)
    tree = freezing.visit(tree, frozenset())
    for column in tree.find_all(exp.Column):
        freezing.unqualify(column)
    return tree


def with_database(frozen: exp.Expr, database: str) -> exp.Expr:
    """A frozen query with the database before each table, which alone have a schema. The tree is changed."""
    for table in frozen.find_all(exp.Table):
        if table.args.get("db") is not None:
            table.set("catalog", _quoted(database))
    return frozen


class _Freezing:
    """One query; `qualified` are the names, folded, by which columns may be qualified and subqueries may not."""

    def __init__(self, catalog: CatalogView) -> None:
        self._catalog = catalog
        self._qualified: set[tuple[str, ...]] = set()

    def visit(self, node: exp.Expr, named: frozenset[str]) -> exp.Expr:
        """A tree with the tables in it replaced, but those that are `named` by WITH."""
        with_ = node.args.get("with_")
        if with_ is not None:
            for cte in with_.expressions:
                own = {cte.alias.casefold()} if with_.args.get("recursive") else frozenset[str]()
                self.visit(cte.this, named | own)
                named |= {cte.alias.casefold()}
        for child in list(node.iter_expressions()):
            if child is not with_:
                self.visit(child, named)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._replaced(node, named)
        return node

    def unqualify(self, column: exp.Column) -> None:
        """schema.t.a as t.a: a subquery has no schema."""
        names = [part.name.casefold() for part in column.parts]
        for length in (3, 2):
            if len(names) > length and tuple(names[:length]) in self._qualified:
                parts = column.parts[length - 1 :]
                column.set("db", None)
                column.set("catalog", None)
                column.set("this", parts[1])
                column.set("table", parts[0])
                for field in parts[2:]:
                    column.replace(exp.Dot(this=column.copy(), expression=field))
                return

    def _replaced(self, node: exp.Table, named: frozenset[str]) -> exp.Expr:
        parts = [part.name for part in node.parts]
        table = None if len(parts) == 1 and parts[0].casefold() in named else self._catalog.resolve(parts)
        if table is None:
            return node
        alias = node.args.get("alias")
        name = node.alias_or_name
        if alias is None:
            alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
            schema = self._catalog.parts(table)[-2].casefold()
            self._qualified |= {(schema, name.casefold()), tuple(part.casefold() for part in parts[-3:])}
        rest = {key: node.args[key] for key in ("joins", "sample", "when") if node.args.get(key)}
        subquery = exp.Subquery(this=self._columns(table, name), alias=alias, **rest)
        node.replace(subquery)
        return subquery

    def _columns(self, table: str, name: str) -> exp.Expr:
        """The present columns of a table, or a plain view's query."""
        catalog = self._catalog
        sql = None if catalog.is_change_table(table) else catalog.view_sql(table)
        called = exp.to_identifier(name, quoted=True)
        if sql is not None:
            names, select = view_parts(sql)
            columns = [exp.to_identifier(one, quoted=True) for one in names] or None
            alias = exp.TableAlias(this=called, columns=columns)
            inside: exp.Expr = exp.Subquery(this=frozen_tree(parse_one(select), catalog), alias=alias)
            shown: list[exp.Expr] = [trees.Star()]
        else:
            schema, own = (exp.to_identifier(one, quoted=quoted(one) != one) for one in catalog.parts(table)[-2:])
            inside = exp.Table(this=own, db=schema, alias=exp.TableAlias(this=called))
            shown = [
                exp.Alias(this=exp.Column(this=_quoted(column[0])), alias=_quoted(column[0]))
                for column in catalog.columns(table) or ()
            ]
        return exp.Select(expressions=shown, from_=exp.From(this=inside))


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def renamed_query(frozen: str, table: QualifiedName, new: str, columns: dict[str, str]) -> str:
    """A frozen query after a renaming: `table` is called `new` (SQL text), and `columns` of it have new names."""
    tokens = tokenize(frozen)
    columns = {old.casefold(): name for old, name in columns.items()}
    edits: list[Edit] = []
    for reference in _references(frozen):
        if QualifiedName(*reference.parts).key == table.key:
            at = next(i for i, token in enumerate(tokens) if token.start == reference.start)
            edits.append((reference.start, reference.end, new))
            edits += [
                (token.start, token.end, quote(columns[token.name.casefold()]))
                for token in _source_columns(tokens, at)
                if token.name.casefold() in columns
            ]
    return _edited(frozen, edits)


def without_columns(frozen: str, table: QualifiedName, gone: Collection[str]) -> tuple[str, list[str]]:
    """A frozen query after columns of `table` have gone, and those of them that it cannot go without.

    What is named nowhere but in the subqueries can go. Anything else is missed, even where it is another table's column
    of the name: left out, the name could come to mean that one, or an alias. NATURAL names all columns.
    """
    tokens = tokenize(frozen)
    listed: set[int] = set()
    edits: list[Edit] = []
    lost = {name.casefold() for name in gone}
    for reference in _references(frozen):
        at = next(i for i, token in enumerate(tokens) if token.start == reference.start)
        columns = list(_source_columns(tokens, at))[::-1]
        aliases = [tokens[tokens.index(column) + 2] for column in columns]
        listed |= {token.start for token in [*columns, *aliases]}
        if columns and QualifiedName(*reference.parts).key == table.key:
            kept = [column for column in columns if column.name.casefold() not in lost]
            text = ", ".join(f"{quote(column.name)} AS {quote(column.name)}" for column in kept)
            edits.append((columns[0].start, aliases[-1].end, text or "1 AS one"))
    natural = any(token.keyword == "natural" for token in tokens)
    named = {token.name.casefold() for token in tokens if token.is_name and token.start not in listed}
    missed = [name for name in gone if edits and (natural or name.casefold() in named)]
    return _edited(frozen, edits) if gone else frozen, missed


def qualified_query(frozen: str, database: str) -> str:
    """A frozen query with the database before each table: no temporary table of the session takes its place."""
    places = [reference.start for reference in _references(frozen)]
    return _edited(frozen, [(place, place, f"{quote(database)}.") for place in places])


def _references(query: str) -> tuple[TableReference, ...]:
    found = classify(query, 0).references
    if found is None:
        raise NotSupportedError(
            "this query cannot be stored", why="it does not show where it names its tables", hint="name them in FROM"
        )
    return found


def _source_columns(tokens: Sequence[Token], at: int) -> Iterator[Token]:
    """The columns in `SELECT a AS b, c AS d FROM`, which ends before the token `at`."""
    at -= 2
    while tokens[at].is_name and tokens[at - 1].keyword == "as":
        yield tokens[at - 2]
        at -= 4


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text
