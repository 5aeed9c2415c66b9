"""The glossary is whole and true, and the words that it replaces name no class and no module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "glossary.md"
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")

REPLACED = {
    "companion": "distinct values", "companions": "distinct values", "piece": "part tree", "pieces": "part tree",
    "letters": "part key", "cell": "part key", "tally": "tuple count", "hops": "union enumeration",
    "twin": "symmetric delta", "seek": "keyset start", "after": "keyset start", "start": "keyset start",
    "settling": "tie-breakers", "asked": "requested order", "gate": "fast path", "outlet": "subscriber",
    "outlets": "subscriber",
}  # fmt: skip
"""Words with a meaning of our own, and the word of the glossary instead."""


def entries() -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return rows[1:]


def parts(name: str) -> list[str]:
    """The words of a name: of KeysetStart keyset and start, of part_trees part and trees."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def test_every_entry_has_its_parts():
    assert len(entries()) >= 45
    assert [entry for entry in entries() if len(entry) != 4 or not all(entry)] == []
    assert [entry[0] for entry in entries() if not entry[1].endswith(".")] == []


def test_words_are_sorted_and_none_comes_twice():
    words = [entry[0].lower() for entry in entries()]
    assert words == sorted(set(words))


def test_files_and_pages_exist():
    named = [place for entry in entries() for place in re.findall(r"`([\w/]+\.py)`|(docs/[\w-]+\.md)", " ".join(entry))]
    assert len(named) > 45
    assert [file or page for file, page in named if not (ROOT / (file or page)).exists()] == []


def test_replaced_words_are_in_the_glossary():
    assert set(REPLACED.values()) <= {entry[0] for entry in entries()}


def test_replaced_words_name_no_class_and_no_module():
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            names = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
            # A whole name alone: KeysetStart is the glossary's own word.
            found += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in (path.stem, *names)
                if parts(name)[-1:] and (name.strip("_").lower() in REPLACED or parts(name)[0] in NEVER)
            ]
    assert found == []


NEVER = {"companion", "companions", "piece", "pieces", "letters", "tally", "twin", "asked", "outlet", "outlets"}


@pytest.mark.parametrize(("name", "words"), [("KeysetStart", ["keyset", "start"]), ("part_trees", ["part", "trees"])])
def test_names_have_words(name, words):
    assert parts(name) == words
