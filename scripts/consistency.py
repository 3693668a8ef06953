"""Show where the sources of a dataset stop being the same: its consistency report, as a table."""

import json
from pathlib import Path

from rich.console import Console

from byterefs.entry import run
from byterefs.errors import ConfigError
from byterefs.planning import consistency_table


def main(*, report: Path) -> None:
    """Print REPORT as a table: per array its signatures, who has them from where to where, and what differs.

    Parameters
    ----------
    report
        results/<dataset>/plan/consistency.json; there also when the plan was refused.
    """
    if not report.exists():
        raise ConfigError(
            f"{report}: there is no such report; it is written when the dataset is planned"
        )
    consistency_table.show(json.loads(report.read_text()), Console())


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
