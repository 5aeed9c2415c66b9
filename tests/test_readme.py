"""Every ```python and ```sql snippet of the README, the docs and the examples runs and says what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sqlfront
from sqlfront.sql.tokens import split

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INTERNALS = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("internals*/*.md")), ROOT / "docs" / "internals.md"]
PACKAGES = ("sqlfront", "planner", "maintenance", "storage", "tests")
FILE = re.compile(r"`([\w/]+\.(?:py|txt))`")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [match.groups() for match in BLOCK.finditer(page.read_text()) if match[1] in ("python", "sql")]


def promised(code: str) -> list[str]:
    """What a snippet says it prints: the comment lines right below a print(...)."""
    found, below = [], False
    for line in code.splitlines():
        if below and line.startswith("# "):
            found.append(line[2:])
        else:
            below = line.strip().startswith("print(")
    return found


def run_python(code: str, namespace: dict[str, Any]) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "snippet", "exec"), namespace)
    assert output.getvalue().splitlines() == promised(code)


def run_sql(code: str, con: sqlfront.Connection) -> None:
    """Run each statement; one below a comment `-- refused: words` must fail with these words in its message."""
    before = 0
    for start, end in split(code):
        refusal = re.search(r"-- refused: (.*)", code[before:start])
        if refusal:
            with pytest.raises(sqlfront.Error, match=re.escape(refusal[1])):
                con.execute(code[start:end])
        else:
            con.execute(code[start:end])
            if con.description:
                con.fetchall()
        before = end


def named(paths: list[Path]) -> list[Any]:
    """Pages and examples as parameters, by their names."""
    return [pytest.param(path, id=path.name) for path in paths]


@pytest.mark.parametrize("page", named([page for page in PAGES if blocks(page)]))
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for language, code in blocks(page):
        if language == "python":
            run_python(code, namespace)
        else:
            if "con" not in namespace:
                namespace["con"] = sqlfront.connect()
            run_sql(code, namespace["con"])
    for value in namespace.values():
        if isinstance(value, sqlfront.Connection):
            value.close()


def test_the_readme_shows_python_and_sql():
    assert {language for language, _ in blocks(ROOT / "README.md")} == {"python", "sql"}


def test_a_wrong_output_is_seen():
    with pytest.raises(AssertionError):
        run_python("print(1 + 1)\n# 3\n", {})
    with pytest.raises(AssertionError):
        run_python("print(1 + 1)\n", {})
    run_python("x = 1\n# a remark\nprint(x)\n# 1\n", {})


def test_the_picture_is_that_of_the_example():
    """Drawn when the tables of the README's first snippet have their first rows."""
    [first, *_] = [code for language, code in blocks(ROOT / "README.md") if language == "python"]
    namespace: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(first.partition('con.execute("DELETE')[0], "README.md", "exec"), namespace)
    with namespace["con"] as con:
        assert con.explain("spending").svg() == (ROOT / "docs" / "spending.svg").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_the_files_that_internals_name_are_there(page):
    places = [*(ROOT / package for package in PACKAGES), Path(sqlfront.__file__).parent]
    files = [path.as_posix() for place in places for path in place.rglob("*.*")]
    missing = [
        name for name in FILE.findall(page.read_text()) if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ]
    assert missing == []


@pytest.mark.parametrize("example", named(EXAMPLES))
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    """In a process of its own; with Spark in this one, whose session it finds and leaves running."""
    monkeypatch.chdir(tmp_path)
    if "spark" in example.stem:
        monkeypatch.setattr("pyspark.sql.SparkSession.stop", lambda session: None)
        runpy.run_path(str(example), run_name="__main__")
        assert capsys.readouterr().out.strip()
        return
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples():
    assert EXAMPLES
