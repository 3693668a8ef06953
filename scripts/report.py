"""Write what `snakemake --report` shows of a dataset."""

from pathlib import Path
from typing import Any

from byterefs import report
from byterefs.entry import run


def main(
    *,
    store: Path,
    verified: tuple[Path, ...],
    coverage: Path,
    sizes: Path,
    consistency: Path,
    verification: Path,
    newest: Path,
    pages: str = "",
) -> dict[str, Any]:
    """Write the parts of the report on a dataset that is verified.

    Parameters
    ----------
    store
        Working store that has a plan: results/<dataset>/store/store.sqlite.
    verified
        Receipts of all verifications: results/<dataset>/verify/<target>/<form>.json.
    coverage
        HTML file to write: the steps on a calendar sheet.
    sizes
        HTML file to write: bytes of the archive and of the forms.
    consistency
        HTML file to write: a copy of what `plan` reports.
    verification
        HTML file to write: what each form was compared with.
    newest
        PNG file to write: the newest step.
    pages
        Digest of the templates; as a param of the rule, another one makes the job run again.
    """
    return report.run(
        store,
        verified=verified,
        coverage=coverage,
        sizes=sizes,
        consistency=consistency,
        verification=verification,
        newest=newest,
    )


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
