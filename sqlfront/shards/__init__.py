"""A view on several machines: the same engine in every shard, over the rows that the planner's partitioning sends it.

Nothing here knows who runs the shards: sqlfront.spark.shards does so with Structured Streaming.
"""
