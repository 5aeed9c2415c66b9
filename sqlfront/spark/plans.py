"""What Spark is about to read: the reads in the plan of an execution, asked of the driver's JVM.

An execution's tasks ask for one read each, and none knows of the others. The plan lists all of them before the first
task runs, so one snapshot can hold them all. Costs some calls to the JVM for each execution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

Request = dict[str, Any]


def planned_reads(spark: Any, execution: str, sources: Collection[str]) -> list[Request]:
    """The reads of these data sources (names in lower case) in an execution's plan: `columns`, and their options.

    Empty if Spark does not know the execution, as of jobs over RDDs.
    """
    if not execution.isdigit():
        return []
    found = spark._jvm.org.apache.spark.sql.execution.SQLExecution.getQueryExecution(int(execution))
    if found is None:
        return []
    return [own for relation in _relations(spark, found.optimizedPlan()) if (own := _read(relation, sources))]


def job_of(spark: Any, stage: int) -> int | None:
    """The running job that a stage belongs to; the first one of several."""
    tracker = spark.sparkContext.statusTracker()
    jobs = {job: tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()}
    return min((job for job, told in jobs.items() if told is not None and stage in told.stageIds), default=None)


def _relations(spark: Any, plan: Any) -> Iterator[Any]:
    """The tables of data sources that a plan reads, in subqueries and caches that are not filled too."""
    for part in (plan, *_items(plan.subqueriesAll())):
        for leaf in _items(part.collectLeaves()):
            kind = leaf.getClass().getSimpleName()
            if kind == "InMemoryRelation" and not _is_filled(spark, leaf.cacheBuilder()):
                yield from _relations(spark, leaf.cacheBuilder().logicalPlan())
            elif kind == "DataSourceV2ScanRelation":
                yield leaf.relation()
            elif kind == "DataSourceV2Relation":
                yield leaf


def _is_filled(spark: Any, cache: Any) -> bool:
    """Whether all partitions of a cached plan are there. Its own methods wait for the execution that fills it, whose
    tasks wait for us."""
    stored = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return any(one.numCachedPartitions() == one.numPartitions() for one in stored if one.name() == cache.cachedName())


def _read(relation: Any, sources: Collection[str]) -> Request | None:
    table = relation.table()
    if table.name().casefold() not in sources:
        return None
    options = dict(relation.options().asCaseSensitiveMap())
    own = {name.casefold(): value for name, value in options.items()}
    return {**own, "columns": list(table.schema().fieldNames())}


def _items(found: Any) -> list[Any]:
    """The items of a Scala Seq."""
    return [found.apply(i) for i in range(found.size())]
