"""`snakemake --report` gives one HTML of what was built."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from workflow.project import ROOT, Project


def test_one_html_holds_every_part_and_the_seconds_of_each_stage(tmp_path: Path) -> None:
    project = Project(tmp_path, register={"report": True})
    shutil.copytree(ROOT / "report", tmp_path / "report")
    project.add(0, 1)
    assert project.run().jobs["report"] == 1
    assert project.run().jobs == Counter()
    project.run("--report", "report.html")
    text = (tmp_path / "report.html").read_text()
    for part in ("coverage", "sizes", "consistency", "verification", "newest step"):
        assert f'"part": "{part}"' in text
    captions = (
        "calendar sheet",
        "weighs",
        "agree in type",
        "bit for bit",
        "reads it from the source",
    )
    assert [words for words in captions if words not in text] == []
    for rule in ("scan", "store", "plan", "emit", "verify"):
        assert f'"rule": "{rule}", "runtime"' in text
    assert 'src="http' not in text


def test_another_template_runs_register_and_report_once_more_and_nothing_else(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path, register={"report": True}, sync=[{"name": "here", "to": "place"}])
    shutil.copytree(ROOT / "report", tmp_path / "report")
    library = tmp_path / "scripts/byterefs"
    library.unlink()
    shutil.copytree(ROOT / "scripts/byterefs", library)
    shutil.copytree(ROOT / "config/schema", tmp_path / "config/schema")
    with (tmp_path / "config/config.yaml").open("a") as main:
        main.write("catalogue: {to: all}\n")
    project.add(0, 1)
    project.run()
    child = f"{tmp_path}/place/stac/collection.json"
    assert f'"href": "{child}"' in (tmp_path / "all/catalog.json").read_text()
    assert project.run("-n").jobs == Counter()

    for name in ("report.html", "page.html"):
        template = library / "assets" / name
        template.write_text(template.read_text().replace("</body>", "<!-- other --></body>"))
    wanted = Counter({"register": 1, "catalogue": 1, "report": 1, "all": 1})
    assert project.run("-n").jobs == wanted
    assert project.run().jobs == wanted
    assert "<!-- other -->" in (project.results / "report/coverage.html").read_text()
    assert "<!-- other -->" in (tmp_path / "place/index.html").read_text()
    assert project.run("-n").jobs == Counter()
