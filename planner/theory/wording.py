"""How reasons, witnesses and suggestions name things: in the user's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.planner.theory.hierarchy import Violation
from sqlfront.planner.theory.keys import Guarantees, Key


def enumerate_words(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'; repeats are dropped."""
    listed = list(dict.fromkeys(words))
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} and {listed[-1]}"


def labels(definition: Definition, variables: Iterable[str]) -> str:
    """The variables as the user spells them."""
    return enumerate_words(definition.label(variable) for variable in variables)


def are(words: Sequence[str]) -> str:
    """'is' for one word, 'are' for more."""
    return "is" if len(words) == 1 else "are"


def column(definition: Definition, atom: str, variable: str) -> str:
    """What `atom` calls a variable: `alias.column`, or the expression it computes."""
    found = next(column for column in definition.atom(atom).variables if column.name == variable)
    return f"{atom}.{found.source}" if found.source is not None else f"{found.expression} (in {atom})"


def spell_comparison(definition: Definition, comparison: Comparison) -> str:
    """The comparison of variables as the user spells them."""
    return f"{definition.label(comparison.left)} {comparison.operator} {definition.label(comparison.right)}"


def table_name(table: str) -> str:
    """A table, or a view that is read as one, as a user would write it; a block or union of the query by its number."""
    block = re.search(r"/((union )?\d+)$", table)
    if block is not None:
        return block[1] if block[2] else f"block {block[1]}"
    return re.sub(r"#\d+$", "", table).removeprefix("main.")


def spell_key(definition: Definition, key: Key) -> str:
    """A key as `atom(column, ...)`, in the atom's column order."""
    atom, variables = key
    columns = [column for column in definition.atom(atom).variables if column.name in variables]
    return f"{atom}({', '.join(column.source or column.expression for column in columns)})"


def spell_guarantees(definition: Definition, guarantees: Guarantees) -> str:
    """Why every step is O(1), as a clause: constant rows, keys, and the references at which changes end."""
    keys, ends = guarantees
    clauses = [clause] if (clause := spell_constants(definition)) else []
    declared = [key for key in keys if not definition.atom(key[0]).is_constant]
    if declared:
        noun = "key" if len(declared) == 1 else "keys"
        listed = enumerate_words(spell_key(definition, key) for key in declared)
        clauses.append(f"each step looks up at most one row, by the declared {noun} {listed}")
    referring: dict[str, list[str]] = {}
    for atom, other in ends:
        referring.setdefault(other, []).append(atom)
    for other, atoms in referring.items():
        clauses.append(f"a new or deleted row of {other} joins none of {enumerate_words(atoms)}, by foreign key")
    return "; ".join(clauses)


def spell_constants(definition: Definition) -> str:
    """That some rows never change, as a clause; empty if there are none."""
    names = [atom.name for atom in definition.atoms if atom.is_constant]
    return f"the rows of {enumerate_words(names)} never change, and the query fixes their number" if names else ""


def spell_violation(definition: Definition, violation: Violation) -> str:
    """The witness against q-hierarchical, as a clause."""
    x, y = definition.label(violation.x), definition.label(violation.y)
    both, only_y = enumerate_words(violation.both), enumerate_words(violation.only_y)
    if violation.condition == "hierarchical":
        only_x = enumerate_words(violation.only_x)
        return (
            f"{x} and {y} meet in {both}, but {x} also joins {only_x} without {y}, and {y} joins {only_y} without {x}"
        )
    if violation.condition == "testing":
        return f"output column {x} depends on {y}, which is projected out, joins {both}, and also {only_y} without {x}"
    return f"output column {x}, in {both} only, depends on {y}, which is projected out and also joins {only_y}"


def spell_free_path(definition: Definition, path: Sequence[str]) -> str:
    """The witness against free-connex, as a clause."""
    inner = path[1:-1]
    return (
        f"output columns {definition.label(path[0])} and {definition.label(path[-1])} are linked only through "
        f"{labels(definition, inner)}, which {are(inner)} projected out"
    )
