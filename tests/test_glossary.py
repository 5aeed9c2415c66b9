"""The glossary is whole and true, and the words that it replaces are in no name and no docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.test_rails import modules, nodes, relative

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "glossary.md"

REPLACED = {
    "companion": "distinct values", "companions": "distinct values", "piece": "part tree", "pieces": "part tree",
    "letters": "part key", "tally": "tuple count", "hops": "union enumeration", "twin": "symmetric delta",
    "settling": "tie-breakers", "asked": "requested order", "gate": "fast path", "outlet": "subscriber",
    "outlets": "subscriber", "passes": "stateless view", "seek": "keyset start",
}  # fmt: skip
"""Words with a meaning of our own, and the word of the glossary instead."""

PLAIN = {
    ("asked", "sqlfront/shards/shard_explanation.py"),
    ("passes", "storage/kernels/programs"),
    ("piece", "planner/search/ranges.py"),
    ("piece", "planner/theory/connex.py"),
    ("piece", "sqlfront/shards"),
    ("pieces", "planner/search/ranges.py"),
    ("pieces", "sqlfront/shards"),
    ("pieces", "sqlfront/spark"),
    ("seek", "storage/kernels"),
    ("settling", "maintenance/heavy_light"),
}
"""Where a word has its everyday meaning, such as a piece of text. The list may only shrink."""

DOCSTRINGS = {"companion", "companions", "piece", "pieces", "letters", "tally", "outlet", "outlets", "settling", "twin"}
"""The words that have no everyday meaning in our docstrings either, PLAIN aside."""


def entries() -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return rows[1:]


def parts(name: str) -> list[str]:
    """The words of a name: of KeysetStart keyset and start, of part_trees part and trees."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def names(module: Sequence[ast.AST]) -> Iterator[str]:
    """Of classes, functions and fields among the nodes of a module."""
    for node in module:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )


def docstrings(module: Sequence[ast.AST]) -> str:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return " ".join(ast.get_docstring(node) or "" for node in module if isinstance(node, documented)).lower()


def replaced_words() -> set[tuple[str, str]]:
    """(word, file) for each use of a replaced word."""
    found = set()
    for path in modules().values():
        file, module = relative(path), nodes(path)
        used = {word for name in (Path(file).stem, *names(module)) for word in parts(name)}
        used |= DOCSTRINGS & set(re.findall(r"[a-z]+", docstrings(module)))
        found |= {(word, file) for word in used & REPLACED.keys()}
    return found


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


def test_replaced_words_are_in_no_name_and_no_docstring():
    found = replaced_words()
    allowed = {
        (word, file) for word, file in found for plain in PLAIN if plain[0] == word and file.startswith(plain[1])
    }
    assert found - allowed == set()
    unused = {
        plain for plain in PLAIN if not any(plain[0] == word and file.startswith(plain[1]) for word, file in found)
    }
    assert unused == set(), "the list of exceptions is too long"


@pytest.mark.parametrize(("name", "words"), [("KeysetStart", ["keyset", "start"]), ("part_trees", ["part", "trees"])])
def test_names_have_words(name, words):
    assert parts(name) == words
