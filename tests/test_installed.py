"""sqlfront as it is imported, from the sources or from a wheel: its names, and what an import costs.

`script/test --wheel tests/test_installed.py` runs these against a wheel.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import subprocess
import sys
from pathlib import Path

import sqlfront

HOME = Path(sqlfront.__file__).parents[1]
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")
LONGEST_IMPORT = 0.2
LAZY = ("numba", "llvmlite", "numpy", "pyarrow", "pandas", "pyspark", "duckdb", "sqlglot", "rich", "prompt_toolkit")


def fresh(code: str, directory: Path = HOME) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that finds `directory` first and then what is tested here."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(directory), str(HOME)]))
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=directory, capture_output=True, text=True, timeout=60
    )


def test_import_is_fast():
    code = "import time; start = time.perf_counter(); import sqlfront; print(time.perf_counter() - start)"
    seconds = [float(fresh(code).stdout) for _ in range(5)]
    assert statistics.median(seconds) < LONGEST_IMPORT, seconds


def test_import_loads_no_engine():
    code = f"import sys, sqlfront; print([name for name in {LAZY!r} if sys.modules.get(name)])"
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


def test_nothing_of_ours_has_another_name():
    files = importlib.metadata.files("sqlfront") or []
    top = {file.parts[0] for file in files if file.suffix == ".py"}
    assert top <= {"sqlfront"}
    assert (HOME / "sqlfront" / "py.typed").exists()
