"""The settings of DuckDB that change an answer: a view is computed under those of the session that created it.

FROZEN lists all of them. A test compares the list with `duckdb_settings()`: each other setting of DuckDB is in
tests/fixtures/settings.toml with the reason why no view's answer depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.sql.remembered import ask

Settings = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]

FROZEN: tuple[tuple[str, str | None], ...] = (
    ("TimeZone", None),
    ("Calendar", "gregorian"),
    ("default_collation", ""),
    ("default_null_order", "NULLS_LAST"),
    ("default_order", "ASCENDING"),
    ("dialect_compatibility_mode", "NONE"),
    ("disable_timestamptz_casts", "false"),
    ("error_on_division_by_zero", "true"),
    ("ieee_floating_point_ops", "true"),
    ("ignore_unknown_crs", "false"),
    ("integer_division", "false"),
    ("json_geometry_format", "wkt"),
    ("order_by_non_integer_literal", "false"),
    ("preserve_identifier_case", "preserve_case"),
    ("scalar_subquery_error_on_multiple_rows", "true"),
)
"""Each setting with DuckDB's default; None for the default that the machine decides."""

_OF_INSTANTS = ("TimeZone", "Calendar")
_ASKED = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name, _ in FROZEN)


def settings_of(con: Any) -> dict[str, str]:
    """The values of all frozen settings in the session of `con`. One query, if the answer is not remembered."""
    values = ask(con, f"SELECT {_ASKED}")
    found = dict(zip((name for name, _ in FROZEN), values, strict=True))
    descending = found["default_order"].upper().startswith("DESC")  # DuckDB shows it as it was written.
    return found | {"default_order": "DESCENDING" if descending else "ASCENDING"}


def settled(settings: Settings) -> dict[str, str]:
    """The settings under which a query is computed whose collations are written out."""
    return {**settings, "default_collation": ""}


def deviating(settings: Settings, *, zoned: bool) -> Pairs:
    """The settings under which expressions must be computed: those that are not DuckDB's defaults. TimeZone and
    Calendar are among them only if expressions are `zoned`, that is, ask for the time zone."""
    asked = [(name, default) for name, default in FROZEN if zoned or name not in _OF_INSTANTS]
    return tuple((name, settings[name]) for name, default in asked if settings[name] != default)


def asks_time_zone(pairs: Pairs) -> bool:
    """Whether settings were chosen for `zoned` expressions."""
    return any(name == "TimeZone" for name, _ in pairs)
