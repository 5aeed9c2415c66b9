"""The rules of the house: who imports whom, and how long a file is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.test_rails import nodes

ROOT = Path(__file__).parent.parent
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")
MAY_IMPORT = {
    "sqlfront": {"maintenance", "planner", "storage"},
    "maintenance": {"planner", "storage"},
    "planner": set(),
    "storage": set(),
}
LONGEST_FILE = 450


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> list[tuple[int, str]]:
    """The (line, package) of every import in a file, those inside functions included."""
    found = []
    for node in nodes(path):
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
    modules = {path: nodes(path)[0] for path in sources(*PACKAGES)}
    assert [
        path for path, module in modules.items() if not (isinstance(module, ast.Module) and ast.get_docstring(module))
    ] == []


def test_variants_that_run_seldom_are_those_of_tests() -> None:
    for line in (ROOT / "tests" / "seldom.txt").read_text().splitlines():
        path, name = line.split("::", 1)
        assert f"def {name.partition('[')[0].partition(' ')[0]}(" in (ROOT / path).read_text(), line
