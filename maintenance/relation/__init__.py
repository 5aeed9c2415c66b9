"""Base tables at run time: their stores, computed columns and how changes come in."""
