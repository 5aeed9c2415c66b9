"""Reads that go to a view's trees instead of scanning the view."""
