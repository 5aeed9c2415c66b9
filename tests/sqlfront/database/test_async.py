"""A connection for asyncio: the loop goes on while a statement runs, and a cancelled call ends its statement."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlfront

SETUP = """
CREATE TABLE r (a BIGINT);
CREATE CHANGE TABLE c (a BIGINT);
CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(a) AS s FROM r;
CREATE MATERIALIZED VIEW g AS SELECT a, count(*) AS n FROM c GROUP BY a;
"""
LONG = "SELECT count(*) FROM range(1000000000) x, range(1000000) y WHERE hash(x.range) = y.range"


def test_calls_are_awaited(tmp_path: Path) -> None:
    async def use() -> None:
        async with await sqlfront.aconnect(tmp_path / "a.duckdb") as con:
            await con.execute(SETUP)
            await con.executemany("INSERT INTO r VALUES (?)", [(1,), (2,)])
            assert await (await con.execute("FROM m")).fetchall() == [(2, 3)]
            epoch = await con.apply({"c": pa.table({"a": [7, 7]})})
            assert epoch is not None and epoch.rows == {"c": 1}
            assert await con.run(lambda: con.connection.view("g").get(7)) == (7, 2)
            await con.begin()
            other = await con.cursor()
            await con.execute("INSERT INTO r VALUES (3)")
            assert await (await other.execute("FROM m")).fetchone() == (2, 3)
            await con.commit()
            assert await (await other.execute("FROM m")).fetchone() == (3, 6)
            await other.append("r", pa.table({"a": [10]}))
            assert [row async for row in await con.execute("FROM r ORDER BY a")] == [(1,), (2,), (3,), (10,)]
            await con.register("data", pa.table({"x": [5]}))
            assert (await (await con.execute("SELECT x FROM data")).to_arrow_table()).to_pylist() == [{"x": 5}]
            with pytest.raises(sqlfront.ProgrammingError):
                await con.execute("FROM nowhere")
            await other.close()
        with pytest.raises(sqlfront.OperationalError, match="IO Error"):
            await sqlfront.aconnect(tmp_path / "no" / "where.duckdb")

    asyncio.run(use())


def test_the_loop_goes_on_and_a_cancelled_call_ends() -> None:
    async def use() -> None:
        async with await sqlfront.aconnect() as con:
            await con.execute(SETUP)
            running = asyncio.create_task(con.execute(LONG))
            beats, began = 0, time.monotonic()
            while time.monotonic() - began < 0.3:
                await asyncio.sleep(0.01)
                beats += 1
            assert beats >= 5
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert time.monotonic() - began < 10
            assert await (await con.execute("FROM m")).fetchall() == [(0, None)]

    asyncio.run(use())


def test_a_failure_after_a_cancelled_call_is_nobodys() -> None:
    """The loop does not report the interrupted statement as an exception that was never retrieved."""
    reported = list[Any]()

    async def use() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with await sqlfront.aconnect() as con:
            await con.execute(SETUP)
            running = asyncio.create_task(con.execute(LONG))
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await con.execute("FROM m")
        gc.collect()

    asyncio.run(use())
    assert reported == []


def test_a_connection_that_has_ended_refuses_calls_by_name() -> None:
    async def use() -> None:
        con = await sqlfront.aconnect()
        for _ in range(2):
            await con.close()
        with pytest.raises(sqlfront.InterfaceError, match="closed"):
            await con.execute("SELECT 1")

    asyncio.run(use())


def test_readers_and_a_writer_side_by_side() -> None:
    async def use() -> None:
        async with await sqlfront.aconnect() as con:
            await con.execute(SETUP)

            async def write() -> None:
                async with await con.cursor() as cursor:
                    for _ in range(20):
                        await cursor.execute("INSERT INTO r VALUES (1), (-1)")

            async def read() -> None:
                async with await con.cursor() as cursor:
                    for _ in range(20):
                        [(n, s)] = await (await cursor.execute("FROM m")).fetchall()
                        assert n % 2 == 0 and s in (None, 0)

            await asyncio.gather(write(), read(), read())
            assert await (await con.execute("FROM m")).fetchall() == [(40, 0)]

    asyncio.run(use())
