"""Snapshots: the state of a file's views beside the file, so that opening the file need not build them again."""
