"""Settings of the user's that we change for the time of a query, and give back."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlfront.binding.session_settings import Settings, settings_of
from sqlfront.sql import remembered
from sqlfront.storage.sql_text import literal


@contextmanager
def lossless(con: Any) -> Iterator[None]:
    """Arrow results of `con` from which every DuckDB type can be restored, for the time of the body."""
    restore_sql = _restoring(con)
    if restore_sql is None:
        con.abort()  # A result that is not read to its end is in the way, and SET would end it.
    else:
        con.execute("SET SESSION arrow_lossless_conversion = true")
        owe(con, _LOSSLESS, restore_sql)
    try:
        yield
    finally:
        restore(con, _LOSSLESS)


@contextmanager
def frozen(con: Any, settings: Settings) -> Iterator[None]:
    """A view's settings in the session of `con`, for the time of the body: for statements of ours, never the user's."""
    own = settings_of(con)
    changed = {name: value for name, value in settings.items() if own[name] != value}
    try:
        if changed:
            _change(con, own, changed)
        yield
    finally:
        if changed:
            restore(con, *changed)


def _change(con: Any, own: Settings, changed: Settings) -> None:
    """Change settings of a session, and note what gives its `own` back: those of all sessions are not made its own."""
    for name in changed:
        con.execute(f"RESET SESSION {name}")
    remembered.forget()
    default = settings_of(con)
    for name, value in changed.items():
        owe(con, name, f"RESET SESSION {name}" if default[name] == own[name] else _set(name, own[name]))
        con.execute(_set(name, value))
    remembered.forget()


def owe(con: Any, setting: str, sql: str) -> None:
    """Note the SET that gives the user's value of a setting back."""
    _owed.setdefault(con, {})[setting] = sql


def is_owed(con: Any, setting: str) -> bool:
    """Whether the user's value of a setting is to be given back."""
    return setting in _owed.get(con, {})


def _set(name: str, value: str) -> str:
    return f"SET SESSION {name} = {literal(value)}"


def restore(con: Any, *settings: str) -> None:
    """The user's settings again, all that are owed or the given. An aborted transaction takes no SET: `rollback` does
    it then."""
    import duckdb

    owed = _owed.get(con, {})
    for setting in settings or tuple(owed):
        if setting not in owed:
            continue
        try:
            con.execute(owed[setting])
        except duckdb.TransactionException as error:
            if "aborted" not in str(error):
                raise
        else:
            del owed[setting]
            if setting != _LOSSLESS:
                remembered.forget()


def forget_settings() -> None:
    """Ask for the user's settings again: a statement may have changed them, for all cursors perhaps."""
    _restores.clear()
    remembered.forget()


_restores: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()
_owed: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
_LOSSLESS = "arrow_lossless_conversion"


def _restoring(con: Any) -> str | None:
    """What restores the user's setting; None if it is lossless. Asked once: the answer costs more than a small write.

    RESET SESSION restores what was set for all sessions, so it is what the user has only without a SET SESSION.
    """
    if con not in _restores:
        ask, reset = "SELECT current_setting('arrow_lossless_conversion')", "RESET SESSION arrow_lossless_conversion"
        [(found,)] = con.execute(ask).fetchall()
        if not found:
            con.execute(reset)
            [(default,)] = con.execute(ask).fetchall()
            restore = "SET SESSION arrow_lossless_conversion = false"
            if default:
                con.execute(restore)
            _restores[con] = restore if default else reset
        else:
            _restores[con] = None
    return _restores[con]


def memory_limit(con: Any) -> int:
    """DuckDB's memory_limit, in bytes."""
    ((setting,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    amount, unit = setting.split()
    return int(float(amount) * 1024 ** ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit))
