"""What each atom's leaf computes: variables (join, group, output columns) and factors (summed columns)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlfront.bind.conditions import ComparedSides, Conditions, bound_columns, equated_columns
from sqlfront.bind.from_clause import AtomTable
from sqlfront.bind.refusals import refusal
from sqlfront.bind.result_types import Typing, is_nested, never_null
from sqlfront.planner.model.query import Atom, Comparison, Condition, LeafColumn, Reference
from sqlfront.sql.parse_tree import (
    LOCATION_KEYS,
    SourceText,
    Tree,
    atoms_of,
    column_ref,
    columns_of,
    expression,
    key,
    quoted,
    render,
    render_all,
    span,
)
from sqlfront.sql.tokens import tokenize


@dataclass
class _Variable:
    name: str
    type: str
    members: dict[str, Tree]
    label: str


class Leaves:
    """Collects variables and factors while the output is bound; `build` then gives the atoms."""

    def __init__(self, atoms: list[AtomTable], conditions: Conditions, typing: Typing, source: SourceText) -> None:
        self._atoms = {atom.name: atom for atom in atoms}
        self._conditions, self._typing, self._source = conditions, typing, source
        self._names: set[str] = set()
        self._variables: dict[str, _Variable] = {}
        self._by_element: dict[tuple[str, str], str] = {}
        self._factors: dict[tuple[str, str], tuple[str, Tree]] = {}
        for equality_class in conditions.classes:
            name = self._declare(equality_class.type, equality_class.members)
            for element in equality_class.elements:
                self._by_element[element] = name
            for atom, tree in equality_class.members.items():
                self._by_element.setdefault((atom, key(self._cast(tree, equality_class.type))), name)
        self.comparisons = tuple(dict.fromkeys(self._compare(sides) for sides in conditions.comparisons))

    def variable(self, tree: Tree) -> str:
        """The variable that holds an expression of one atom; made if there is none. Raises NotSupportedError."""
        element = (next(iter(atoms_of(tree))), key(tree))
        if element not in self._by_element:
            kind = self._typing.type_of(tree)
            if is_nested(kind):
                why = "lists, structs and maps cannot be columns of a view yet"
                raise refusal(f"A column of type {kind}", self._source, span(tree), why, "put out its fields")
            self._by_element[element] = self._declare(kind, {element[0]: tree})
        return self._by_element[element]

    def variable_type(self, name: str) -> str:
        return self._variables[name].type

    def reference(self, tree: Tree) -> Tree:
        """The expression's value as read from its variable, in the expression's own type."""
        name, kind = self.variable(tree), self._typing.type_of(tree)
        value = column_ref(name)
        return value if self._variables[name].type == kind else expression(f"CAST(v AS {kind})", v=value)

    def factor(self, tree: Tree, atom: str) -> str:
        """The name of the factor that computes `tree` in the atom's leaf."""
        element = (atom, key(tree))
        if element not in self._factors:
            plain = tree["class"] == "COLUMN_REF"
            base = tree["column_names"][1] if plain else f"{atom}_factor"
            name = self._free_name([f"{base}_sum", f"{atom}_{base}"] if plain else [base])
            self._factors[element] = (name, tree)
        return self._factors[element][0]

    def never_null(self, tree: Tree) -> bool:
        """Whether the expression has a value in every row of the join; sound, not complete."""

        def has_value(column: Tree) -> bool:
            atom, name = column["column_names"]
            return self._is_join_column(column) or bool(self._atoms[atom].column(name)[2])

        return never_null(tree, has_value, self._typing)

    def unused_name(self, base: str) -> str:
        """A name no variable or factor has, reserved for the caller."""
        return self._free_name([base])

    def build(self) -> tuple[Atom, ...]:
        """The atoms with all that was asked for."""
        self._typing.types_of([tree for _, tree in self._factors.values()])
        columns = [(v.name, atom, tree, v.type) for v in self._variables.values() for atom, tree in v.members.items()]
        factors = [(name, atom, tree, self._typing.type_of(tree)) for (atom, _), (name, tree) in self._factors.items()]
        casts = [self._cast(tree, kind) for _, _, tree, kind in (*columns, *factors)]
        texts = render_all(casts, _leaf_column)
        made = [
            (atom, self._column(name, tree, kind, text))
            for (name, atom, tree, kind), text in zip((*columns, *factors), texts, strict=True)
        ]
        variables, sums, where = made[: len(columns)], made[len(columns) :], self._where()
        return tuple(
            self._atom(atom, _of(variables, atom.name), _of(sums, atom.name), _of(where, atom.name))
            for atom in self._atoms.values()
        )

    def labels(self) -> tuple[tuple[str, str], ...]:
        return tuple((variable.name, variable.label) for variable in self._variables.values())

    def _compare(self, sides: ComparedSides) -> Comparison:
        """The comparison of variables that hold both sides in the type in which they are compared."""
        return Comparison(self._held(sides.left, sides.type), sides.operator, self._held(sides.right, sides.type))

    def _held(self, tree: Tree, type_: str) -> str:
        """The variable that holds an expression's value in a type."""
        known = self._by_element.get((next(iter(atoms_of(tree))), key(tree)))
        if known is not None and self._variables[known].type == type_:
            return known
        if known is None and self._typing.type_of(tree) == type_:
            return self.variable(tree)
        cast = expression(f"CAST(v AS {type_})", v=tree)
        return self.variable(cast | {name: tree[name] for name in LOCATION_KEYS if name in tree})

    def _is_never_null(self, variable: _Variable) -> bool:
        """Whether a row whose variable is NULL joins nothing."""
        compared = any(variable.name in comparison.scheme for comparison in self.comparisons)
        return compared or len(variable.members) > 1

    def _is_join_column(self, tree: Tree) -> bool:
        name = self._by_element.get((next(iter(atoms_of(tree))), key(tree)))
        return name is not None and self._is_never_null(self._variables[name])

    def _declare(self, kind: str, members: dict[str, Tree]) -> str:
        atom, tree = next(iter(members.items()))
        columns = [member["column_names"][1] for member in members.values() if member["class"] == "COLUMN_REF"]
        if columns:
            names = [columns[0], f"{atom}_{columns[0]}"]
        else:
            function = str(tree.get("function_name", ""))
            names = [f"{atom}_{function if function.isidentifier() else 'value'}"]
        name = self._free_name(names)
        text = self._source.text(span(tree))
        label = name if columns else text if text and _is_whole(text) else render(tree)
        self._variables[name] = _Variable(name, kind, members, label)
        return name

    def _free_name(self, wanted: list[str]) -> str:
        numbered = [f"{wanted[-1]}_{i}" for i in range(2, len(self._names) + 3)]
        name = next(name for name in [*wanted, *numbered] if name.lower() not in self._names)
        self._names.add(name.lower())
        return name

    def _cast(self, tree: Tree, kind: str) -> Tree:
        return tree if self._typing.type_of(tree) == kind else expression(f"CAST(v AS {kind})", v=tree)

    def _column(self, name: str, tree: Tree, kind: str, text: str) -> LeafColumn:
        columns = columns_of(tree)
        atom, source = next(iter(columns)) if columns else ("", "")
        plain = tree["class"] == "COLUMN_REF"
        presence = len(columns) == 1 and key(tree) == _presence_key(atom, source)
        return LeafColumn(
            name,
            text,
            kind,
            source=source if plain and self._typing.type_of(tree) == kind else None,
            presence_of=source if presence else None,
            not_null=self.never_null(tree) and all(self._atoms[atom].column(name)[2] for _, name in columns),
        )

    def _where(self) -> list[tuple[str, Condition]]:
        """The conditions with their atoms."""
        predicates = [(atom, tree) for atom, trees in self._conditions.predicates.items() for tree in trees]
        sides = [equated_columns(tree, self._typing) or () for _, tree in predicates]
        texts = render_all(
            [*(tree for _, tree in predicates), *(side for pair in sides for side in pair)], _leaf_column
        )
        columns = iter(texts[len(predicates) :])
        return [
            (atom, Condition(text, (next(columns), next(columns)) if pair else None, self._read(tree)))
            for (atom, tree), text, pair in zip(predicates, texts, sides, strict=False)
        ]

    def _read(self, tree: Tree) -> tuple[tuple[str, str], ...]:
        """The columns that a condition reads, with their types."""
        read = [self._atoms[atom].column(name) for atom, name in sorted(columns_of(tree))]
        return tuple((quoted(name), type_) for name, type_, _ in read)

    def _atom(
        self, atom: AtomTable, variables: list[LeafColumn], factors: list[LeafColumn], conditions: list[Condition]
    ) -> Atom:
        joins = (v for v in self._variables.values() if atom.name in v.members and self._is_never_null(v))
        return Atom(
            name=atom.name,
            table=atom.table,
            variables=tuple(variables),
            factors=tuple(factors),
            conditions=tuple(conditions),
            required=frozenset(variable.name for variable in joins),
            keys=self._keys(atom),
            references=self._references(atom),
        )

    def _references(self, atom: AtomTable) -> tuple[Reference, ...]:
        """Declared foreign keys whose columns are variables of the atom."""
        found = []
        for columns, table, targets in atom.references:
            names = [self._by_element.get((atom.name, key(column_ref(atom.name, column)))) for column in columns]
            pairs = tuple((name, target) for name, target in zip(names, targets, strict=True) if name)
            if len(pairs) == len(columns):
                found.append(Reference(table, pairs))
        return tuple(found)

    def _keys(self, atom: AtomTable) -> tuple[frozenset[str], ...]:
        """Declared keys whose columns are variables of the atom or fixed to a constant."""
        fixed = bound_columns(atom, self._conditions.predicates[atom.name])
        found = []
        for columns in atom.keys:
            names = {
                column: self._by_element.get((atom.name, key(column_ref(atom.name, column)))) for column in columns
            }
            if all(name or column in fixed for column, name in names.items()):
                found.append(frozenset(name for name in names.values() if name))
        return tuple(dict.fromkeys(found))


def _presence_key(atom: str, column: str) -> str:
    """The factor that is 1 where the column is not NULL."""
    return key(expression("CASE WHEN v IS NOT NULL THEN 1 END", v=column_ref(atom, column)))


def _leaf_column(names: list[str]) -> list[str]:
    """Column references in a leaf's SQL name the table's own columns."""
    return names[1:] if len(names) == 2 else names


def _of(pairs: list[tuple[str, Any]], atom: str) -> list[Any]:
    return [value for owner, value in pairs if owner == atom]


def _is_whole(text: str) -> bool:
    """Whether a piece of the user's text is one expression: that of a block's column may span what is between its place
    and where it is named."""
    depth = 0
    for token in tokenize(text):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth < 0 or (depth == 0 and token.text == ","):
            return False
    return depth == 0
