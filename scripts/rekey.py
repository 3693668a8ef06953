"""A published store with its chunks under other keys: shifted along an axis, or at other labels."""

from pathlib import Path
from typing import Any

from byterefs.entry import run
from byterefs.errors import ConfigError
from byterefs.reader.rekey import reindex, shift


def main(
    *, table: Path, out: Path, dim: str, by: int = 0, labels: tuple[float, ...] = ()
) -> dict[str, Any]:
    """Write TABLE to OUT with every chunk moved along DIM; no source is opened.

    Parameters
    ----------
    table
        A published store, form sqlite.
    out
        The store to write.
    dim
        The axis along which chunks move.
    by
        Elements by which the data is shifted; coordinates stay. What leaves the axis is gone.
    labels
        Values of the coordinate DIM that the axis is to have; what had no such label is absent.
    """
    if bool(by) == bool(labels):
        raise ConfigError("give either --by, to shift, or --labels, to reindex")
    if by:
        shift(table, out, dim, by)
    else:
        reindex(table, out, dim, labels)
    return {"written": str(out)}


if __name__ == "__main__":
    run(main)
