"""Operands: literals, names, CASE, CAST, lists, structs and subqueries."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.call_reader import CallReader
from sqlfront.sql.keywords import OPERATORS, RESERVED, UNITS, words
from sqlfront.sql.token_reader import ESCAPED, TEXTS

QUERY_WORDS = words("SELECT WITH FROM VALUES TABLE PIVOT PIVOT_WIDER PIVOT_LONGER UNPIVOT DESCRIBE DESC SHOW SUMMARIZE")
_CALLED_KEYWORDS = frozenset({"LEFT", "RIGHT", "GLOB", "OVERLAPS", "COLLATION", "UNPACK"})
_TYPES_OF_WORDS = words("DOUBLE TIME TIMESTAMP CHARACTER CHAR NATIONAL BIT STRUCT MAP UNION ROW TUPLE")
_SIZED_TYPES = words("DECIMAL DEC NUMERIC VARCHAR NCHAR FLOAT GEOMETRY")


class PrimaryReader(CallReader):
    """Reads what operators stand between."""

    def primary(self) -> exp.Expr:
        kind, first = self.kind(), self._index
        if kind in TEXTS:
            return self._string()
        if kind in ESCAPED:
            self._advance()
            return self.noted(first, trees.EscapedText(this=self.source(first)))
        if kind is TokenType.NUMBER or (self.token() == "." and self.kind(1) is TokenType.NUMBER):
            return self.number()
        if kind in (TokenType.VAR, TokenType.IDENTIFIER):
            return self._worded()
        return self._by_sign()

    def _by_sign(self) -> exp.Expr:
        first, sign = self._index, self.token()
        if sign == "(":
            return self._parenthesised()
        if sign == "[":
            return self._brackets(first, "")
        if sign == "{":
            return self._struct()
        if sign in ("?", "$"):
            return self._parameter()
        if self.accept("#"):
            return self.noted(first, exp.PositionalColumn(this=self.number()))
        if self.accept("*"):
            if self.token() == "COLUMNS":
                return self.noted(first, trees.Prefix(operator="*", this=self.primary()))
            return self._star(first)
        return self.raise_error("Expected an expression")

    def number(self) -> exp.Literal:
        first = self._index
        self.accept(".")
        if self.kind() is not TokenType.NUMBER:
            self.raise_error("Expected a number")
        self._advance()
        return self.noted(first, exp.Literal(this=self.source(first), is_string=False))

    def _string(self) -> exp.Literal:
        """A string; strings on further lines continue it."""
        first, text = self._index, ""
        while self.kind() in TEXTS and (self._index == first or self._on_next_line()):
            text += self._curr.text
            self._advance()
        return self.noted(first, exp.Literal(this=text, is_string=True))

    def _on_next_line(self) -> bool:
        return "\n" in self.sql[self._prev.end + 1 : self._curr.start]

    def _parameter(self) -> exp.Placeholder:
        first = self._index
        mark = self.token()
        self._advance()
        if mark == "$":
            if self.kind() is TokenType.NUMBER:
                self._advance()
            else:
                self.label("a parameter's name or number")
        elif self.kind() is TokenType.NUMBER and self._curr.start == self._prev.end + 1:
            self._advance()
        name = self.sql[self._prev.start : self._prev.end + 1] if self._index > first + 1 else ""
        return self.noted(first, exp.Placeholder(this=mark + name))

    def _parenthesised(self) -> exp.Expr:
        first = self._index
        ahead = 0
        while self.token(ahead) == "(":
            ahead += 1
        if self.token(ahead) in QUERY_WORDS:
            query = self.attempt(self.enclosed_query)
            if query is not None:
                return query
        self.expect("(")
        items = [] if self.token() == ")" else self.listed(self.scalar)
        comma = self._prev.text == ","
        self.expect(")")
        if len(items) == 1 and not comma:
            return self.noted(first, exp.Paren(this=items[0]))
        return self.noted(first, exp.Tuple(expressions=items))

    def enclosed_query(self) -> exp.Subquery:
        """(query), read once however often it is tried here."""
        first = self._index
        if first in self.queries_read:
            subquery, end = self.queries_read[first]
            self._advance(end - first)
            return subquery
        self.expect("(")
        query = self.query()
        self.expect(")")
        subquery = self.noted(first, exp.Subquery(this=query))
        self.queries_read[first] = (subquery, self._index)
        return subquery

    def _brackets(self, first: int, word: str) -> exp.Expr:
        self.expect("[")
        if self.accept("]"):
            return self.noted(first, trees.ListOf(expressions=[], word=word))
        item = self.scalar()
        if not word and self.accept("FOR"):
            return self._comprehension(first, item)
        items = [item]
        if self.accept(",") and self.token() != "]":
            items += self.listed(self.scalar)
        self.expect("]")
        return self.noted(first, trees.ListOf(expressions=items, word=word))

    def _comprehension(self, first: int, item: exp.Expr) -> exp.Expr:
        names = self.listed(self.name_or_text)
        self.expect("IN")
        iterator = self.scalar()
        condition = self.scalar() if self.accept("IF") else None
        self.expect("]")
        loop = exp.Comprehension(
            this=item, expression=exp.Tuple(expressions=names), iterator=iterator, condition=condition
        )
        return self.noted(first, loop)

    def _struct(self) -> exp.Struct:
        first = self._index
        self.expect("{")
        fields = [] if self.token() == "}" else self.listed(self._struct_field)
        self.expect("}")
        return self.noted(first, exp.Struct(expressions=fields))

    def _struct_field(self) -> exp.PropertyEQ:
        first, name = self._index, self.name_or_text()
        self.expect(":")
        return self.noted(first, exp.PropertyEQ(this=name, expression=self.scalar()))

    def _map(self, first: int) -> exp.Expr:
        self.expect("MAP", "{")
        entries = [] if self.token() == "}" else self.listed(self._map_entry)
        self.expect("}")
        return self.noted(first, trees.MapOf(expressions=entries))

    def _map_entry(self) -> exp.PropertyEQ:
        first, key = self._index, self.scalar()
        self.expect(":")
        return self.noted(first, exp.PropertyEQ(this=key, expression=self.scalar()))

    def _worded(self) -> exp.Expr:
        """What begins with a word: a construct of the language, a typed literal, a call, or a column."""
        first, word, following = self._index, self.token(), self.token(1)
        if word in ("NULL", "TRUE", "FALSE"):
            self._advance()
            constant = exp.Null() if word == "NULL" else exp.Boolean(this=word == "TRUE")
            return self.noted(first, constant)
        if word == "CASE":
            return self._case()
        if word == "LAMBDA":
            return self._lambda()
        if word == "ARRAY" and following == "[":
            self._advance()
            return self._brackets(first, "ARRAY")
        if word == "MAP" and following == "{":
            return self._map(first)
        if word == "INTERVAL":
            return self.attempt(self._interval) or self._name(first)
        if following == "(":
            special = self._special_call(first, word)
            if special is not None:
                return special
        if self.kind(1) in TEXTS or word in _TYPES_OF_WORDS or (word in _SIZED_TYPES and following in ("(", "[")):
            literal = self.attempt(self._typed_literal)
            if literal is not None:
                return literal
        if word and following == "[":
            literal = self.attempt(self._typed_literal)
            if literal is not None:
                return literal
        return self._name(first)

    def _special_call(self, first: int, word: str) -> exp.Expr | None:
        if word in ("CAST", "TRY_CAST"):
            self._advance(2)
            this = self.scalar()
            self.expect("AS")
            to = self.type_name()
            self.expect(")")
            return self.noted(first, (exp.Cast if word == "CAST" else exp.TryCast)(this=this, to=to))
        if word == "EXISTS":
            self._advance()
            return self.noted(first, exp.Exists(this=self.enclosed_query().this))
        if word == "ARRAY":
            self._advance()
            query = self.enclosed_query().this
            return self.noted(first, trees.Call(this=exp.to_identifier("ARRAY"), expressions=[query]))
        if word in _SEPARATORS and self._has_inside(*_SEPARATORS[word]):
            return self.attempt(lambda: self._keyword_call(first, word))
        return None

    def _has_inside(self, *words: str) -> bool:
        """Whether one of the words stands in the next parentheses, and not deeper."""
        depth, ahead = 0, 1
        while text := self.token(ahead) or self.kind(ahead):
            if text in ("(", "[", "{"):
                depth += 1
            elif text in (")", "]", "}"):
                depth -= 1
                if depth == 0:
                    return False
            elif depth == 1 and text in words:
                return True
            ahead += 1
        return False

    def _keyword_call(self, first: int, word: str) -> exp.Expr:
        """EXTRACT(a FROM b) and the like; with commas alone it is a call like others, and a fault here."""
        self._advance(2)
        words: list[str] = []
        operands: list[exp.Expr] = []
        if word == "TRIM":
            words.append(self.accept_any("BOTH", "LEADING", "TRAILING"))
        elif word == "EXTRACT" and self.kind() is TokenType.VAR:
            begin = self._index
            self._advance()
            operands.append(self.noted(begin, exp.var(self._prev.text)))
        if not words:
            words.append("")
        if not operands and self.token() != "FROM":
            operands.append(self.other() if word == "POSITION" else self.scalar())
        while separator := self.accept_any(*_SEPARATORS[word][:3] if word != "TRIM" else ("FROM",)):
            words.append(separator)
            operands.append(self.scalar())
        if words == [""]:
            self.raise_error(f"Expected {_SEPARATORS[word][0]}")
        while word == "TRIM" and self.accept(","):
            words.append(",")
            operands.append(self.scalar())
        self.expect(")")
        if len(words) > len(operands):
            words = [" ".join(words[:2]).strip(), *words[2:]]
        return self.noted(first, trees.KeywordCall(this=word, expressions=operands, words=words))

    def _typed_literal(self) -> exp.Cast:
        first, to = self._index, self.type_name()
        if self.kind() not in TEXTS:
            self.raise_error("Expected a string")
        return self.noted(first, exp.Cast(this=self._string(), to=to))

    def _interval(self) -> exp.Interval:
        first = self._index
        self.expect("INTERVAL")
        if self.kind() in TEXTS:
            amount: exp.Expr = self._string()
        elif self.token() == "(":
            begin = self._index
            self._advance()
            inner = self.scalar()
            self.expect(")")
            amount = self.noted(begin, exp.Paren(this=inner))
        else:
            amount = self.number()
        begin = self._index
        if self.accept_any(*UNITS) and self.accept("TO") and not self.accept_any(*UNITS):
            self.raise_error("Expected a unit")
        unit = exp.var(self.source(begin)) if self._index > begin else None
        return self.noted(first, exp.Interval(this=amount, unit=unit))

    def _case(self) -> exp.Case:
        first = self._index
        self.expect("CASE")
        this = None if self.token() == "WHEN" else self.scalar()
        branches: list[exp.Expr] = []
        while self.token() == "WHEN" or not branches:
            begin = self._index
            self.expect("WHEN")
            condition = self.scalar()
            self.expect("THEN")
            branches.append(self.noted(begin, exp.If(this=condition, true=self.scalar())))
        default = self.scalar() if self.accept("ELSE") else None
        self.expect("END")
        return self.noted(first, exp.Case(this=this, ifs=branches, default=default))

    def _lambda(self) -> exp.Lambda:
        first = self._index
        self.expect("LAMBDA")
        names = self.listed(self.name_or_text)
        self.expect(":")
        return self.noted(first, exp.Lambda(this=self.scalar(), expressions=names))

    def _name(self, first: int) -> exp.Expr:
        """A column, a qualified star, or a call."""
        barred = RESERVED | (OPERATORS - _CALLED_KEYWORDS if self.token(1) == "(" else OPERATORS)
        parts = [self.identifier("an expression", barred)]
        while self.token() == "." and self.token(1) != "*":
            self._advance()
            parts.append(self.label("a column"))
        if self.token() == "(":
            return self.call(first, parts)
        if self.accept(".", "*"):
            return self._star(first, parts)
        return self.column(first, parts)

    def column(self, first: int, parts: list[exp.Identifier], last: exp.Expr | None = None) -> exp.Expr:
        """A column by its parts; parts beyond four are fields of the fourth."""
        final = [*parts, last] if last is not None else list(parts)
        keys = ("this", "table", "db", "catalog")
        inner, fields = final[:4], final[4:]
        this: exp.Expr = exp.Column(**dict(zip(keys, reversed(inner))))
        for field in fields:
            this = exp.Dot(this=this, expression=field)
        return self.noted(first, this)

    def _star(self, first: int, parts: list[exp.Identifier] | None = None) -> exp.Expr:
        star = trees.Star()
        if self.token() in ("EXCLUDE", "EXCEPT") and self.token(1) not in ("ALL", "SELECT", "FROM", "VALUES"):
            star.set("except_", self._star_items(self._excluded))
        if self.token() == "REPLACE":
            star.set("replace", self._star_items(self._replaced))
        if self.token() == "RENAME":
            star.set("rename", self._star_items(self._renamed))
        star = self.noted(first, star)
        return self.column(first, parts, star) if parts else star

    def _star_items(self, item: Any) -> list[exp.Expr]:
        self._advance()
        return self.enclosed(item) if self.token() == "(" else [item()]

    def _excluded(self) -> exp.Expr:
        first, parts = self._index, [self.name_or_text()]
        while self.accept("."):
            parts.append(self.label())
        return parts[0] if len(parts) == 1 else self.column(first, parts)

    def _replaced(self) -> exp.Expr:
        first, this = self._index, self.scalar()
        self.expect("AS")
        begin = self._index
        parts = self.dotted("a column")
        target = parts[0] if len(parts) == 1 else self.column(begin, parts)
        return self.noted(first, exp.Alias(this=this, alias=target))

    def _renamed(self) -> exp.Expr:
        first, this = self._index, self._excluded()
        self.expect("AS")
        return self.noted(first, exp.Alias(this=this, alias=self.label()))


_SEPARATORS = {
    "EXTRACT": ("FROM",),
    "POSITION": ("IN",),
    "SUBSTRING": ("FROM", "FOR"),
    "OVERLAY": ("PLACING", "FROM", "FOR"),
    "TRIM": ("FROM", "BOTH", "LEADING", "TRAILING"),
}
