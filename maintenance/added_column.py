"""A column more for a table that the engine keeps. The stores of views stay as they are: they have what they read.

O(rows) where the table keeps its rows, else O(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.output.output import table_batches
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.maintenance.relation.waiting import Waiting
from sqlfront.planner.model.query import LeafColumn
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.maintenance.engine import Engine


def add_column(engine: Engine, name: str, column: Column, default: Any) -> None:
    """Add a column, whose value in all present rows is `default`, an Arrow array of one. No change may wait."""
    import numpy as np

    with engine.lock:
        relation = engine.relations[name]
        filled, rows = relation.base, []
        for batch, weights in table_batches(relation) if filled is not None else ():
            values = default.take(arrow_numbers(np.zeros(len(weights), np.int64)))
            rows.append((batch.append_column(column.name, values), weights))
        concerned = [relation, *(copy for copy in engine.relations.values() if copy.copy_of == name)]
        for each in concerned:
            each.columns = (*each.columns, column)
            each.waiting = Waiting(each) if each.waiting is not None else None
        if filled is not None:
            columns = [LeafColumn(c.name, quote(c.name), c.type, c.name) for c in relation.columns]
            relation.base = relation.open_store(columns, (), (), (), "base")
            relation.base.users.add("")
            relation.close_store(filled, "")
            filled.table.release()
            engine.fill_table(name, rows, sum(len(weights) for _, weights in rows))
        engine.renew_programs([each.name for each in concerned])
