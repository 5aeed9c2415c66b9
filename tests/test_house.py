"""The rules of the house: who imports whom, how long a file is, what an import costs."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")
MAY_IMPORT = {
    "sqlfront": {"maintenance", "planner", "storage"},
    "maintenance": {"planner", "storage"},
    "planner": set(),
    "storage": set(),
}
LONGEST_FILE = 450
LONGEST_IMPORT = 0.2
LAZY = ("numba", "llvmlite", "numpy", "pyarrow", "pandas", "pyspark", "duckdb", "sqlglot", "rich", "prompt_toolkit")


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> list[tuple[int, str]]:
    """The (line, package) of every import in a file, those inside functions included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, package_of(alias.name)) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} is a relative import"
            found += [(node.lineno, package_of(f"{node.module}.{alias.name}")) for alias in node.names]
    return found


def package_of(module: str) -> str:
    """Which of our four packages a module is in, or the top-level name of a foreign one."""
    top, _, rest = module.partition(".")
    below = rest.partition(".")[0]
    return below if top == "sqlfront" and below in MAY_IMPORT else top


def wrong_imports(path: Path, package: str) -> list[str]:
    forbidden = set(PACKAGES) - MAY_IMPORT[package] - {package}
    return [f"{path.name}:{line} imports {name}" for line, name in imported(path) if name in forbidden]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package):
    assert sources(package), f"no sources in {package}"
    assert [wrong for path in sources(package) for wrong in wrong_imports(path, package)] == []


def test_an_upward_import_is_seen(tmp_path):
    source = tmp_path / "rule.py"
    source.write_text(
        "import os\n\ndef rule():\n    from sqlfront.connection import connect\n    import sqlfront.storage.errors\n"
    )
    assert wrong_imports(source, "planner") == ["rule.py:4 imports sqlfront", "rule.py:5 imports storage"]
    assert wrong_imports(source, "maintenance") == ["rule.py:4 imports sqlfront"]


def test_tests_and_benchmarks_are_not_imported_by_the_packages():
    outside = {"tests", "benchmarks", "examples", "pytest", "hypothesis", "matplotlib"}
    assert [(path, name) for path in sources(*PACKAGES) for _, name in imported(path) if name in outside] == []


def test_files_are_short():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in sources(*PACKAGES)}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_what_it_is():
    silent = [path for path in sources(*PACKAGES) if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def fresh(code: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that finds `directory` first and then this checkout."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(directory), str(ROOT)]))
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=directory, capture_output=True, text=True, timeout=60
    )


def test_import_is_fast():
    code = "import time; start = time.perf_counter(); import sqlfront; print(time.perf_counter() - start)"
    seconds = [float(fresh(code).stdout) for _ in range(5)]
    assert statistics.median(seconds) < LONGEST_IMPORT, seconds


def test_import_loads_no_engine():
    code = f"import sys, sqlfront; print([name for name in {LAZY!r} if name in sys.modules])"
    assert fresh(code).stdout.strip() == "[]"


def test_names_of_an_application_do_no_harm(tmp_path):
    """An application may have its own storage.py, planner/ and maintenance/ beside it."""
    (tmp_path / "storage.py").write_text("raise RuntimeError('not ours')\n")
    for name in ("planner", "maintenance"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    code = "import sqlfront; con = sqlfront.connect(':memory:'); print(con.execute('SELECT 42').fetchone()[0])"
    assert fresh(code, tmp_path).stdout.strip() == "42"


LOADED = """
import collections, os, sys, sqlfront
con = sqlfront.connect(':memory:')
con.execute('CREATE TABLE t (a INT)')
con.execute('CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a')
con.explain('v')
names = collections.defaultdict(list)
for name, module in list(sys.modules.items()):
    if getattr(module, '__file__', None) and name != '__main__':
        names[os.path.realpath(module.__file__)].append(name)
parts = [name for names_of in names.values() for name in names_of if name.partition('.')[0] in PACKAGES]
print(len(parts) > 100, [found for path, found in names.items() if len(found) > 1 and found[0] in parts])
print([name for name in parts if not name.startswith('sqlfront')])
"""


def test_no_source_is_loaded_under_two_names():
    assert fresh(f"PACKAGES = {PACKAGES!r}\n{LOADED}").stdout.splitlines() == ["True []", "[]"]


def test_a_floor_does_not_load_the_face():
    code = "import sys, sqlfront.storage.codecs, sqlfront.planner.classify; print('sqlfront.connection' in sys.modules)"
    assert fresh(code).stdout.strip() == "False"


def test_errors_have_the_name_users_import_them_by():
    code = "import sqlfront; print([f'{e.__module__}.{e.__qualname__}' for e in (sqlfront.Error, sqlfront.StaleRead)])"
    assert fresh(code).stdout.strip() == "['sqlfront.Error', 'sqlfront.StaleRead']"
