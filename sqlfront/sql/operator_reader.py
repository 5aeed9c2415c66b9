"""Expressions, level by level as DuckDB's own grammar binds them; each method reads one level.

The order is that of DuckDB 2.0 (src/parser/peg/grammar/statements/expression.gram), which differs from PostgreSQL's
and from sqlglot's: `->` binds weakest, `IS NULL` weaker than comparisons, a sign before a number tighter than powers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.keywords import words
from sqlfront.sql.primary_reader import PrimaryReader
from sqlfront.sql.token_reader import TEXTS

SIGNS = frozenset("+-*/%^<>=~!@&|")
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "==": exp.EQ,
    "!=": exp.NEQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    ">": exp.GT,
    "<=": exp.LTE,
    ">=": exp.GTE,
}
_MATCHES = words("LIKE ILIKE GLOB ~~ ~~* ~~~ ~ ~* !~~* !~~ !~* !~")
_ARITHMETIC: dict[str, type[exp.Binary]] = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "//": exp.IntDiv,
    "%": exp.Mod,
}
_BITS, _PLUS, _TIMES, _POWER = 1, 2, 3, 4
_POWERS = {
    **dict.fromkeys(("&", "|", "<<", ">>"), _BITS),
    **dict.fromkeys(("+", "-"), _PLUS),
    **dict.fromkeys(("*", "/", "//", "%"), _TIMES),
    **dict.fromkeys(("^", "**"), _POWER),
}
"""How tightly operators bind: each level is read by the same method."""
_OTHER_LEVELS = frozenset({*_COMPARISONS, *_MATCHES, *_POWERS, "->", "=>", "!"})
_LITERALS = TEXTS | {TokenType.NUMBER}
_TRUTHS = ("TRUE", "FALSE", "NULL", "UNKNOWN")


class OperatorReader(PrimaryReader):
    """Reads expressions from the weakest operator down to the operands of `PrimaryReader`."""

    def scalar(self) -> exp.Expr:
        if self.kind() in _LITERALS and self.token(1) in (",", ")"):
            return self.primary()  # No level adds to it: long lists of values are read many times sooner.
        first, this = self._index, self.disjunction()
        while self.token() == "->" and not self._is_quantified():
            self._advance()
            this = self.noted(first, trees.Infix(this=this, operator="->", expression=self.disjunction()))
        return this

    def disjunction(self) -> exp.Expr:
        first, this = self._index, self.conjunction()
        while self.accept("OR"):
            this = self.noted(first, exp.Or(this=this, expression=self.conjunction()))
        return this

    def conjunction(self, operand: Callable[[], exp.Expr] | None = None) -> exp.Expr:
        operand = operand or self.negation
        first, this = self._index, operand()
        while self.accept("AND"):
            this = self.noted(first, exp.And(this=this, expression=operand()))
        return this

    def negation(self) -> exp.Expr:
        first = self._index
        if self.accept("NOT"):
            return self.noted(first, exp.Not(this=self.negation()))
        return self.truth_test()

    def truth_test(self) -> exp.Expr:
        """x IS [NOT] NULL | TRUE | FALSE | UNKNOWN, after which any weaker operator may follow."""
        first, this = self._index, self.distinction()
        tested = self._test(first, this)
        while tested is not None:
            this = tested
            tested = (
                self._test(first, this)
                or self._distinct_from(first, this)
                or self._compared(first, this)
                or self._other_operator(first, this)
                or self._cast_after(first, this)
            )
        return this

    def _test(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if self.accept("ISNULL"):
            return self.noted(first, exp.Is(this=this, expression=exp.Null()))
        if self.accept("NOTNULL") or self.accept("NOT", "NULL"):
            return self._unlike(first, exp.Is(this=this, expression=exp.Null()))
        ahead = 2 if self.token(1) == "NOT" else 1
        if self.token() != "IS" or self.token(ahead) not in _TRUTHS:
            return None
        self._advance(ahead + 1)
        word = self._prev.text.upper()
        truth = {"TRUE": exp.true(), "FALSE": exp.false(), "NULL": exp.Null()}.get(word) or exp.var("UNKNOWN")
        test = exp.Is(this=this, expression=truth)
        return self._unlike(first, test) if ahead == 2 else self.noted(first, test)

    def _unlike(self, first: int, positive: exp.Expr) -> exp.Expr:
        return self.noted(first, trees.Unlike(this=self.noted(first, positive)))

    def distinction(self) -> exp.Expr:
        first, this = self._index, self.comparison()
        while (found := self._distinct_from(first, this)) is not None:
            this = found
        return this

    def _distinct_from(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if self.accept("IS", "DISTINCT", "FROM"):
            return self.noted(first, exp.NullSafeNEQ(this=this, expression=self.comparison()))
        if self.accept("IS", "NOT", "DISTINCT", "FROM"):
            return self.noted(first, exp.NullSafeEQ(this=this, expression=self.comparison()))
        return None

    def comparison(self) -> exp.Expr:
        first, this = self._index, self.predicate()
        while (found := self._compared(first, this)) is not None:
            this = found
        return this

    def _compared(self, first: int, this: exp.Expr) -> exp.Expr | None:
        compare = _COMPARISONS.get(self.token())
        if compare is None:
            return None
        self._advance()
        right = self.negation() if self.token() == "NOT" else self.predicate()
        return self.noted(first, compare(this=this, expression=right))

    def predicate(self) -> exp.Expr:
        """x [NOT] IN ..., any number of them, then one [NOT] BETWEEN or LIKE."""
        first, this = self._index, self.other()
        while self.token() == "IN" or (self.token() == "NOT" and self.token(1) == "IN"):
            negated = self.accept("NOT")
            self._advance()
            this = self._in(first, this, negated)
            while (cast := self._cast_after(first, this)) is not None:
                this = cast
        ahead = 1 if self.token() == "NOT" else 0
        word = self.token(ahead)
        if word not in _MATCHES and word not in ("BETWEEN", "SIMILAR"):
            return this
        self._advance(ahead)
        found = self._between(first, this) if word == "BETWEEN" else self._match_word(first, this)
        return self._unlike(first, found) if ahead else found

    def _in(self, first: int, this: exp.Expr, negated: bool) -> exp.Expr:
        arguments: dict[str, Any] = {}
        if self.token() == "(":
            query = self.attempt(self.enclosed_query)
            arguments = {"query": query} if query is not None else {"expressions": self.enclosed(self.scalar)}
        else:
            arguments = {"field": self.other()}
        found = self.noted(first, exp.In(this=this, **arguments))
        return self._unlike(first, found) if negated else found

    def _between(self, first: int, this: exp.Expr) -> exp.Expr:
        self.expect("BETWEEN")
        self.accept("ASYMMETRIC")
        low = self.other()
        self.expect("AND")
        return self.noted(first, exp.Between(this=this, low=low, high=self.other()))

    def _match_word(self, first: int, this: exp.Expr) -> exp.Expr:
        operator = self.token()
        self._advance()
        if operator == "SIMILAR":
            self.expect("TO")
            operator = "SIMILAR TO"
        match = trees.Match(this=this, operator=operator, expression=self.other())
        if self.accept("ESCAPE"):
            match.set("escape", self.other())
        return self.noted(first, match)

    def other(self) -> exp.Expr:
        """The operators without a level of their own: `||`, `->>`, `@>`, ..., and those before ANY and ALL."""
        first = self._index
        if self._is_sign() and self.token() not in ("+", "-", "~", "*"):
            operator = self.token()
            self._advance()
            return self.noted(first, trees.Prefix(operator=operator, this=self.other()))
        this = self.bits()
        while (found := self._other_operator(first, this)) is not None:
            this = found
        return this

    def _is_sign(self) -> bool:
        text = self.token()
        return bool(text) and text[0] in SIGNS

    def _other_operator(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if self.token() == "OPERATOR" and self.token(1) == "(":
            begin = self._index
            self._advance()
            self.skip_enclosed()
            operator = self.source(begin)
            return self.noted(first, trees.Infix(this=this, operator=operator, expression=self.bits()))
        if not self._is_sign():
            return None
        operator = self.token()
        if self._is_quantified():
            self._advance(2)
            quantified = exp.All if self._prev.text.upper() == "ALL" else exp.Any
            inside = self.noted(self._index - 1, quantified(this=self.attempt(self.enclosed_query) or self.bits()))
            compare = _COMPARISONS.get(operator)
            if compare is not None:
                return self.noted(first, compare(this=this, expression=inside))
            return self.noted(first, trees.Infix(this=this, operator=operator, expression=inside))
        if operator in _OTHER_LEVELS:
            return None
        self._advance()
        return self.noted(first, trees.Infix(this=this, operator=operator, expression=self.bits()))

    def bits(self, weakest: int = _BITS) -> exp.Expr:
        """The operators of arithmetic and of bits, those that bind at least as tightly as `weakest`."""
        first = self._index
        if weakest < _TIMES and self.accept("~"):
            this: exp.Expr = self.noted(first, trees.Prefix(operator="~", this=self.bits(_PLUS)))
        else:
            this = self._collated()
        while (power := _POWERS.get(operator := self.token(), 0)) >= weakest and not self._is_quantified():
            self._advance()
            right = self.bits(power + 1)
            if operator in _ARITHMETIC:
                this = self.noted(first, _ARITHMETIC[operator](this=this, expression=right))
            else:
                this = self.noted(first, trees.Infix(this=this, operator=operator, expression=right))
        return this

    def _is_quantified(self) -> bool:
        """Whether the operator here stands before ANY or ALL, which bind it to themselves."""
        return self.token(1) in ("ANY", "SOME", "ALL") and self.token(2) == "("

    def _collated(self) -> exp.Expr:
        first, this = self._index, self._zoned()
        while self.accept("COLLATE"):
            parts = self.dotted("a collation")
            named = exp.Column(this=parts[0]) if len(parts) == 1 else exp.Dot.build(parts)
            this = self.noted(first, exp.Collate(this=this, expression=named))
        return this

    def _zoned(self) -> exp.Expr:
        first, this = self._index, self._signed()
        while self.accept("AT", "TIME", "ZONE"):
            this = self.noted(first, exp.AtTimeZone(this=this, zone=self._signed()))
        return this

    def _signed(self) -> exp.Expr:
        first = self._index
        if self.accept("-"):
            return self.noted(first, exp.Neg(this=self._signed()))
        if self.accept("+"):
            return self.noted(first, trees.Prefix(operator="+", this=self._signed()))
        return self._indirected(first, self.primary())

    def _indirected(self, first: int, this: exp.Expr) -> exp.Expr:
        """x::type, x.field, x.method(...), x[...], x!"""
        while True:
            found = self._cast_after(first, this) or self._field(first, this) or self._subscript(first, this)
            if found is None and self.kind() is TokenType.NOT and self.accept("!"):
                found = self.noted(first, trees.Factorial(this=this))
            if found is None:
                return this
            this = found

    def _cast_after(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if not self.accept("::"):
            return None
        return self.noted(first, exp.Cast(this=this, to=self.type_name()))

    def _field(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if not self.accept("."):
            return None
        name = self.label("a field")
        if self.token() == "(":
            return self.call(first, [name], method=this)
        return self.noted(first, exp.Dot(this=this, expression=name))

    def _subscript(self, first: int, this: exp.Expr) -> exp.Expr | None:
        if not self.accept("["):
            return None
        begin = self._index
        low = None if self.token() in (":", "]") else self.scalar()
        bound: exp.Expr | None = low
        if self.accept(":"):
            step: exp.Expr | None = None
            high: exp.Expr | None = None
            if self.token() == "-" and self.token(1) == ":":
                self._advance()
                high = exp.var("-")
            elif self.token() not in (":", "]"):
                high = self.scalar()
            if self.accept(":"):
                step = None if self.token() == "]" else self.scalar()
            bound = self.noted(begin, exp.Slice(this=low, expression=high, step=step))
        if bound is None:
            self.raise_error("Expected a subscript")
        self.expect("]")
        return self.noted(first, exp.Bracket(this=this, expressions=[bound]))
