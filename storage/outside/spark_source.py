"""Changes that Spark reads: DataFrames and tables in any shape, filtered, projected and netted by Spark itself."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlfront.storage.outside.change_shapes import VERSION, WEIGHT, Dialect, Wanted, any_of, shape_of, signed_branches
from sqlfront.storage.outside.sources import version_span

if TYPE_CHECKING:
    import pyarrow as pa

_numbers = itertools.count()

# The Spark type that holds exactly the values of a DuckDB type: conditions mean the same over both.
_SAME = {
    "BIGINT": "bigint", "INTEGER": "int", "SMALLINT": "smallint", "TINYINT": "tinyint", "VARCHAR": "string",
    "BOOLEAN": "boolean", "DATE": "date", "TIMESTAMP": "timestamp_ntz",
}  # fmt: skip


def spark_name(name: str) -> str:
    """A name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


SPARK = Dialect(spark_name, "raise_error", lambda value, type_: value)


class SparkSource:
    """A batch DataFrame of changes. With a version column each read takes what is newer; without, it is read once."""

    def __init__(self, name: str, frame: Any, shape: str = "auto", version: str = VERSION) -> None:
        self.name, self._frame, self._shape, self._version = name, frame, shape, version

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        version = next((name for name in self._frame.columns if name.casefold() == self._version.casefold()), None)
        if version is None:
            if after is None:
                yield changes_of(self._frame, self._shape, wanted), "read"
            return
        with _Named(self._frame) as relation:
            session = self._frame.sparkSession
            last, span = version_span(
                lambda sql: [tuple(row) for row in session.sql(sql).collect()], relation, spark_name(version), after
            )
        if span is not None:
            yield changes_of(self._frame, self._shape, wanted, span), last


class SparkTableSource:
    """A table or view of Spark's catalog, read as it is at each time."""

    def __init__(self, session: Any, table: str, shape: str = "auto", version: str = VERSION) -> None:
        self.name, self._session, self._table = f"spark:{table}", session, table
        self._shape, self._version = shape, version

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        frame = self._session.table(self._table)
        return SparkSource(self.name, frame, self._shape, self._version).read(after, wanted)


def changes_of(frame: Any, shape: str, wanted: Wanted, where: str | None = None) -> pa.Table:
    """The changes in a DataFrame, as Arrow: Spark filters and projects them, and only what views read travels.

    Spark nets them where many may be equal. Elsewhere its GROUP BY would shuffle every row to find nothing, which takes
    longer than all that follows; the engine nets what it is given anyhow.
    """
    return signed_frame(frame, shape, wanted, where, netted=wanted.repeats).toArrow()


def signed_frame(frame: Any, shape: str, wanted: Wanted, where: str | None = None, *, netted: bool = False) -> Any:
    """The changes in a DataFrame, which may stream, as one of the columns that are needed and `_weight`."""
    from pyspark.sql import functions as spark

    # Methods, not a query over a temporary view: to make and drop one costs as much as to collect small batches.
    parts = []
    for values, condition in signed_branches(shape_of(shape, frame.columns, wanted), wanted, SPARK, where):
        parts.append((frame.where(condition) if condition else frame).selectExpr(*values))
    found = functools.reduce(lambda one, other: one.unionAll(other), parts)
    conditions = spark_conditions(wanted, dict(frame.dtypes)) if wanted.conditions else None
    if conditions:
        found = found.where(any_of(conditions))
    if not netted:
        return found
    needed = [spark_name(name) for name, _ in wanted.needed]
    return found.groupBy(*needed).agg(spark.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")


def spark_conditions(wanted: Wanted, types: dict[str, str]) -> tuple[str, ...] | None:
    """The conditions in Spark's SQL; None if one of them might mean something else there."""
    if not wanted.conditions:
        return None
    here = {name.casefold(): type_ for name, type_ in types.items()}
    same = {name.casefold() for name, type_ in wanted.columns if here.get(name.casefold()) == _same(type_)}
    found = [_portable(text, same) for text in wanted.conditions]
    return None if None in found else tuple(text for text in found if text is not None)


def _same(type_: str) -> str | None:
    return type_.lower().replace(" ", "") if type_.startswith("DECIMAL(") else _SAME.get(type_)


def _portable(condition: str, columns: set[str]) -> str | None:
    """A condition as Spark writes it, if it only compares those columns with constants and connects the comparisons."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(condition, dialect="duckdb")
    plain = (
        exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Null,
        exp.Column, exp.Identifier, exp.Literal, exp.In, exp.Between, exp.Boolean, exp.Neg,
    )  # fmt: skip
    for node in tree.walk():
        if isinstance(node, exp.Cast):
            if not (isinstance(node.this, exp.Literal) and node.to.is_type("date", "bigint", "int", "varchar")):
                return None
        elif isinstance(node, exp.DataType):
            if not isinstance(node.parent, exp.Cast):
                return None
        elif isinstance(node, exp.Predicate) and len(list(node.find_all(exp.Column))) > 1:
            return None  # Two columns may be compared by another type than Spark would take.
        elif type(node) not in plain or (
            isinstance(node, exp.Column) and (node.table or node.name.casefold() not in columns)
        ):
            return None
    return str(tree.sql(dialect="spark"))


class _Named:
    """A DataFrame under a name in its session's SQL, for a while."""

    def __init__(self, frame: Any) -> None:
        self._frame, self._name = frame, f"__sqlfront_changes_{next(_numbers)}"

    def __enter__(self) -> str:
        self._frame.createOrReplaceTempView(self._name)
        return self._name

    def __exit__(self, *exception: object) -> None:
        self._frame.sparkSession.catalog.dropTempView(self._name)
