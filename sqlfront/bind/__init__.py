"""From a parse tree to the planner's definition of a view."""
