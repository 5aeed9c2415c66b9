"""One maintained view, and what it keeps beside its tree."""
