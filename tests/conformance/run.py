"""Make the conformance fixture, read it with every reader that there is, and print readers by cases.

``python tests/conformance/run.py [OUT]``; with ``--install``, as root on Debian, what is missing of R, Node and
Chromium is installed first. The exit code is 1 if a reader gives other values than those that were written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUNNERS = Path(__file__).parent / "runners"
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

import make  # noqa: E402

import debian  # noqa: E402
import serving  # noqa: E402

PYTHON = (
    ("table_zarr.py", "sqlite"),
    ("table_zarr.py", "parquet"),
    ("table_windows.py", "sqlite"),
    ("table_windows.py", "parquet"),
    ("kerchunk.py",),
    ("icechunk_zarr.py",),
    ("gdal_multidim.py",),
    ("gdal_vector.py",),
    ("duckdb_sql.py",),
)
PACKAGES = {
    "chunk.R": ("r-base-core", "r-cran-dbi", "r-cran-rsqlite", "r-cran-jsonlite"),
    "stars.R": ("r-base-core", "r-cran-stars", "r-cran-sf", "r-cran-jsonlite"),
    "node": ("nodejs", "npm"),
    "chromium": ("chromium", "chromium-driver", "nodejs", "npm"),
}
R_LIBRARIES = {"chunk.R": "RSQLite jsonlite", "stars.R": "stars jsonlite"}
Report = dict[str, Any]


def main(out: Path, install: Sequence[str] = ()) -> list[Report]:
    """The report of every reader that can run here, of a fixture made in ``out``."""
    for what in install:
        installed(what)
    with serving.web(out) as server:
        make.main(out, server.url)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda runner: python(out, *runner), PYTHON))
        found += [r(out, script) for script in R_LIBRARIES if has(script)]
        if has("node"):
            with bundle() as script:
                found.append(run(["node", script, server.url]))
                if has("chromium"):
                    found.append(chromium(script, server.url))
    return found


def has(what: str) -> bool:
    """Whether a reader is installed."""
    if what in R_LIBRARIES:
        asked = f"for (p in strsplit('{R_LIBRARIES[what]}', ' ')[[1]]) suppressMessages(library(p, character.only = TRUE))"
        return (
            bool(shutil.which("Rscript"))
            and not subprocess.run(["Rscript", "-e", asked], capture_output=True).returncode
        )
    programs = {"node": ("node", "npm"), "chromium": ("chromium", "chromedriver")}[what]
    return all(map(shutil.which, programs))


def installed(what: str) -> None:
    """Have a reader: from Debian's packages where it is missing; RuntimeError where that cannot be."""
    if not has(what):
        debian.install(what, PACKAGES[what])


def python(out: Path, script: str, *arguments: str) -> Report:
    """A runner in this Python."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    return run([sys.executable, "-W", "ignore", RUNNERS / script, out, *arguments], env=environment)


def r(out: Path, script: str) -> Report:
    """A runner in R."""
    return run(["Rscript", RUNNERS / script, out])


def run(command: Sequence[Any], **options: Any) -> Report:
    """The report that a runner prints last; RuntimeError if it prints none."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{command[1]}: exit code {done.returncode}: {done.stderr[-800:]}")
    found: Report = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def bundle() -> Iterator[Path]:
    """``table.js`` with hyparquet and the page's codecs as one script."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(ROOT / "page" / file, folder)
        shutil.copytree(ROOT / "page/src", folder / "page")
        shutil.copy(RUNNERS / "table.js", folder)
        subprocess.run(["npm", "ci", "--silent"], cwd=folder, check=True, capture_output=True)
        esbuild = [
            folder / "node_modules/.bin/esbuild",
            "table.js",
            "--bundle",
            "--format=iife",
            "--outfile=bundle.js",
        ]
        subprocess.run(esbuild, cwd=folder, check=True, capture_output=True)
        yield folder / "bundle.js"


def chromium(script: Path, url: str) -> Report:
    """The same script in a page of the same server."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        # any page of the server will do: the script runs in it, and fetches from its own origin
        driver.get(f"{url}/granules/")
        driver.execute_script(script.read_text())
        name = f"Chromium {driver.capabilities['browserVersion']}"
        found: Report = driver.execute_async_script(
            "const [base, name, done] = arguments; report(base, name).then(done, (e) => done({error: String(e)}))",
            url,
            name,
        )
    finally:
        driver.quit()
    return found


def table(reports: Sequence[Report]) -> str:
    """Readers by cases; ``ok``, ``-`` for what a reader does not read, ``WRONG`` for other values."""
    cases = list(reports[0]["cases"])
    width = max(len(f"{x['reader']}  {x['form']}") for x in reports)
    lines = [" ".join([" " * width, *cases])]
    for x in reports:
        cells = [word(x["cases"][case]).ljust(len(case)) for case in cases]
        lines.append(" ".join([f"{x['reader']}  {x['form']}".ljust(width), *cells]).rstrip())
    notes = [
        f"{x['reader']}, {x['form']}, {case}: {said}"
        for x in reports
        for case, said in x["cases"].items()
        if said != "ok"
    ]
    return "\n".join([*lines, "", *notes])


def word(said: str) -> str:
    """A cell of the table."""
    return "ok" if said == "ok" else "-" if said.startswith("not read") else "WRONG"


def command(arguments: Sequence[str]) -> int:
    """The command line."""
    places = [a for a in arguments if not a.startswith("-")]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(places[0]) if places else Path(scratch) / "fixture"
        out.mkdir(parents=True)
        reports = main(out, tuple(PACKAGES) if "--install" in arguments else ())
    print(table(reports))
    return int(any(word(said) == "WRONG" for x in reports for said in x["cases"].values()))


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
