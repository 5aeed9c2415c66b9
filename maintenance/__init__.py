"""Runs plans: view trees over shared stores, bulk builds, enumeration, and the epoch engine."""
