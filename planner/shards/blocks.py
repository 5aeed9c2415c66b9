"""The blocks of a query as a tree: which tables they read, and which hashes spread their rows.

Every shard computes the blocks by itself. A block's rows lie in the shards that agree with the hash of one of its
columns if the rows of the tables below it do, and none of its groups is in several of them: the hash is pushed down to
the variables that the column is. What no hash reaches is sent everywhere, and the block is then computed in full in
each shard. Both are right beside each other in a join as long as one of its atoms is spread: each row of the join is
then in one shard.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.model.query import Atom, Definition, LeafColumn

Path = tuple[str, ...]
"""An occurrence of a table: the name of its atom, behind those of the atoms that read the blocks around it."""

# Types of which equal values have one text: what is hashed is the text.
_TEXTS = (
    "BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "ENUM", "FLOAT", "HUGEINT", "INTEGER", "SMALLINT",
    "TIMESTAMP", "TIME", "TINYINT", "UBIGINT", "UHUGEINT", "UINTEGER", "USMALLINT", "UTINYINT", "UUID", "VARCHAR",
)  # fmt: skip
_WIDER = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_CAST = re.compile(r"CAST\((.+) AS ([A-Z]+)\)")


@dataclass(frozen=True)
class Dimension:
    """A coordinate of a grid: `shares` parts of a hash.

    What is hashed is a variable of the query, the row of one of its atoms or, with neither, something of a block or of
    an aggregate's argument. `values` are, by occurrence of a table, SQL over its columns, with types: those that agree
    in their hash meet.
    """

    label: str
    values: tuple[tuple[Path, tuple[tuple[str, str], ...]], ...]
    variable: str | None = None
    atom: str | None = None
    shares: int = 1

    @property
    def leaves(self) -> frozenset[Path]:
        return frozenset(path for path, _ in self.values)


class Blocks:
    """The blocks of a query, by the names under which atoms read them."""

    def __init__(self, definition: Definition) -> None:
        self._derived, self._unions = dict(definition.own_blocks), dict(definition.unions)

    def read_by(self, atom: Atom, path: Path) -> list[tuple[Path, Definition]]:
        """The blocks whose rows the atom at `path` reads, several of a union, with their paths; none for a table."""
        if atom.table in self._unions:
            branches = enumerate(self._unions[atom.table], 1)
            return [((*path, f"branch {number}"), self._derived[table]) for number, table in branches]
        return [(path, self._derived[atom.table])] if atom.table in self._derived else []

    def leaves(self, definition: Definition, path: Path = ()) -> Iterator[tuple[Path, Atom]]:
        """The occurrences of tables, in blocks too, and of the atoms that are left in distinct values only."""
        for atom in (*definition.atoms, *folded(definition)):
            own = (*path, atom.name)
            inner = self.read_by(atom, own)
            if not inner:
                yield own, atom
            for where, block in inner:
                yield from self.leaves(block, where)

    def is_never_empty(self, definition: Definition) -> bool:
        """Whether a join may have rows while all tables are empty: all that it reads has the row of a block without
        groups."""
        blocks = [[block for _, block in self.read_by(atom, ())] for atom in _required(definition)]
        return all(any(block.scalar or self.is_never_empty(block) for block in own) for own in blocks)

    def hashed(
        self, definition: Definition, variable: str, path: Path = (), as_type: str | None = None
    ) -> dict[Path, tuple[tuple[str, str], ...]]:
        """What the hash of a variable is of, by the occurrences of tables that it reaches; empty if it reaches none, or
        only atoms that may be missing: that there is no row of a key is not told by some of the rows."""
        found: dict[Path, tuple[tuple[str, str], ...]] = {}
        if not any(variable in atom.scheme for atom in _required(definition)):
            return found
        for atom in definition.atoms:
            for column in atom.variables:
                if column.name == variable:
                    found |= self._below(atom, column, (*path, atom.name), as_type or column.type)
        return found

    def cuts(self, definition: Definition, sizes: Mapping[str, float], path: Path = ()) -> list[Dimension]:
        """The hashes that spread the rows of a definition, each row in one shard; those of its output first.

        The rows of a block may only be spread by what tells its groups, or those of its QUALIFY, apart; those of the
        query itself by anything, as whoever reads them combines them.
        """
        columns = {column.name: column for atom in definition.atoms for column in atom.variables}
        order = dict.fromkeys((*definition.free, *columns))
        found = []
        for name in order:
            if is_hashable(columns[name].type) and (not path or name in _telling(definition)):
                label = definition.label(name)
                values = tuple(self.hashed(definition, name, path).items())
                own = Dimension(f"{label} of {path[-1]}" if path else label, values, None if path else name)
                found += [own] if values else []
        if not path or _keeps_all(definition):
            for atom in _required(definition):
                found += self._row_cuts(definition, atom, (*path, atom.name), sizes)
        return found

    def _row_cuts(self, definition: Definition, atom: Atom, path: Path, sizes: Mapping[str, float]) -> list[Dimension]:
        """The hashes of a table's rows, or those that spread the rows of a block, or of a union's branches."""
        inner = self.read_by(atom, path)
        if not inner:
            values = _row_values(definition, atom.name)
            return [Dimension(f"the row of {atom.name}", ((path, values),), atom=path[0])] if values else []
        choices = [self.cuts(block, sizes, where) for where, block in inner]
        if len(choices) == 1 or not all(choices):
            return choices[0] if len(choices) == 1 else []
        tables = {where: leaf.table for where, leaf in self.leaves(definition, path[:-1])}

        def rows(cut: Dimension) -> float:
            return sum(sizes.get(tables[leaf], 1.0) for leaf in cut.leaves)

        best = [max(own, key=rows) for own in choices]
        label = ", ".join(cut.label for cut in best)
        return [Dimension(label, tuple(value for cut in best for value in cut.values), atom=path[0])]

    def _below(
        self, atom: Atom, column: LeafColumn, path: Path, as_type: str
    ) -> dict[Path, tuple[tuple[str, str], ...]]:
        """What the hash of an atom's column is of; empty if it does not reach all of the atom's rows."""
        inner = self.read_by(atom, path)
        if not inner:
            return {path: ((column.expression, as_type),)}
        found: dict[Path, tuple[tuple[str, str], ...]] = {}
        for where, block in inner:
            variable = _shown_variable(block, column.expression, column.type)
            if variable is None or variable not in _telling(block):
                return {}
            below = self.hashed(block, variable, where, as_type)
            if not below:
                return {}
            found |= below
        return found


def is_hashable(type_: str) -> bool:
    """Whether equal values of a type have one text."""
    kind = type_.split("(")[0]
    return kind.split("_")[0] in _TEXTS and not type_.endswith("]")


def folded(definition: Definition) -> list[Atom]:
    """The atoms that are left in distinct values only (core.py): their variables are named apart from the view's, so
    that they are sent everywhere. A product has none."""
    own = {atom.name for atom in definition.atoms}
    return [atom for one in definition.distinct_sets for atom in one.definition.atoms if atom.name not in own]


def placed(definition: Definition, streams: Mapping[Path, str]) -> Definition:
    """The definition over the tables that occurrences read in a shard, with a block of its own for each way in which
    one is read. Foreign keys do not hold there."""
    return _Placing(definition, streams).whole


# Inside ------------------------------------------------------------------------------------------


class _Placing:
    """A definition's move to a shard."""

    def __init__(self, definition: Definition, streams: Mapping[Path, str]) -> None:
        self._blocks, self._streams = Blocks(definition), streams
        self._derived: list[tuple[str, Definition]] = []
        self._unions: list[tuple[str, tuple[str, ...]]] = []
        self._known: dict[tuple[Definition, ...], str] = {}
        moved = self._moved(definition, ())
        self.whole = replace(moved, derived=tuple(self._derived), unions=tuple(self._unions))

    def _moved(self, definition: Definition, path: Path) -> Definition:
        atoms = tuple(
            replace(atom, table=self._table(atom, (*path, atom.name)), references=()) for atom in definition.atoms
        )
        distinct_sets = tuple(
            replace(one, definition=self._moved(one.definition, path)) for one in definition.distinct_sets
        )
        # The branches of a union's first rows are stored in shards, not merged.
        return replace(definition, atoms=atoms, distinct_sets=distinct_sets, branches=())

    def _table(self, atom: Atom, path: Path) -> str:
        inner = self._blocks.read_by(atom, path)
        if not inner:
            return self._streams[path]
        blocks = tuple(self._moved(block, where) for where, block in inner)
        if blocks not in self._known:
            tables = tuple(map(self._add, blocks))
            self._known[blocks] = tables[0]
            if len(tables) > 1:
                self._known[blocks] = f'"__union"."{len(self._unions) + 1}"'
                self._unions.append((self._known[blocks], tables))
        return self._known[blocks]

    def _add(self, block: Definition) -> str:
        self._derived.append((f'"__derived"."{len(self._derived) + 1}"', block))
        return self._derived[-1][0]


def _row_values(definition: Definition, atom: str) -> tuple[tuple[str, str], ...]:
    """All that the view reads of an atom's rows, in distinct values and conditions too."""
    blocks = [definition, *(distinct_set.definition for distinct_set in definition.distinct_sets)]
    same = [own for block in blocks for own in block.atoms if own.name == atom]
    read = [(column.expression, column.type) for own in same for column in (*own.variables, *own.factors)]
    read += [column for own in same for condition in own.conditions for column in condition.columns]
    return tuple(dict.fromkeys(column for column in read if is_hashable(column[1])))


def _required(definition: Definition) -> list[Atom]:
    """The atoms of which each row of the join has a row."""
    return [atom for atom in definition.atoms if atom.is_certain]


def _keeps_all(definition: Definition) -> bool:
    """Whether each row of the join is a row of the definition."""
    return definition.mode == "bag" and definition.limit is None


def _telling(definition: Definition) -> Collection[str]:
    """The variables of which rows that differ in them have nothing to do with each other."""
    every = frozenset(column.name for atom in definition.atoms for column in atom.variables)
    own = every if definition.mode == "bag" else frozenset(definition.free)
    return own if definition.limit is None else own & set(definition.limit.variables or ())


def _shown_variable(definition: Definition, expression: str, type_: str) -> str | None:
    """The variable whose values an expression over a definition's columns has, perhaps as a wider type."""
    column, outer = _widened(expression)
    variables = {raw.name: raw for raw in definition.raw if raw.kind == "variable"}
    for text, (name, own) in zip(definition.projection, definition.columns, strict=True):
        if name.casefold() == column.casefold():
            shown, inner = _widened(text)
            raw = variables.get(shown)
            types = (raw.type, *inner, own, *outer, type_) if raw is not None else ()
            return raw.variable if raw is not None and _widens(types) else None
    return None


def _widened(expression: str) -> tuple[str, tuple[str, ...]]:
    """The column that an expression casts, and to which types; the expression itself if it is no such one."""
    types: tuple[str, ...] = ()
    while (cast := _CAST.fullmatch(expression.strip())) is not None:
        expression, types = cast[1], (cast[2], *types)
    name = expression.strip()
    return (name[1:-1].replace('""', '"') if name.startswith('"') else name), types


def _widens(types: tuple[str, ...]) -> bool:
    """Whether no value changes on its way through types."""
    if len(set(types)) == 1:
        return True
    if any(type_ not in _WIDER for type_ in types):
        return False
    ranks = [_WIDER.index(type_) for type_ in types]
    return ranks == sorted(ranks)
