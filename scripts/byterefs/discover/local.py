"""Provider `local`: the files below a folder whose path there matches the pattern."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.model import Source


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources by absolute path, verbatim: no symbolic link is resolved in it.

    Size and mtime are those of the file that a link leads to. A folder that is missing, empty or
    cannot be read is refused: it is a mount that failed, not an archive without files.
    """
    root = source["path"]
    if not os.path.isdir(root):
        raise DiscoverError(f"{root}: source.path is no folder; is the archive mounted?")
    for path in matching(_walk(root, root, ()), source["pattern"], root):
        yield _stat(path)


def _walk(root: str, folder: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str]]:
    """(path below root, path) of every file, sorted within each folder."""
    try:
        with os.scandir(folder) as entries:
            rows = sorted(entries, key=lambda e: e.name)
        here = os.stat(folder)
    except OSError as error:
        raise DiscoverError(f"{folder}: this folder cannot be listed: {error.strerror}") from None
    if (here.st_dev, here.st_ino) in above:  # a link to a folder that it lies in
        return
    for entry in rows:
        if entry.is_dir():
            yield from _walk(root, entry.path, (*above, (here.st_dev, here.st_ino)))
        else:
            yield os.path.relpath(entry.path, root), entry.path


def _stat(path: str) -> Source:
    try:
        path.encode()
        stat = os.stat(path)
    except UnicodeEncodeError:
        raise DiscoverError(f"{path!r}: this name is not UTF-8; rename the file") from None
    except OSError as error:
        raise DiscoverError(
            f"{path}: the pattern matches it but it cannot be read: {error.strerror}; is it a link "
            "that leads nowhere?"
        ) from None
    return Source(path, stat.st_size, stat.st_mtime_ns)
