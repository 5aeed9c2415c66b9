"""Rewrites that would put a view into a cheaper class; each is tried before it is offered."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.hierarchy import q_hierarchical_extension
from sqlfront.planner.theory.keys import Key, constant_keys, step_keys
from sqlfront.planner.theory.wording import enumerate_words, labels, table_name


def suggest_constant(definition: Definition, root: Node) -> str | None:
    """What would make updates O(1): more output columns, or one declared key; None when neither is enough."""
    offers = (_suggest_columns(definition), _suggest_key(definition, root))
    found = [offer for offer in offers if offer is not None]
    return "; or ".join(found) or None


def suggest_columns(definition: Definition, variables: tuple[str, ...]) -> str:
    """The clause that puts `variables` out as well; for DISTINCT also the other way."""
    names = labels(definition, variables)
    if definition.mode == "group":
        return f"add {names} to GROUP BY"
    return f"add {names} to the SELECT list, or drop DISTINCT"


def _suggest_columns(definition: Definition) -> str | None:
    if definition.mode == "bag":
        return None
    missing = q_hierarchical_extension(hypergraph(definition), definition.free)
    return f"{suggest_columns(definition, missing)}: updates are then O(1)" if missing else None


def _suggest_key(definition: Definition, root: Node) -> str | None:
    found = missing_key(definition, root)
    if found is None:
        return None
    name, columns = found
    verb, pronoun = ("is", "it") if len(columns) == 1 else ("together are", "them")
    table = table_name(definition.atom(name).table)
    return (
        f"if {enumerate_words(columns)} {verb} unique in {table}, declare {pronoun} PRIMARY KEY: updates are then O(1)"
    )


def missing_key(definition: Definition, root: Node) -> tuple[str, list[str]] | None:
    """The atom and the columns of the one key whose declaration makes every step a look-up of one row.

    None for a table whose keys are declared.
    """
    wanted = _missing_keys(definition, root)
    if wanted is None or len(wanted) != 1:
        return None
    ((name, key),) = wanted
    atom = definition.atom(name)
    columns = [column.source for column in atom.variables if column.name in key and column.source is not None]
    if atom.keys or len(columns) < len(key) or constant_keys(root, _with_key(definition, (name, key))) is None:
        return None
    return name, columns


def _missing_keys(definition: Definition, root: Node) -> set[Key] | None:
    """For each step to many rows, the key of a guarding leaf that would fix it; None when a step has no such leaf."""
    wanted: set[Key] = set()
    for node in root.walk():
        label = frozenset(node.variables)
        for child in node.children:
            changes = any(not definition.atom(leaf.atom).is_constant for leaf in child.leaves() if leaf.atom)
            if not changes or step_keys(node, child, definition) is not None:
                continue
            known = label & frozenset(child.variables)
            guards = (sibling for sibling in node.children if label <= frozenset(sibling.variables))
            leaf = next((sibling.atom for sibling in guards if sibling.atom is not None), None)
            if leaf is None or not known:
                return None
            wanted.add((leaf, known))
    return wanted


def _with_key(definition: Definition, key: Key) -> Definition:
    atoms = tuple(
        replace(atom, keys=(*atom.keys, key[1])) if atom.name == key[0] else atom for atom in definition.atoms
    )
    return replace(definition, atoms=atoms)
