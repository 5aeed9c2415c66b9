"""What a connection must know about a statement of DuckDB's: its kind, the tables it writes, where its queries stand.

Only tokens are looked at; a query's tables are found later and only if somebody asks (references.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlfront.sql.statements import Kind, Name, PassThrough
from sqlfront.sql.tokens import Token, tokenize

Reads = tuple[tuple[int, int, str], ...]

_HEAD = 2000
_TAIL_WORD = re.compile(r"returning|conflict|select|from", re.IGNORECASE)
_TAIL_WORDS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\b(returning|conflict|select|from)\b|--|/\*|\$", re.IGNORECASE
)
_SIMPLE_KINDS: dict[str, Kind] = {
    "begin": "begin",
    "start": "begin",
    "commit": "commit",
    "end": "commit",
    "rollback": "rollback",
    "abort": "rollback",
    "checkpoint": "checkpoint",
    "attach": "attach",
    "detach": "attach",
    "use": "use",
    "set": "set",
    "reset": "set",
    "pragma": "set",
    "select": "select",
    "from": "select",
    "values": "select",
    "table": "select",
    "pivot": "select",
    "unpivot": "select",
    "(": "select",
}


def classify(text: str, start: int) -> PassThrough:
    """The statement's kind and targets. Never raises: what is not understood is kind "other", for DuckDB to judge."""
    tokens = _tokens(text)
    words = [token.keyword or token.text for token in tokens]
    if not words:
        return PassThrough(text, start, "other")
    body = _after_ctes(words) if words[0] == "with" else 0
    first = words[body] if body < len(words) else ""
    reader = _READERS.get(first)
    if reader is not None:
        return reader(text, start, tokens, words, body)
    kind = _SIMPLE_KINDS.get(first, "other")
    if first == "force" and "checkpoint" in words[:2]:
        kind = "checkpoint"
    reads = ((tokens[0].start, len(text), ""),) if kind == "select" else ()
    return PassThrough(text, start, kind, reads=reads)


def _tokens(text: str) -> list[Token]:
    """All tokens, except that a long VALUES list is represented by its beginning when nothing follows it."""
    if len(text) > _HEAD:
        head = tokenize(text[:_HEAD])[:-2]
        words = [token.keyword for token in head]
        if words[:1] == ["insert"] and "values" in words and "select" not in words[: words.index("values")]:
            values = head[words.index("values")]
            if not _has_tail(text, values.end):
                return head[: words.index("values") + 1]
    return tokenize(text)


def _has_tail(text: str, start: int) -> bool:
    """Whether RETURNING, ON CONFLICT or a query may follow the VALUES list (or the scan cannot tell)."""
    return _TAIL_WORD.search(text, start) is not None and any(
        match.group(1) or match.group() in ("--", "/*", "$") for match in _TAIL_WORDS.finditer(text, start)
    )


_VERBS = frozenset(("select", "from", "values", "insert", "update", "delete", "merge", "(", "table", "pivot"))


def _after_ctes(words: Sequence[str]) -> int:
    """The index of the first word after WITH ... : the statement's verb outside parentheses."""
    return next((i for i in _outside(words, 1) if words[i - 1] == ")" and words[i] in _VERBS), len(words))


def _outside(words: Sequence[str], at: int) -> Iterator[int]:
    """The places from `at` on that are outside parentheses, with those of the parentheses themselves."""
    depth = 0
    for i in range(at, len(words)):
        depth -= words[i] == ")"
        if depth == 0:
            yield i
        depth += words[i] == "("


def _name(tokens: Sequence[Token], at: int) -> tuple[Name | None, int]:
    """The dotted name at index `at`, and the index after it."""
    found = []
    while at < len(tokens) and tokens[at].is_name:
        found.append(tokens[at])
        if at + 1 < len(tokens) and tokens[at + 1].text == ".":
            at += 2
            continue
        return Name(tuple(token.name for token in found), found[0].start, found[-1].end), at + 1
    return None, at


def _skip(words: Sequence[str], at: int, *phrases: tuple[str, ...]) -> int:
    """After any of the phrases, in the given order."""
    for phrase in phrases:
        if tuple(words[at : at + len(phrase)]) == phrase:
            at += len(phrase)
    return at


def _find(words: Sequence[str], at: int, *phrase: str) -> int:
    """The first place of the phrase outside parentheses; -1 when it does not occur."""
    return next((i for i in _outside(words, at) if tuple(words[i : i + len(phrase)]) == phrase), -1)


def _targets(name: Name | None) -> tuple[Name, ...]:
    return () if name is None else (name,)


def _insert(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    at = _skip(words, body + 1, ("or", "replace"), ("or", "ignore"), ("into",))
    replaces = words[body + 1 : body + 3] == ["or", "replace"]
    name, at = _name(tokens, at)
    conflict = _find(words, at, "on", "conflict")
    returning = _find(words, at, "returning")
    updates = conflict >= 0 and _find(words, conflict, "do", "update") >= 0
    tail = min((i for i in (conflict, returning) if i >= 0), default=len(words))
    query = next((i for i in range(at, tail) if words[i] in ("select", "from", "with", "values", "table")), tail)
    reads: Reads = (
        ((tokens[query].start, tokens[tail - 1].end, ""),) if query < tail and words[query] != "values" else ()
    )
    if query < tail and words[query] == "values" and "select" in words[query:tail]:
        reads = ((tokens[query].start, tokens[tail - 1].end, ""),)
    if body and reads:
        reads = ((tokens[0].start, tokens[tail - 1].end, _blank(text, tokens[body].start, reads[0][0])),)
    return PassThrough(
        text, start, "insert", _targets(name), upsert=replaces or updates, returning=returning >= 0, reads=reads
    )


def _blank(text: str, begin: int, end: int, replacement: str = "") -> str:
    """An edit `begin:end:replacement` that keeps every position (see references.py)."""
    return f"{begin}:{end}:{replacement}"


def _update(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, at = _name(tokens, _skip(words, body + 1, ("or", "replace"), ("or", "ignore")))
    returning = _find(words, at, "returning")
    sets = _find(words, at, "set")
    end = tokens[returning - 1].end if returning >= 0 else len(text)
    reads: Reads = ()
    if sets >= 0:
        edit = _blank(text, tokens[body].start, tokens[sets].end, "SELECT")
        reads = ((tokens[0].start, end, edit),)
    return PassThrough(text, start, "update", _targets(name), returning=returning >= 0, reads=reads)


def _delete(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, at = _name(tokens, _skip(words, body + 1, ("from",)))
    returning = _find(words, at, "returning")
    end = tokens[returning - 1].end if returning >= 0 else len(text)
    using, where = _find(words, at, "using"), _find(words, at, "where")
    reads: Reads = ()
    begin = tokens[body].start
    if using >= 0:
        reads = ((tokens[0].start, end, _blank(text, begin, tokens[using].end, "FROM")),)
    elif where >= 0:
        reads = ((tokens[0].start, end, _blank(text, begin, tokens[where].start, "SELECT 1")),)
    return PassThrough(text, start, "delete", _targets(name), returning=returning >= 0, reads=reads)


def _merge(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, at = _name(tokens, _skip(words, body + 1, ("into",)))
    returning = _find(words, at, "returning")
    using = _find(words, at, "using")
    actions = [i for phrase in (("matched",), ("not", "matched")) if (i := _find(words, at, "when", *phrase)) >= 0]
    reads: Reads = ()
    if using >= 0 and actions and "select" not in words[min(actions) :]:
        edit = _blank(text, tokens[body].start, tokens[using].end, "FROM x JOIN")
        reads = ((tokens[0].start, tokens[min(actions) - 1].end, edit),)
    elif using >= 0:
        reads = ((0, 0, "unknown"),)
    return PassThrough(text, start, "merge", _targets(name), returning=returning >= 0, reads=reads)


def _truncate(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, _ = _name(tokens, _skip(words, body + 1, ("table",)))
    return PassThrough(text, start, "truncate", _targets(name))


def _copy(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    if body + 1 < len(words) and words[body + 1] == "(":
        close = _closing(words, body + 1)
        inner = (tokens[body + 1].end, tokens[close].start, "")
        return PassThrough(text, start, "copy_to", reads=(inner,))
    if words[body + 1 : body + 3] == ["from", "database"]:
        return PassThrough(text, start, "other")
    name, at = _name(tokens, body + 1)
    if _find(words, at, "from") >= 0:
        return PassThrough(text, start, "copy_from", _targets(name))
    return PassThrough(text, start, "copy_to", named_reads=_targets(name))


def _closing(words: Sequence[str], at: int) -> int:
    """The place of the parenthesis that closes the one at `at`."""
    return next((i for i in _outside(words, at) if words[i] == ")"), len(words) - 1)


def _create(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    at = _skip(words, body + 1, ("or", "replace"))
    while at < len(words) and words[at] in ("temp", "temporary", "local", "global", "unlogged", "persistent", "unique"):
        at += 1
    what = words[at] if at < len(words) else ""
    at = _skip(words, at + 1, ("if", "not", "exists"))
    name, after = _name(tokens, at)
    if what in ("index", "trigger"):
        table = _find(words, at, "on")
        name, _ = _name(tokens, table + 1) if table >= 0 else (None, 0)
        return PassThrough(text, start, "ddl", _targets(name), verb="create", object=what)
    query = _find(words, after, "as")
    reads: Reads = ()
    if what in ("table", "view") and 0 <= query < len(words) - 1:
        reads = ((tokens[query + 1].start, _without_data(text, tokens, words), ""),)
    kind: Kind = "create_table_as" if what == "table" and reads else "ddl"
    return PassThrough(text, start, kind, _targets(name), verb="create", object=what, reads=reads)


def _without_data(text: str, tokens: list[Token], words: list[str]) -> int:
    """Where the query ends: before WITH [NO] DATA."""
    for phrase in (["with", "no", "data"], ["with", "data"]):
        if words[-len(phrase) :] == phrase:
            return tokens[-len(phrase) - 1].end
    return len(text)


def _drop(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    what = words[body + 1] if body + 1 < len(words) else ""
    at = _skip(words, body + 2, ("if", "exists"))
    if_exists = at > body + 2
    names: list[Name] = []
    while True:
        name, at = _name(tokens, at)
        names += _targets(name)
        if at >= len(words) or words[at] != ",":
            break
        at += 1
    if what == "trigger" and words[at : at + 1] == ["on"]:
        names = list(_targets(_name(tokens, at + 1)[0]))
    cascade = words[-1] == "cascade"
    return PassThrough(text, start, "ddl", tuple(names), verb="drop", object=what, if_exists=if_exists, cascade=cascade)


def _alter(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    what = words[body + 1] if body + 1 < len(words) else ""
    at = _skip(words, body + 2, ("if", "exists"))
    name, after = _name(tokens, at)
    action = [word for word in words[after : after + 2] if word.isalpha()]
    if len(action) == 2 and (action[0], action[1]) not in _ALTER_PAIRS:
        action = [action[0], "column"] if action[0] in ("add", "drop", "alter", "rename") else action[:1]
    return PassThrough(
        text,
        start,
        "ddl",
        _targets(name),
        verb="alter",
        object=what,
        action=" ".join(action),
        if_exists=at > body + 2,
        cascade=words[-1] == "cascade",
    )


_ALTER_PAIRS = {
    ("add", "column"),
    ("add", "constraint"),
    ("add", "primary"),
    ("drop", "column"),
    ("alter", "column"),
    ("rename", "column"),
    ("rename", "to"),
    ("set", "schema"),
    ("set", "partitioned"),
    ("set", "sorted"),
}


def _show(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    if "tables" in words[body + 1 : body + 3]:
        return PassThrough(text, start, "show_tables")
    return _describe(text, start, tokens, words, body) if len(words) > body + 1 else PassThrough(text, start, "other")


def _describe(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    at = _skip(words, body + 1, ("table",))
    if at >= len(words):
        return PassThrough(text, start, "describe")
    if words[at] in ("select", "with", "from", "values", "("):
        return PassThrough(text, start, "describe", reads=((tokens[at].start, len(text), ""),))
    name, _ = _name(tokens, at)
    return PassThrough(text, start, "describe", named_reads=_targets(name))


def _explain(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    at = body + 1
    analyze = False
    if at < len(words) and words[at] == "(":
        close = _closing(words, at)
        analyze = "analyze" in words[at:close]
        at = close + 1
    elif at < len(words) and words[at] in ("analyze", "analyse"):
        analyze, at = True, at + 1
    if at >= len(words):
        return PassThrough(text, start, "explain")
    inner = _inside(text, start, tokens[at].start)
    return _wrapping(text, start, inner.kind if analyze else "explain", inner, "")


def _prepare(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, at = _name(tokens, body + 1)
    query = _find(words, at, "as")
    if name is None or query < 0 or query + 1 >= len(words):
        return PassThrough(text, start, "prepare")
    inner = _inside(text, start, tokens[query + 1].start)
    return _wrapping(text, start, "prepare", inner, name.parts[-1])


def _execute(text: str, start: int, tokens: list[Token], words: list[str], body: int) -> PassThrough:
    name, _ = _name(tokens, body + 1)
    return PassThrough(text, start, "execute", prepared=name.parts[-1] if name else "")


def _inside(text: str, start: int, at: int) -> PassThrough:
    """The statement that begins at `at`, with the positions of the whole text: what stands before it is blanked."""
    return classify(" " * at + text[at:], start)


def _wrapping(text: str, start: int, kind: Kind, inner: PassThrough, prepared: str) -> PassThrough:
    return PassThrough(
        text,
        start,
        kind,
        inner.targets,
        inner.upsert,
        inner.returning,
        inner.verb,
        inner.object,
        inner.action,
        inner=inner.kind,
        prepared=prepared,
        reads=inner.reads,
        named_reads=inner.named_reads,
    )


_READERS: dict[str, Callable[[str, int, list[Token], list[str], int], PassThrough]] = {
    "insert": _insert,
    "update": _update,
    "delete": _delete,
    "merge": _merge,
    "truncate": _truncate,
    "copy": _copy,
    "create": _create,
    "drop": _drop,
    "alter": _alter,
    "show": _show,
    "describe": _describe,
    "desc": _describe,
    "summarize": _describe,
    "explain": _explain,
    "prepare": _prepare,
    "execute": _execute,
}
