"""The cut: from a term of the algebra to the planner's Definition, as much as possible in one view tree."""
