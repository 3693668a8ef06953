"""What a box and a span of a published table touch, before a byte is read; what differs between two."""

from pathlib import Path
from typing import Any

import numpy as np

from byterefs import reader
from byterefs.entry import run
from byterefs.reader import queries, states


def main(
    *,
    table: str,
    array: str = "",
    where: tuple[str, ...] = (),
    target: str = "access",
    dry_run: bool = False,
    out: Path | None = None,
    against: str = "",
) -> dict[str, Any]:
    """Say which chunks, sources and bytes a box of ARRAY touches, or what is new since an older state.

    Parameters
    ----------
    table
        A published table, form sqlite or parquet: its file or folder, here or at a URL.
    array
        The array that is asked about.
    where
        NAME=LOW/HIGH in the values of a coordinate, both included, dates as 2020-01-31; or NAME=@FIRST/STOP
        in elements.
    target
        Whose paths are read.
    dry_run
        Print every request that reading would make: path, offset, size.
    out
        Read the window, and write its stored values to this .npy file.
    against
        An older state of the same form, here or at a URL: print what is new, changed and gone since.
    """
    if against:
        found = states.diff(against, table)
        print(*states.lines(found), sep="\n")
        return {"arrays that differ": len(found)}
    with reader.open(table, target=target) as store:
        touched = queries.query(store, array, queries.parsed_where(where))
        if dry_run:
            for request in touched.requests:
                print(request.path, request.offset, request.size)
        else:
            for path, (chunks, size) in touched.sources.items():
                print(path, chunks, size)
        if out is not None:
            with out.open("wb") as f:
                np.save(f, reader.read(store.array(array), touched.window))
    window = [[s.start, s.stop] for s in touched.window]
    return {"window": window, **queries.counts(touched)}


if __name__ == "__main__":
    run(main)
