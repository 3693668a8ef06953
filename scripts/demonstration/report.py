"""What a person reads at the end of the demo, and the same figures as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from demonstration.running import RESULTS, Run

READERS = ("gdal", "xarray", "duckdb")
PACKAGES = ("snakemake", "gdal-wheel", "h5py", "icechunk", "zarr", "pyarrow", "duckdb", "xarray")


class Proof(NamedTuple):
    """What the receipt of one verification says."""

    form: str
    target: str
    verified: bool
    values: int


def proofs() -> list[Proof]:
    """Every verification of the dataset, sorted by form and target."""
    found = []
    for path in RESULTS.glob("verify/*/*.json"):
        receipt = json.loads(path.read_text())
        values = receipt["counts"].get("values_compared", 0)
        found.append(Proof(receipt["form"], receipt["target"], receipt["verified"], values))
    return sorted(found)


def summary(first: Run, append: Run, proven: Mapping[str, list[Proof]]) -> dict[str, Any]:
    """The figures of the table; ``proven`` holds the proofs of each of the two runs by its name."""
    forms: dict[str, dict[str, Any]] = {}
    for proof in [*proven["first"], *proven["append"]]:
        form = forms.setdefault(proof.form, {"verified": True, "values_compared": 0})
        form["verified"] &= proof.verified
        form["values_compared"] += proof.values
    return {
        "first": first._asdict(),
        "append": append._asdict(),
        "forms": forms,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
    }


def show(console: Console, figures: Mapping[str, Any], proven: Mapping[str, list[Proof]]) -> None:
    """The two tables and how each form is opened."""
    console.print(runs(figures))
    console.print(forms(proven))
    for path in sorted(RESULTS.glob("sync/*.json")):
        if not path.name.endswith(".state.json"):
            show_publication(console, json.loads(path.read_text()))
    console.print(
        "[bold]How each form is opened[/], in its folder: xarray lines are Python, duckdb lines SQL;\n"
        "both run in .venv. The programs gdal and ogrinfo come with a full GDAL (envs/byterefs.yaml).\n"
    )
    for folder, content in openings():
        show_opening(console, folder, content)


def table_of(title: str) -> Table:
    """An empty table in the demo's looks."""
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )


def runs(figures: Mapping[str, Any]) -> Table:
    """One row per figure, one column per run."""
    table = table_of("The two runs")
    table.add_column("")
    table.add_column("30 days", justify="right")
    table.add_column("3 more files", justify="right")
    for key, words in {
        "jobs": "jobs run",
        "sources_opened": "files opened by scan",
        "rows": "rows of refs_<array> afterwards",
        "seconds": "seconds",
    }.items():
        table.add_row(words, *(f"{figures[run][key]:,}" for run in ("first", "append")))
    return table


def forms(proven: Mapping[str, list[Proof]]) -> Table:
    """One row per form and target: equal to GDAL on the granules, and how many values said so."""
    table = table_of("The forms")
    table.add_column("form")
    table.add_column("paths as")
    table.add_column("verified")
    table.add_column("values compared", justify="right")
    table.add_column("in the append", justify="right")
    earlier = {(p.form, p.target): p for p in proven["first"]}
    for proof in proven["append"]:
        before = earlier[proof.form, proof.target]
        good = before.verified and proof.verified
        table.add_row(
            proof.form,
            proof.target if proof.form not in {"sqlite", "icechunk"} else "every target",
            "[green]yes[/]" if good else "[red]no[/]",
            f"{before.values:,}",
            f"{proof.values:,}",
        )
    return table


def show_publication(console: Console, receipt: Mapping[str, Any]) -> None:
    """Where the verified forms were published, and what the last run had to write there."""
    counts = receipt["counts"]
    new = sum(counts.get(kind, 0) for kind in ("put", "linked"))
    console.print(
        f"[bold]Published[/] for target {receipt['target']} in {Path(receipt['to']).relative_to(Path.cwd())}: "
        f"{new} files new in the append, {counts.get('unchanged', 0)} as they were;\n"
        f"latest.json there names version {receipt['version']}.\n"
    )


def openings() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folder and open.json of every form as it is opened on this machine."""
    for path in sorted(RESULTS.glob("emit/access/*/open.json")):
        yield path.parent, json.loads(path.read_text())


def show_opening(console: Console, folder: Path, content: Mapping[str, Any]) -> None:
    """The lines of one form, to be copied."""
    console.print(f"[bold]{content['form']}[/]  [dim]{folder}[/]")
    for reader in READERS:
        if lines := content["open"].get(reader):
            console.print(f"  [cyan]{reader}[/]")
            console.print(*(f"    {line}" for line in lines), sep="\n", markup=False)
    console.print()
