"""Change sources, sinks and the durable log: what lies outside the engine's memory."""
