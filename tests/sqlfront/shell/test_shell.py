"""The shell, over a plain DuckDB connection: it uses nothing but the DB-API."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import sqlfront
from sqlfront.__main__ import main
from sqlfront.database.running.interrupts import stoppable
from sqlfront.shell.draw_table import cell_text, draw_table, text_width
from sqlfront.shell.prompt import make_reader
from sqlfront.shell.shell import Shell, is_complete

ROOT = Path(__file__).parent.parent.parent.parent
# The command line over plain DuckDB: the shell must not depend on which connection it has.
PLAIN = "import sys, duckdb; from sqlfront.__main__ import main; sys.exit(main(connect=duckdb.connect))"


@pytest.fixture
def shell():
    return Shell(duckdb.connect(), out=io.StringIO(), err=io.StringIO())


def test_a_table_is_drawn_with_types_nulls_and_a_count(shell):
    assert shell.run("SELECT 1 AS n, 'Ada' AS name, NULL::DOUBLE AS x UNION ALL SELECT 20, 'b', 1.5 ORDER BY n")
    assert shell.out.getvalue() == (
        "╭─────────┬─────────┬────────╮\n"
        "│       n │ name    │      x │\n"
        "│ integer │ varchar │ double │\n"
        "├─────────┼─────────┼────────┤\n"
        "│       1 │ Ada     │   NULL │\n"
        "│      20 │ b       │    1.5 │\n"
        "╰─────────┴─────────┴────────╯\n"
        "2 rows\n"
    )


def test_statements_run_in_order_and_stop_at_the_first_error(shell):
    assert not shell.run("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); SELEC 1; INSERT INTO t VALUES (3)")
    assert shell.out.getvalue() == "2 rows changed\n"
    assert "syntax error" in shell.err.getvalue()
    assert "Traceback" not in shell.err.getvalue()
    assert shell.connection.execute("SELECT COUNT(*) FROM t").fetchone() == (2,)


def test_an_error_of_the_program_names_its_type():
    class Broken:
        def interrupt(self):
            raise AssertionError("nobody pressed Ctrl-C")

        def execute(self, sql):
            raise ZeroDivisionError("ouch")

    shell = Shell(Broken(), out=io.StringIO(), err=io.StringIO())
    assert not shell.run("SELECT 1;")
    assert shell.err.getvalue() == "ZeroDivisionError: ouch\n"


@pytest.mark.parametrize(
    "text", ["SELECT ';'; SELECT 2", "SELECT 1 -- ;\n; SELECT 2", "SELECT $$;$$; /* ; */ SELECT 2"]
)
def test_semicolons_in_strings_and_comments_do_not_end_a_statement(shell, text):
    assert shell.run(text)
    assert shell.out.getvalue().count("1 row\n") == 2


def test_a_long_result_is_cut_and_says_so(shell):
    shell.most = 3
    assert shell.run("SELECT range AS i FROM range(5)")
    assert "first 3 rows, there are more (.rows 0 shows all)" in shell.out.getvalue()
    assert shell.run(".rows 5\nSELECT range AS i FROM range(5)")
    assert shell.out.getvalue().endswith("│      4 │\n╰────────╯\n5 rows\n")


def test_a_cut_result_does_not_block_the_next_statement(shell):
    shell.most = 3
    assert shell.run("SELECT range AS i FROM range(1000000); CREATE TABLE t (a INT); SELECT * FROM t")
    assert "0 rows" in shell.out.getvalue()


def test_a_drawing_is_printed_as_it_is(shell):
    assert shell.run("EXPLAIN SELECT 1")
    assert shell.out.getvalue().startswith("╭─ Projection")


def test_a_count_that_was_selected_is_a_table(shell):
    assert shell.run('SELECT 3 AS "Count"')
    assert "│       3 │" in shell.out.getvalue()


def test_dot_commands(shell):
    assert shell.run(".help")
    assert "EXPLAIN MATERIALIZED VIEW" in shell.out.getvalue()
    assert shell.run("CREATE TABLE here (a INT);")
    assert shell.run(".tables")
    assert "│ here    │" in shell.out.getvalue()
    assert shell.run(".timer on\nSELECT 1")
    assert re.search(r"1 row, [\d.]+ ms\n$", shell.out.getvalue())
    assert not shell.run(".rows many")
    assert "Unknown command: .rows many" in shell.err.getvalue()
    assert shell.run(".quit")
    assert shell.done


@pytest.mark.parametrize("width", [20, 37, 60, 80, 200])
def test_a_table_fits_the_width(width):
    names = [f"column_{number}" for number in range(12)]
    rows = [[("x" * (number * 9)) if number % 2 else number for number in range(12)], [None] * 12]
    lines = draw_table(names, ["varchar"] * 12, rows, width)
    assert {text_width(line) for line in lines} == {text_width(lines[0])}
    assert text_width(lines[0]) <= width
    if width < 200:
        assert any("…" in line for line in lines)


def test_a_table_that_fits_is_not_cut():
    lines = draw_table(["a"], ["varchar"], [["y" * 90]], 100)
    assert "y" * 90 in lines[4]


def test_wide_characters_and_control_characters_keep_the_frame_straight():
    lines = draw_table(["名前"], ["varchar"], [["日本語"], ["tab\tnew\nline"], ["é"]])
    assert len({text_width(line) for line in lines}) == 1
    assert "tab\\tnew\\nline" in lines[5]


def test_cells():
    values = [None, True, False, b"a\x00\\", 1.5, float("nan"), "x\x1b[31m"]
    assert [cell_text(value) for value in values] == [
        "NULL", "true", "false", "a\\x00\\x5C", "1.5", "nan", "x\\x1b[31m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        (".tables", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1;  \n", True),
        ("SELECT ';", False),
        ("SELECT 'it''s';", True),
        ("SELECT $$ ; ", False),
        ("SELECT 1 -- ;", False),
        ("SELECT /* ; */", False),
        ("SELECT 1; SELECT 2", False),
        ('SELECT ";', False),
    ],
)
def test_enter_runs_complete_statements_only(text, complete):
    assert is_complete(text) is complete


def test_the_prompt_reads_several_lines_and_remembers_them(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLFRONT_HISTORY", str(tmp_path / "history"))
    with create_pipe_input() as pipe:
        read = make_reader(is_complete, input=pipe, output=DummyOutput())
        pipe.send_text("SELECT\r1;\r")
        assert read() == "SELECT\n1;"
        pipe.send_text("\x1b[A\x1b[A\r")
        assert read() == "SELECT\n1;"
        pipe.send_text("SELECT 'abc\x03")
        with pytest.raises(KeyboardInterrupt):
            read()
        pipe.send_text("\x04")
        with pytest.raises(EOFError):
            read()
    assert "+SELECT\n+1;" in (tmp_path / "history").read_text()


def test_the_prompt_works_without_a_writable_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SQLFRONT_HISTORY", str(tmp_path / "missing" / "history"))
    with create_pipe_input() as pipe:
        read = make_reader(is_complete, input=pipe, output=DummyOutput())
        pipe.send_text("SELECT 1;\r")
        assert read() == "SELECT 1;"


def test_without_prompt_toolkit_lines_are_read_one_by_one(tmp_path):
    code = "import sys; sys.modules['prompt_toolkit'] = None\nimport importlib.util\nfind = importlib.util.find_spec\n"
    code += "importlib.util.find_spec = lambda name: None if name == 'prompt_toolkit' else find(name)\n"
    code += "from sqlfront.shell.shell import Shell, repl\nimport sqlfront\nrepl(Shell(sqlfront.connect()), 'hello')"
    typed = "SELECT\n41 + 1\nAS answer;\n.tables\n"
    done = subprocess.run([sys.executable, "-c", code], input=typed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello\nsqlfront>      ...>      ...> " in done.stdout
    assert "│      42 │" in done.stdout


def test_a_closed_prompt_ends_the_loop_and_ctrl_c_does_not(shell):
    inputs = iter(["SELECT 1;", KeyboardInterrupt(), "SELEC;", "SELECT 2;", EOFError()])

    def read():
        following = next(inputs)
        if isinstance(following, BaseException):
            raise following
        return following

    shell.loop(read)
    assert shell.out.getvalue().count("1 row\n") == 2
    assert shell.err.getvalue().count("syntax error") == 1


def test_commands_files_and_exit_codes(tmp_path, capsys):
    database = str(tmp_path / "a.duckdb")
    assert main([database, "-c", "CREATE TABLE t (a INT); INSERT INTO t VALUES (7)"], duckdb.connect) == 0
    script = tmp_path / "script.sql"
    script.write_text("-- a script\nSELECT a FROM t;\nDELETE FROM t;\n")
    assert main([database, "-f", str(script)], duckdb.connect) == 0
    output = capsys.readouterr().out
    assert "│       7 │" in output
    assert "1 row changed" in output
    assert main([database, "-c", "SELECT * FROM missing"], duckdb.connect) == 1
    assert main([database, "-f", str(tmp_path / "missing.sql")], duckdb.connect) == 1
    assert main([str(tmp_path / "no" / "where.duckdb")], duckdb.connect) == 1
    errors = capsys.readouterr().err
    assert "Table with name missing does not exist" in errors
    assert "missing.sql" in errors
    assert "Traceback" not in errors


def test_statements_come_through_a_pipe():
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], input="SELECT 1 AS a;\nSELECT 2 AS b", capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1 row\n") == 2


def test_a_reader_that_goes_away_is_no_traceback():
    command = f"{sys.executable} -c '{PLAIN}' -c 'SELECT repeat(chr(120), 100) FROM range(20000)' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("╭")
    assert done.stderr == ""


def test_ctrl_c_calls_for_an_interrupt_once_and_restores_what_was_there():
    before = signal.set_wakeup_fd(-1)
    calls = []

    def run():
        with stoppable(lambda: calls.append(threading.current_thread())):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(calls) == 1
    assert calls[0] is not threading.main_thread()
    assert signal.set_wakeup_fd(before) == -1


@pytest.mark.parametrize("connect", [duckdb.connect, sqlfront.connect])
def test_an_interruption_in_a_transaction_tells_whether_it_is_lost(connect):
    """DuckDB aborts the transaction when it notices Ctrl-C itself, which it nearly always does."""
    shell, seen = Shell(connect(), out=io.StringIO(), err=io.StringIO()), []
    while not any("is lost" in text for text in seen) and len(seen) < 12:
        shell.err.truncate(shell.err.seek(0))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert not shell.run(
            "BEGIN; CREATE TABLE x (a INT); SELECT count(*) FROM range(10000000) a, range(1000000) b "
            "WHERE a.range < -b.range"
        )
        seen.append(shell.err.getvalue())
        lost = not shell.run("FROM x")
        assert seen[-1] == f"Interrupted; {'the transaction is lost: ROLLBACK' if lost else 'nothing was changed'}.\n"
        assert shell.run("ROLLBACK")
    assert any("is lost" in text for text in seen)


def test_other_threads_can_run_statements_too(shell):
    thread = threading.Thread(target=shell.run, args=("SELECT 1",))
    thread.start()
    thread.join()
    assert shell.out.getvalue().endswith("1 row\n")


class Terminal:
    """The shell in a pseudo-terminal."""

    def __init__(self, tmp_path: Path) -> None:
        self.file, end = pty.openpty()
        environment = dict(
            os.environ, SQLFRONT_HISTORY=str(tmp_path / "history"), TERM="xterm", COLUMNS="80", LINES="24"
        )
        own_terminal = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        self.process = subprocess.Popen(
            [sys.executable, "-c", own_terminal + PLAIN],
            stdin=end, stdout=end, stderr=end, start_new_session=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        os.close(end)
        self.seen = ""

    def expect(self, text: str, seconds: float = 30) -> None:
        """Wait until `text` has been printed since the last expectation."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self.file], [], [], 0.2)[0]:
                self.seen += os.read(self.file, 65536).decode(errors="replace")
                if "\x1b[6n" in self.seen:
                    # prompt_toolkit asks where the cursor is; a terminal answers.
                    self.seen = self.seen.replace("\x1b[6n", "")
                    os.write(self.file, b"\x1b[1;1R")
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def send(self, text: str) -> None:
        os.write(self.file, text.encode())


def test_ctrl_c_stops_a_statement_and_clears_a_line_but_does_not_kill_the_shell(tmp_path):
    terminal = Terminal(tmp_path)
    try:
        terminal.expect("sqlfront>")
        terminal.send("SELECT COUNT(*) FROM range(10000000000) a, range(100000) b;\r")
        time.sleep(1)
        terminal.send("\x03")
        terminal.expect("Interrupted; nothing was changed.")
        terminal.expect("sqlfront>")
        terminal.send("SELECT 'half a line")
        terminal.expect("half a line")
        terminal.send("\x03")
        terminal.expect("sqlfront>")
        terminal.send("SELECT 6 * 7 AS answer;\r")
        terminal.expect("42 │")
        terminal.expect("sqlfront>")
        terminal.send("\x04")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.file)
