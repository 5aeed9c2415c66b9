"""The settings that views freeze: complete beside DuckDB's own list, given back as they were."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import pytest

from sqlfront.binding.session_settings import FROZEN, asks_time_zone, deviating, settings_of
from sqlfront.database.user_settings import frozen

REASONS = tomllib.loads((Path(__file__).parents[2] / "fixtures" / "settings.toml").read_text())
HIDDEN = {"error_on_division_by_zero"}  # DuckDB has it, and does not list it.
OTHER = {
    "TimeZone": "Asia/Tokyo",
    "Calendar": "japanese",
    "default_collation": "nocase",
    "default_null_order": "NULLS_FIRST_ON_ASC_LAST_ON_DESC",
    "default_order": "DESCENDING",
    "dialect_compatibility_mode": "spark",
    "json_geometry_format": "geojson",
    "preserve_identifier_case": "lowercase",
}


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        yield connection


def test_each_setting_of_duckdb_is_frozen_or_changes_no_answer(con):
    known = [name for group in REASONS.values() for name in group["settings"]]
    assert len(set(known)) == len(known)
    frozen_names = {name for name, _ in FROZEN}
    assert not frozen_names & set(known)
    listed = {name for (name,) in con.execute("SELECT name FROM duckdb_settings()").fetchall()}
    assert listed | HIDDEN == frozen_names | set(known)


def test_the_defaults_are_those_of_duckdb(con):
    own = settings_of(con)
    assert all(own[name] == default for name, default in FROZEN if name != "TimeZone")
    assert deviating(own, zoned=False) == ()
    assert deviating(own, zoned=True) == (("TimeZone", own["TimeZone"]),)


@pytest.mark.parametrize("name", [name for name, _ in FROZEN])
@pytest.mark.parametrize("users", [False, True])
def test_a_setting_is_set_and_given_back(con, name, users):
    if users:  # A setting of the user's session, besides that of all sessions.
        con.execute(f"SET SESSION {name} = '{OTHER.get(name) or 'true'}'")
    before = settings_of(con)
    named = dict(FROZEN)[name] if users else OTHER.get(name)
    flipped = {"true": "false", "false": "true"}.get(before[name], named if named is not None else "UTC")
    with frozen(con, before | {name: flipped}):
        assert settings_of(con) == before | {name: flipped}
    assert settings_of(con) == before
    if not users:
        con.execute(f"SET GLOBAL {name} = '{flipped}'")
        assert settings_of(con)[name] == flipped, "the session has become the user's no more"


def test_a_time_zone_counts_only_where_it_is_asked_for(con):
    con.execute("SET TimeZone = 'Asia/Tokyo'; SET integer_division = true")
    assert deviating(settings_of(con), zoned=False) == (("integer_division", "true"),)
    pairs = deviating(settings_of(con), zoned=True)
    assert pairs == (("TimeZone", "Asia/Tokyo"), ("integer_division", "true"))
    assert asks_time_zone(pairs)
