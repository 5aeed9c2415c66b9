"""Spark as an equal of DuckDB: its changes in (con.register_changes), maintained views out, its dialect understood.

sqlfront.spark.register(spark, con)                  # views of con in Spark SQL, as temporary views
sqlfront.spark.sql(spark, con, "CREATE MATERIALIZED VIEW v AS SELECT ...")
spark.read.format("sqlfront").option("view", "v").load()
spark.readStream.format("sqlfront_changes").option("view", "v").load()
sqlfront.spark.shards(con, "SELECT ...", {"t": stream}, shards=8)   # a view that is too large for one machine
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlfront.sql.recognise import is_own
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database.entries import ViewEntry
    from sqlfront.spark.server import ViewServer
    from sqlfront.spark.shard_job import ShardedView

_servers: weakref.WeakKeyDictionary[Any, ViewServer] = weakref.WeakKeyDictionary()
_made: dict[str, dict[str, tuple[str, ViewServer]]] = {}
"""The temporary views that were made in each Spark application, by their names in lower case, and who serves them."""


def register(spark: Any, con: Connection, *, name: str = "sqlfront", host: str = "127.0.0.1") -> None:
    """Make the views of a connection's database usable in a Spark session, and the session's tables as sources.

    Registers the data sources `name` and `name`_changes, and a temporary view for each materialized view: a second
    database takes another name. `host` is this machine's address as executors reach it. Executors need sqlfront and
    pyarrow installed. Serving ends with `unregister`, or when `con` is closed.
    """
    from sqlfront.spark.server import ViewServer
    from sqlfront.spark.source import ChangeSource, ViewSource

    database = con.session.database
    if database not in _servers:
        _servers[database] = ViewServer(con, host)
    server, context = _servers[database], spark.sparkContext
    database.spark = server.spark = spark
    server.called = name
    for kind, called in ((ViewSource, name), (ChangeSource, f"{name}_changes")):
        # A class made here travels to the workers with its values.
        values = {"address": server.address, "secret": server.secret, "called": called}
        values |= {"session": context.applicationId, "parallelism": context.defaultParallelism}
        spark.dataSource.register(type(kind.__name__, (kind,), values))
        server.sources.add(called.casefold())
    refresh(spark, con)


def refresh(spark: Any, con: Connection) -> None:
    """Make temporary views in Spark for the materialized views of now, and drop those of views that are gone.

    They have the views' names, without their schemas. A name that another temporary view has, or a view of schema main,
    is not taken: a warning says so, and `spark.read.format("sqlfront").option("view", "schema.v")` reads the view.
    """
    from sqlfront.database.names import shown
    from sqlfront.storage.outside.spark_source import spark_name

    database = con.session.database
    server, made = _servers[database], _made.setdefault(spark.sparkContext.applicationId, {})
    # A view whose server is gone is nobody's.
    free = {key for key, (_, other) in made.items() if other is server or other not in _servers.values()}
    taken = {table.name.casefold() for table in spark.catalog.listTables() if table.isTemporary} - free
    wanted: dict[str, ViewEntry] = {}
    for entry in sorted(database.views.values(), key=lambda entry: (entry.name.schema != "main", entry.scan)):
        key = entry.name.name.casefold()
        if key in wanted or key in taken:
            warnings.warn(f"{shown(entry.name)} has no view in Spark: its name is taken", stacklevel=3)
        else:
            wanted[key] = entry
    for key in [key for key, (_, other) in made.items() if other is server and key not in wanted]:
        spark.catalog.dropTempView(made.pop(key)[0])
    for key, entry in wanted.items():
        frame = spark.read.format(server.called).option("view", shown(entry.name)).load()
        frame.createOrReplaceTempView(spark_name(entry.name.name))
        made[key] = entry.name.name, server


def unregister(con: Connection) -> None:
    """Serve a database's views no more, and drop its temporary views in the session that was registered last."""
    server, spark = _servers.pop(con.session.database, None), con.session.database.spark
    if server is not None:
        running = spark is not None and spark.getActiveSession() is not None  # None after spark.stop().
        made = _made.get(spark.sparkContext.applicationId, {}) if running else {}
        for key in [key for key, (_, other) in made.items() if other is server]:
            spark.catalog.dropTempView(made.pop(key)[0])
        server.shutdown()
    con.session.database.spark = None


def sql(spark: Any, con: Connection, statement: str) -> Any:
    """Run one statement in Spark's dialect: sqlfront's own here, any other in Spark. A DataFrame, or None.

    Views that are created or dropped are so in Spark too. `CREATE TABLE t USING sqlfront OPTIONS (view 'v')`, whose
    options Spark forgets, makes a temporary view `t` of v.
    """
    if con.session.database.spark is not spark:
        raise ProgrammingError("this session is not registered", hint="sqlfront.spark.register(spark, con) first")
    if not is_own(statement):
        return spark.sql(_as_view(spark, statement, _servers[con.session.database].sources))
    con.execute(statement, dialect="spark")
    refresh(spark, con)
    if con.description is None:
        return None
    found = con.to_arrow_table()
    return spark.createDataFrame(found) if found.num_columns else None


_TABLE = re.compile(
    r"\s*CREATE\s+(?P<replace>OR\s+REPLACE\s+)?TABLE\s+(?P<once>IF\s+NOT\s+EXISTS\s+)?"
    r"(?P<name>`(?:[^`]|``)+`|\w+)\s+USING\s+(?P<source>`[^`]+`|\w+)(?P<rest>\s.*|)",
    re.IGNORECASE | re.DOTALL,
)


def _as_view(spark: Any, statement: str, sources: set[str]) -> str:
    """The statement, with a temporary view in place of a table that would be one of these sources."""
    table = _TABLE.fullmatch(statement)
    if table is None or table["source"].strip("`").casefold() not in sources:
        return statement
    if table["once"] and spark.catalog.tableExists(table["name"]):
        return "SELECT 1 AS there WHERE false"
    return f"CREATE {table['replace'] or ''}TEMPORARY VIEW {table['name']} USING {table['source']}{table['rest']}"


def shards(
    con: Connection, query: str, streams: Mapping[str, Any], *, shards: int, sizes: Mapping[str, float] | None = None,
    shape: str = "auto",
) -> ShardedView:  # fmt: skip
    """The view of a SELECT over tables that `con` declares, kept in Spark's workers, by at most so many shards.

    `streams` are streaming DataFrames of the tables' changes, by the tables' names, in any shape of changes. `sizes`
    are the tables' expected rows, from which the planner chooses what is sent where (con.explain(query, shards=8) shows
    it); what cannot be spread is on one shard, and `.plan.partitioning.reason` says why. Nothing runs before a query
    over `.changes` is started, or `.into` starts one.
    """
    from sqlfront.shards.shard_plan import named_tables, plan_shards
    from sqlfront.spark.shard_job import start_shards

    plan = plan_shards(con.session, query, shards, sizes)
    found = named_tables(con.session, streams)
    missing = [table for table, _ in plan.tables if table not in found]
    if missing or len(found) > len(plan.tables):
        needed = ", ".join(table.removeprefix("main.") for table, _ in plan.tables)
        raise ProgrammingError(
            f"streams of {', '.join(streams) or 'no table'}", why=f"the query reads {needed}", hint="give one for each"
        )
    return start_shards(con, plan, {table: found[table] for table, _ in plan.tables}, shape)
