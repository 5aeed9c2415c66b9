"""The kinds a text may have, by its words alone: our statement, or a plain one that concerns only what it names.

No token is made: each answer is a few searches over the text, about five microseconds for a short statement.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Literal

_GAP = r"(?:[\s\ufeff]|--[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*)|/\*.*?\*/)*+\*/)"
_OWN = re.compile(
    r"""~*+ (?: create ~++ (?:or ~++ replace ~++)? (?:materiali[sz]ed|change) | (?:drop|alter) ~++ materiali[sz]ed
              | drop ~++ change | refresh | show ~++ (?:change|materiali[sz]ed|state|epochs|errors)
              | explain ~++ (?:create ~++ (?:or ~++ replace ~++)?)? materiali[sz]ed
              | explain ~*+ \( ~*+ (?:materiali[sz]ed|algebra) | check | subscribe
              | set ~++ (?:(?:session|local|global) ~++)? sqlfront_\w+ ) (?![\w$])""".replace("~", _GAP),
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(
    r"""~*+ (?: (?P<query> (?:select|with|from|values|table|pivot|unpivot) (?![\w$]) | \()
              | (?:insert|update|delete|merge|truncate) (?![\w$]) )""".replace("~", _GAP),
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_WRITES = re.compile(
    r"[()]~*+(?:insert|update|delete|merge|truncate)(?![\w$])".replace("~", _GAP), re.IGNORECASE | re.DOTALL
)
_WORD = re.compile(r"[^\W\d]\w*")
CATALOG_WORDS = ("information_schema", "duckdb_", "pg_", "sqlite_", "show", "describe")
"""How the words begin that list the catalog, where the scans of ours are hidden."""
_UNSEEN = ("__sqlfront", "query", "json_execute_serialized_sql", "grammar")
"""Words of what reads names or statements that need not stand in the text."""
_HIDING = re.compile("|".join((*CATALOG_WORDS, *_UNSEEN)))
_SUSPECT = re.compile("|".join((";", _HIDING.pattern, _WRITES.pattern)), re.DOTALL)
"""What a plain text has none of, if it is looked at no further."""


def is_own(text: str) -> bool:
    """Whether a statement is one of ours, in any dialect."""
    return _OWN.match(text) is not None


def plain_kind(text: str) -> Literal["query", "write"] | None:
    """Whether a text is one query or one write that acts on nothing but what it names; None if in doubt.

    All other statements may change what names mean, end a transaction or list the catalog.
    """
    found = _PLAIN.match(text)
    if found is None:
        return None
    kind: Literal["query", "write"] = "query" if found["query"] else "write"
    folded = text.casefold()
    if _SUSPECT.search(folded) is None:
        return kind
    several = 0 <= text.find(";") < len(text.rstrip()) - 1
    return None if several or _HIDING.search(folded) or (kind == "query" and may_write(text)) else kind


def hides_names(text: str) -> bool:
    """Whether a text may read what it does not name."""
    folded = text.casefold()
    return any(word in folded for word in _UNSEEN)


def may_write(text: str) -> bool:
    """Whether a query may write: WITH x AS (INSERT ... RETURNING a) SELECT a FROM x."""
    return _WRITES.search(text) is not None


def words(text: str) -> Set[str]:
    """The words of a text in lower case, in quotes or not. Where a text spells a name, it has all the name's words:
    DuckDB tells only cases of ASCII apart, and delimits names by signs that are in no word."""
    return frozenset(_WORD.findall(text.casefold()))
