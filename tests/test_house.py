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
    """The (line, top-level name) of every import in a file, those inside functions included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            own = path.relative_to(ROOT).parts[0] if path.is_relative_to(ROOT) else ""
            found.append((node.lineno, own if node.level else (node.module or "").split(".")[0]))
    return found


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
        "import os\n\ndef rule():\n    from sqlfront.connection import connect\n    import storage.errors\n"
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


def sqlfront_version() -> str:
    tree = ast.parse((ROOT / "sqlfront" / "__init__.py").read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__version__"]
    return ast.literal_eval(values[0])


def test_import_is_fast():
    code = "import time; start = time.perf_counter(); import sqlfront; print(time.perf_counter() - start)"
    seconds = [float(fresh(code).stdout) for _ in range(5)]
    assert statistics.median(seconds) < LONGEST_IMPORT, seconds


def test_import_loads_no_engine():
    code = f"import sys, sqlfront; print([name for name in {LAZY!r} if name in sys.modules])"
    assert fresh(code).stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["planner", "maintenance", "storage"])
@pytest.mark.parametrize("form", ["module", "package"])
def test_a_foreign_module_that_shadows_ours_is_named(tmp_path, package, form):
    if form == "module":
        foreign = tmp_path / f"{package}.py"
    else:
        (tmp_path / package).mkdir()
        foreign = tmp_path / package / "__init__.py"
    foreign.write_text("raise RuntimeError('the guard must not run foreign code')\n")
    result = fresh("import sqlfront", tmp_path)
    assert result.returncode == 1
    last = result.stderr[result.stderr.index("ImportError") :]
    assert str(foreign) in last
    assert str(ROOT / package) in last
    assert "rename" in last


def test_a_foreign_module_that_is_already_loaded_is_named(tmp_path):
    (tmp_path / "storage.py").write_text("")
    code = "import sys, storage; sys.path.pop(0); sys.path.remove(sys.path[0]); import sqlfront"
    result = fresh(code, tmp_path)
    assert "storage.py shadows" in result.stderr
    handmade = "import sys, types; sys.modules['planner'] = types.ModuleType('planner'); import sqlfront"
    assert "shadows sqlfront's own package 'planner'" in fresh(handmade).stderr


def test_a_foreign_module_found_later_does_no_harm(tmp_path):
    (tmp_path / "storage.py").write_text("raise RuntimeError('not ours')\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import sqlfront; print(sqlfront.__version__)"
    assert fresh(code).stdout.strip() == sqlfront_version()


def test_a_plain_directory_of_that_name_does_no_harm(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "data.csv").write_text("a\n1\n")
    assert fresh("import sqlfront; print(sqlfront.apilevel)", tmp_path).stdout.strip() == "2.0"
