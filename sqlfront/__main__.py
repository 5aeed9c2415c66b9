"""The command line: sqlfront [DATABASE] [-c SQL | -f FILE], doctor FILE, backup FILE TARGET, and warm."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlfront
from sqlfront.shell.shell import Shell, repl, terminal_width

ROWS = 40


def main(arguments: Sequence[str] | None = None, connect: Callable[..., Any] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 1 after an error, 130 after Ctrl-C.

    `connect` makes the connection; it is `sqlfront.connect` unless another is given.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    match given:
        case ["doctor", path] if not path.startswith("-"):
            return doctor(path)
        case ["backup", path, target] if not path.startswith("-"):
            return backup(path, target)
    parser = _parser()
    if given[:1] in (["doctor"], ["backup"]) and not os.path.exists(given[0]) and not {"-h", "--help"} & {*given}:
        parser.error(f"sqlfront {given[0]} takes {'FILE' if given[0] == 'doctor' else 'FILE and TARGET'}")
    options = parser.parse_args(given)
    connect = connect or sqlfront.connect
    if options.database == "warm" and not (options.command or options.file or os.path.exists("warm")):
        return warm()
    try:
        connection = connect(options.database)
    except Exception as error:
        print(error, file=sys.stderr)
        return 1
    try:
        return _run(connection, options)
    except BrokenPipeError:
        # The reader of our output has gone (sqlfront ... | head): nothing is left to say, and no one to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        connection.close()


def doctor(path: str) -> int:
    """Say what a file keeps of its views, and what opening it would build anew; 1 if something is wrong with it."""
    from sqlfront.snapshots.doctor import examine

    try:
        lines, sound = examine(path)
    except sqlfront.Error as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0 if sound else 1


def backup(path: str, target: str) -> int:
    """Copy a file with its snapshot, and say what the copy has; 1 if it could not be made."""
    from sqlfront.snapshots.backup import back_up

    try:
        made = back_up(path, target)
    except (sqlfront.Error, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(made))
    return doctor(target)


def warm() -> int:
    """Compile the kernels into the user's cache, so that the first view of a later process need not wait."""
    from sqlfront.storage.native.kernel_setup import ensure_kernels

    start = time.perf_counter()
    ensure_kernels()
    from sqlfront.storage.kernels.jit import compile_all

    compile_all()
    print(f"The kernels are compiled ({time.perf_counter() - start:.1f} s).")
    return 0


def _run(connection: Any, options: argparse.Namespace) -> int:
    terminal = sys.stdout.isatty()
    shell = Shell(
        connection,
        width=terminal_width if terminal else lambda: None,
        most=ROWS if terminal else 0,
        timer=terminal,
    )
    if options.command is not None:
        return 0 if shell.run(options.command) else 1
    if options.file is not None:
        text = sys.stdin.read() if str(options.file) == "-" else options.file.read_text()
        return 0 if shell.run(text) else 1
    if not sys.stdin.isatty():
        return 0 if shell.run(sys.stdin.read()) else 1
    place = "in memory" if options.database == ":memory:" else options.database
    repl(shell, f"sqlfront {sqlfront.__version__}, {place}. Type .help for help.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqlfront",
        description="SQL with materialized views that maintain themselves.",
        epilog="sqlfront doctor FILE examines what a file keeps of its views. "
        "sqlfront backup FILE TARGET copies a file with what it keeps. "
        "sqlfront warm compiles the kernels ahead of the first use.",
    )
    parser.add_argument("database", nargs="?", default=":memory:", help="a DuckDB database file (default: in memory)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-c", dest="command", metavar="SQL", help="run these statements and leave")
    what.add_argument("-f", dest="file", metavar="FILE", type=Path, help="run the statements of a file and leave")
    parser.add_argument("--version", action="version", version=f"sqlfront {sqlfront.__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
