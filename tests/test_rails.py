"""The floor plan, as rails: folders without cycles, small folders, private names, headers, names of files."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("sqlfront", "maintenance", "planner", "storage")
MOST_FILES = 30
ARROW = {"_export_to_c"}
"""The columns of a batch alone, which Arrow's guide hands to Java so: the capsule has the schema, too."""
JAVA = {"_jvm", "_jsc"}
"""PySpark's doors to Java, which have no public names."""
NUMBA = {
    "_create_empty_module",
    "_final_module",
    "_get_module_for_linking",
    "_linking_libraries",
    "_raise_if_finalized",
}
"""Numba's module of LLVM before it is linked, which has no public name: storage/kernels/building.py."""

PANDAS = {"_mgr"}
"""The arrays of a DataFrame, of which its public names make Series: storage/codecs/arrow_batches.py."""

STRATEGY_FIELDS = {
    "covers": {"planner/model/heavy_light.py"},
    "union": {"planner/model/plan.py", "sqlfront/define/epsilon_checks.py", "sqlfront/explain/heavy.py"},
    "is_divided": {"maintenance/tree/view_tree.py", "planner/model/plan.py"},
    "rows_in": {
        "planner/model/plan.py", "planner/passes/merging.py", "maintenance/tree/view_tree.py",
        "maintenance/output/reading.py",
    },
}  # fmt: skip
"""Fields of plans by which strategies differ, with the files that read them beside the folders `heavy_light`. A set's
union is called; `spent` are figures of an epoch."""

TWICE = {"__main__", "errors"}
"""Names that two product files have: Python asks for __main__ in each package that can be run; users import
sqlfront.errors, whose classes are those of storage."""


@cache
def modules() -> dict[str, Path]:
    """Every product module by the name it is imported by."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name if package == "sqlfront" else f"sqlfront.{name}"] = path
    return found


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The nodes of a file's tree, its module first."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def _forget_nodes() -> Iterator[None]:
    """Nodes that stay would be looked at by the garbage collections of all later tests."""
    yield
    nodes.cache_clear()


def imports(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Every module of ours that a file imports: at run time, in a function, or for annotations only."""
    for node in nodes(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module or ""]
        for name in names:
            if name in known and name != module:
                yield name


def folder(module: str, path: Path) -> str:
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def folder_graph(known: dict[str, Path]) -> dict[str, set[str]]:
    """From each folder to the folders of the same package that its files import."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module, path in known.items():
        here = folder(module, path)
        for target in imports(module, path, known):
            there = folder(target, known[target])
            if there != here and package_of(there) == package_of(here):
                graph[here].add(there)
    return graph


def package_of(module: str) -> str:
    """Which of the four packages a module is in."""
    first, second, *_ = [*module.split("."), ""]
    return second if second in PACKAGES else first


def knots(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The sets of folders that reach each other."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        stack = list(graph.get(start, ()))
        while stack:
            here = stack.pop()
            if here not in seen:
                seen.add(here)
                stack += graph.get(here, ())
        return seen

    reached = {start: reach(start) for start in graph}
    return {
        frozenset(b for b in there if a in reached.get(b, ())) for a, there in reached.items() if a in there
    }  # fmt: skip


def private_reads(path: Path) -> list[str]:
    """Private attributes that a file reads of others: neither of self or cls, nor of names it defines itself."""
    own, read = set(), []
    for node in nodes(path):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
    for node in nodes(path):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "sys" | "os")):
                continue
            case ast.Attribute(attr=name) if is_private(name) and name not in own | ARROW | JAVA | NUMBA | PANDAS:
                read.append(ast.unparse(node))
            case ast.ImportFrom(names=names):
                read += [alias.name for alias in names if is_private(alias.name)]
    return read


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def header_reads(path: Path) -> list[str]:
    return [
        ast.unparse(node)
        for node in nodes(path)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "header"
    ]


def counts(found: dict[str, list[str]]) -> dict[str, int]:
    return {name: len(reads) for name, reads in found.items() if reads}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_folders_have_no_cycle():
    assert knots(folder_graph(modules())) == set()


def test_folders_are_small():
    files: dict[str, int] = defaultdict(int)
    for path in modules().values():
        files[relative(path.parent)] += path.name != "__init__.py"
    assert {name for name, number in files.items() if number > MOST_FILES} == set()


def test_strategies_are_told_apart_in_their_own_files():
    """All others ask values that a strategy gives, such as ViewRows and DeltaPaths."""
    field = re.compile(rf"(?<!spent)(?<!heavy_light)\.({'|'.join(STRATEGY_FIELDS)})\b(?!\()")
    readers: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        for name in field.findall(path.read_text()) if path.parent.name != "heavy_light" else ():
            readers[name].add(relative(path))
    assert readers == STRATEGY_FIELDS


def test_nobody_reads_the_privates_of_another_module():
    assert counts({relative(path): private_reads(path) for path in modules().values()}) == {}


def test_no_test_reads_the_privates_of_a_connection():
    private = {"_database", "_duck", "_session", "_transaction"}
    found = {
        f"{relative(path)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in private and ast.unparse(node.value) not in ("self", "m")
    }
    assert found == set()


def test_headers_of_tables_are_read_in_storage_alone():
    outside = [path for path in modules().values() if not relative(path).startswith("storage/")]
    assert counts({relative(path): header_reads(path) for path in outside}) == {}


def test_no_two_files_have_one_name():
    names: dict[str, int] = defaultdict(int)
    for path in modules().values():
        names[path.stem] += path.name != "__init__.py"
    assert {name for name, number in names.items() if number > 1} == TWICE


def test_a_knot_is_seen(tmp_path: Path):
    (tmp_path / "one.py").write_text("def late():\n    from sqlfront.planner.b import two\n")
    (tmp_path / "two.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sqlfront.planner.a.one import late\n"
    )
    (tmp_path / "three.py").write_text("import sqlfront.planner.b.two\n")
    known = {
        "sqlfront.planner.a.one": tmp_path / "one.py",
        "sqlfront.planner.b.two": tmp_path / "two.py",
        "sqlfront.planner.c.three": tmp_path / "three.py",
    }
    assert knots(folder_graph(known)) == {frozenset({"sqlfront.planner.a", "sqlfront.planner.b"})}


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("class A:\n    def f(self):\n        self._x = 1\n        return self._x, other._x\n", []),
        ("def f(connection):\n    return connection._duck\n", ["connection._duck"]),
        ("from m import _hidden\n", ["_hidden"]),
        ("def f(a):\n    return a.b._c.__class__\n", ["a.b._c"]),
    ],
)
def test_a_private_read_is_seen(tmp_path: Path, text: str, reads: list[str]):
    source = tmp_path / "file.py"
    source.write_text(text)
    assert private_reads(source) == reads


def test_a_header_read_is_seen(tmp_path: Path):
    source = tmp_path / "file.py"
    source.write_text("def used(table):\n    return int(table.header[at.USED])\n")
    assert header_reads(source) == ["table.header[at.USED]"]


def test_numba_and_llvmlite_are_imported_in_one_file() -> None:
    importers = {path.name for path in modules().values() if re.search(r"\bimport_module\b", path.read_text())}
    named = re.compile(r"^\s*(import|from) (numba|llvmlite)\b", re.MULTILINE)
    assert [path for path in modules().values() if named.search(path.read_text())] == []
    assert importers == {
        "compilers.py",
        "__init__.py",
        "jit.py",
        "plan_values.py",
    }  # The others import modules of ours by name.
