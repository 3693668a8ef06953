"""The library's import order goes one way: what a module may import is what stands before it."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "scripts" / "byterefs"
MODULES = sorted(p.relative_to(LIBRARY.parent) for p in LIBRARY.rglob("*.py"))


def name(path: Path) -> str:
    """``byterefs/scanners/hdf5.py`` -> ``byterefs.scanners.hdf5``."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


NAMES = {name(path) for path in MODULES}


def imported(path: Path) -> set[str]:
    """Modules of byterefs that a module imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((LIBRARY.parent / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("byterefs")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("byterefs"):
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {f if f in NAMES else str(node.module) for f in full}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports of byterefs are absolute"
    return found


IMPORTS = {name(path): imported(path) for path in MODULES}
ORDER = [
    {"errors", "model", "files", "progress", "locks"},
    {"urls", "access", "grid", "grib", "hdf5_filters", "literals", "codecs", "config", "config_checks", "database", "receipts"},
    {"units", "axis"},
    {"discover", "scanners", "scan", "store", "kept", "chunks", "slabs", "rows", "planning", "plan"},
    {"planned"},
    {"view"},
    {"emitters", "zarr_meta", "reader", "drb_topic"},
    {"proving", "verify", "publishing", "sync", "catalogue", "register", "report"},
    {"stages", "entry", "provenance"},
]  # fmt: skip
LEVEL = {module: level for level, modules in enumerate(ORDER) for module in modules}


def level(module: str) -> int:
    """Where a module, or the folder that it lies in, stands in the order; the package itself is first."""
    parts = module.split(".")
    if len(parts) == 1:
        return 0
    assert parts[1] in LEVEL, (
        f"{module}: give {parts[1]} its place in ORDER (tests/test_imports.py)"
    )
    return LEVEL[parts[1]]


@pytest.mark.parametrize("module", sorted(NAMES))
def test_a_module_imports_only_what_stands_before_it(module):
    later = {other for other in IMPORTS[module] if level(other) > level(module)}
    assert later == set()


def test_no_module_imports_itself_by_way_of_others():
    depends = {module: others - {"byterefs"} for module, others in IMPORTS.items()}
    TopologicalSorter(depends).prepare()  # CycleError names the cycle


@pytest.mark.parametrize("folder", ["scanners", "emitters", "discover"])
def test_the_modules_of_a_registry_do_not_know_each_other(folder):
    inside = f"byterefs.{folder}."
    registered = {m for m in NAMES if m.startswith(inside) and not m.startswith(f"{inside}_")}
    helpers = {f"{inside}match", f"{inside}select"}  # of discover
    known = {m: (IMPORTS[m] & registered) - helpers - {m} for m in registered}
    assert registered
    assert {m: others for m, others in known.items() if others} == {}


def test_nothing_in_the_library_imports_entry_or_snakemake():
    text = {path: (LIBRARY.parent / path).read_text() for path in MODULES}
    assert [m for m, others in IMPORTS.items() if "byterefs.entry" in others] == []
    assert [p for p, t in text.items() if re.search(r"^\s*(import|from) snakemake", t, re.M)] == []
