"""A view's query made independent of what its tables get later, and of the search path.

`ALTER TABLE ADD COLUMN` changes what `*`, NATURAL and USING mean, makes bare names ambiguous, and lets a
column take the place of an alias. So a stored query reads each table through a subquery that names
its present columns, `FROM t` becomes `FROM (SELECT "a" AS "a" FROM main.t AS "t") AS "t"`, and plain
views are replaced by their text. A renaming then changes the subqueries alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from sqlfront.binding.table_catalog import CatalogView
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one, printed
from sqlfront.sql.keywords import quoted
from sqlfront.storage.capture.trigger_sql import QualifiedName
from sqlfront.storage.sql_text import quote


def frozen_tree(tree: exp.Expr, catalog: CatalogView) -> exp.Expr:
    """The query with each table and plain view replaced by a subquery over what it is now. The tree, which has been
    bound, is changed."""
    freezing = _Freezing(catalog)
    tree = freezing.visit(tree, frozenset())
    for column in tree.find_all(exp.Column):
        freezing.unqualify(column)
    return tree


class _Freezing:
    """One query; `qualified` are the names, folded, by which columns may be qualified and subqueries may not."""

    def __init__(self, catalog: CatalogView) -> None:
        self._catalog = catalog
        self._qualified: set[tuple[str, ...]] = set()

    def visit(self, node: exp.Expr, named: frozenset[str]) -> exp.Expr:
        """A tree with the tables in it replaced, but those that are `named` by WITH. No recursion: a chain of 1,000
        conditions or 500 branches is as deep as it is long."""
        waiting, found = [(node, named)], list[tuple[exp.Table, frozenset[str]]]()
        while waiting:
            part, names = waiting.pop()
            with_ = part.args.get("with_")
            recursive = with_ is not None and with_.args.get("recursive")
            for cte in with_.expressions if with_ is not None else ():
                own = {cte.alias.casefold()} if recursive else frozenset[str]()
                waiting.append((cte.this, names | own))
                names |= {cte.alias.casefold()}
            waiting += [(child, names) for child in part.iter_expressions() if child is not with_]
            if isinstance(part, exp.Table) and isinstance(part.this, exp.Identifier):
                found.append((part, names))
        new: dict[int, exp.Expr] = {}
        for table, names in reversed(found):  # A table's joins before the table that takes them along.
            new[id(table)] = self._replaced(table, names)
        return new.get(id(node), node)

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
            alias = exp.TableAlias(this=_quoted(name))
            schema = self._catalog.parts(table)[-2].casefold()
            self._qualified |= {(schema, name.casefold()), tuple(part.casefold() for part in parts[-3:])}
        rest = {key: node.args[key] for key in ("joins", "sample", "when") if node.args.get(key)}
        subquery = exp.Subquery(this=self._columns(table, name), alias=alias, **rest)
        node.replace(subquery)
        return subquery

    def _columns(self, table: str, name: str) -> exp.Expr:
        """The present columns of a table, or a plain view's query."""
        catalog = self._catalog
        is_view = not catalog.is_change_table(table) and catalog.view_sql(table) is not None
        called = _quoted(name)
        if is_view and (text := catalog.inlined(table)) is not None:
            names, select = text
            columns = [_quoted(one) for one in names] or None
            alias = exp.TableAlias(this=called, columns=columns)
            inside: exp.Expr = exp.Subquery(this=frozen_tree(parse_one(select), catalog), alias=alias)
            shown: list[exp.Expr] = [trees.Star()]
        else:
            schema, own = map(_plain, catalog.parts(table)[-2:])
            inside = exp.Table(this=own, db=schema, alias=exp.TableAlias(this=called))
            names = [quote(name) for name, *_ in catalog.columns(table) or ()]
            shown = [exp.var(f"{name} AS {name}") for name in names]
        return exp.Select(expressions=shown, from_=exp.From(this=inside))


def renamed_query(
    frozen: str, tables: Mapping[tuple[str, str], QualifiedName], columns: Mapping[tuple[str, str], Mapping[str, str]]
) -> str:
    """A frozen query after a renaming of `tables`, and of `columns` of tables, all by the keys of the old names."""
    tree = parse_one(frozen)
    for source, select in _sources(tree):
        key = QualifiedName(source.db, source.name).key
        if new := tables.get(key):
            source.set("db", _plain(new.schema))
            source.set("this", _plain(new.name))
        renamed = {old.casefold(): name for old, name in columns.get(key, {}).items()}
        for column in _listed(select):
            if column.name.casefold() in renamed:
                column.set("this", _quoted(renamed[column.name.casefold()]))
    return printed(tree)


def listed_columns(frozen: str, table: QualifiedName) -> list[str]:
    """The columns of a table that a frozen query's subqueries name."""
    return [column.name for _, select in _sources(parse_one(frozen), table) for column in _listed(select)]


def over_names(frozen: str, names: Mapping[tuple[str, str], str]) -> tuple[str, list[tuple[str, str]]]:
    """A frozen query that reads these relations by other names, without a schema, and those of them that it reads."""
    tree, read = parse_one(frozen), list[tuple[str, str]]()
    for source, _ in _sources(tree):
        key = QualifiedName(source.db, source.name).key
        if key in names:
            source.set("db", None)
            source.set("this", _quoted(names[key]))
            read.append(key)
    return printed(tree), read


def without_columns(frozen: str, table: QualifiedName, gone: Collection[str]) -> tuple[str, list[str]]:
    """A frozen query after columns of `table` have gone, and those of them that it cannot go without.

    What is named nowhere but in the subqueries can go. Anything else is missed, even where it is another table's column
    of the name: left out, the name could come to mean that one, or an alias. NATURAL names all columns.
    """
    if not gone:
        return frozen, []
    tree = parse_one(frozen)
    lost = {name.casefold() for name in gone}
    natural = any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join))
    within = {id(name) for _, select in _sources(tree) for name in select.find_all(exp.Identifier)}
    named = {name.name.casefold() for name in tree.find_all(exp.Identifier) if id(name) not in within}
    sources = _sources(tree, table)
    for _, select in sources:
        kept = [column.parent for column in _listed(select) if column.name.casefold() not in lost]
        select.set("expressions", kept or [exp.Literal.number(1)])
    return printed(tree), [name for name in gone if sources and (natural or name.casefold() in named)]


def qualified_query(frozen: str, database: str) -> str:
    """A frozen query with the database before each table: no temporary table of the session takes its place."""
    return printed(with_database(parse_one(frozen), database))


def with_database(frozen: exp.Expr, database: str) -> exp.Expr:
    """A frozen query with the database before each table. The tree is changed."""
    for source, _ in _sources(frozen):
        source.set("catalog", _quoted(database))
    return frozen


def _sources(tree: exp.Expr, of: QualifiedName | None = None) -> list[tuple[exp.Table, exp.Select]]:
    """The tables that a frozen query reads, which alone have a schema, each with its subquery; or those of a name."""
    tables = [table for table in tree.find_all(exp.Table) if table.args.get("db") is not None]
    meant = [table for table in tables if of is None or QualifiedName(table.db, table.name).key == of.key]
    return [(table, select) for table in meant if (select := table.parent_select) is not None]


def _listed(select: exp.Select) -> list[exp.Column]:
    """The columns in `SELECT a AS b, c AS d FROM ...`."""
    return [item.this for item in select.expressions if isinstance(item.this, exp.Column)]


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _plain(name: str) -> exp.Identifier:
    """A name, quoted where it must be."""
    return exp.to_identifier(name, quoted=quoted(name) != name)
