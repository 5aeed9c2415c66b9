"""Calls of functions, with all that may stand in their parentheses and after them: FILTER, WITHIN GROUP, OVER."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from sqlfront.sql import trees
from sqlfront.sql.token_reader import TokenReader


class CallReader(TokenReader):
    """Reads calls and windows; `scalar`, `other`, `query` and `order` are those of the readers above it."""

    def scalar(self) -> exp.Expr:
        raise NotImplementedError

    def other(self) -> exp.Expr:
        raise NotImplementedError

    def query(self) -> exp.Expr:
        raise NotImplementedError

    def order(self) -> exp.Order | None:
        raise NotImplementedError

    def call(self, first: int, parts: list[exp.Identifier], method: exp.Expr | None = None) -> exp.Expr:
        """A call from its opening parenthesis on, with all that may follow the closing one."""
        called = trees.Call(this=parts[-1], qualifier=parts[:-1], method=method)
        self.expect("(")
        if self.accept("DISTINCT"):
            called.set("distinct", True)
        else:
            self.accept("ALL")
        if self.token() not in (")", "ORDER", "IGNORE", "RESPECT"):
            called.set("expressions", self.listed(self.argument))
        called.set("order", self.order())
        if self.token() in ("IGNORE", "RESPECT") and self.token(1) == "NULLS":
            called.set("nulls", self.token())
            self._advance(2)
        self.expect(")")
        self._after_call(called)
        self.noted(first, called)
        return self._over(first, called) if self.token() == "OVER" else called

    def _after_call(self, called: trees.Call) -> None:
        if self.accept("WITHIN", "GROUP", "("):
            called.set("within", self.order())
            self.expect(")")
        if self.token() == "FILTER" and self.token(1) == "(":
            first = self._index
            self._advance(2)
            self.accept("WHERE")
            called.set("filter", self.noted(first, exp.Where(this=self.scalar())))
            self.expect(")")
        if self.accept("EXPORT_STATE"):
            called.set("export", True)

    def argument(self) -> exp.Expr:
        first = self._index
        if self.token(1) in (":=", "=>") and self.kind() in (TokenType.VAR, TokenType.IDENTIFIER):
            name = self.label("an argument's name")
            self._advance()
            return self.noted(first, exp.Kwarg(this=name, expression=self.scalar()))
        return self.scalar()

    def _over(self, first: int, called: exp.Expr) -> exp.Expr:
        self.expect("OVER")
        if self.token() != "(":
            return self.noted(first, trees.Window(this=called, alias=self.identifier("a window"), bare=True))
        window = trees.Window(this=called)
        self.window_definition(window)
        return self.noted(first, window)

    def window_definition(self, window: trees.Window) -> None:
        """([name] [PARTITION BY ...] [ORDER BY ...] [frame])"""
        self.expect("(")
        if self.token() not in ("PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS", ")") or self.token(1) == ")":
            window.set("alias", self.identifier("a window") if self.token() != ")" else None)
        if self.accept("PARTITION", "BY"):
            window.set("partition_by", self.listed(self.scalar))
        window.set("order", self.order())
        if self.token() in ("ROWS", "RANGE", "GROUPS"):
            window.set("spec", self._frame())
        self.expect(")")

    def _frame(self) -> exp.WindowSpec:
        first, spec = self._index, exp.WindowSpec(kind=self.token())
        self._advance()
        between = self.accept("BETWEEN")
        spec.set("start", self._bound())
        spec.set("start_side", self._side(spec.args["start"]))
        if between:
            self.expect("AND")
            spec.set("end", self._bound())
            spec.set("end_side", self._side(spec.args["end"]))
        if self.accept("EXCLUDE"):
            begin = self._index
            if not (self.accept_any("GROUP", "TIES") or self.accept("NO", "OTHERS") or self.accept("CURRENT", "ROW")):
                self.raise_error("Expected CURRENT ROW, GROUP, TIES or NO OTHERS")
            spec.set("exclude", exp.var(self.source(begin).upper()))
        return self.noted(first, spec)

    def _bound(self) -> str | exp.Expr:
        if self.accept("CURRENT", "ROW"):
            return "CURRENT ROW"
        return "UNBOUNDED" if self.accept("UNBOUNDED") else self.scalar()

    def _side(self, bound: str | exp.Expr) -> str | None:
        if bound == "CURRENT ROW":
            return None
        return self.accept_any("PRECEDING", "FOLLOWING") or self.raise_error("Expected PRECEDING or FOLLOWING")
