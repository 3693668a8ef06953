"""Reference sets as data of a census: the files that they refer to, and their arrays by fsspec and zarr-python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tally.reading import Cannot, Listed, alike, window

NAMES = "_ARRAY_DIMENSIONS"


@lru_cache(maxsize=4)
def references(path: str) -> dict[str, Any]:
    """Every key of a set as fsspec has them: kerchunk JSON of each version, or the folder of kerchunk Parquet."""
    from fsspec.implementations.reference import ReferenceFileSystem

    said: Any = path if Path(path).is_dir() else json.loads(Path(path).read_bytes())
    found = ReferenceFileSystem(said, remote_protocol="file", skip_instance_cache=True)
    return {key: found.references[key] for key in found.references}


def targets(path: str) -> dict[str, Path | None]:
    """The files that a set refers to, in order, each with where it is here: None where it is not."""
    names = dict.fromkeys(v[0] for v in references(path).values() if isinstance(v, list | tuple))
    return {name: here(Path(path).parent, name) for name in names}


def here(folder: Path, name: str) -> Path | None:
    """A file by its name in a set of a folder: as it is, or beside the set."""
    plain = name.removeprefix("file://")
    places = [folder / plain, folder / plain.rpartition("/")[2]]
    return next((p for p in places if p.is_file()), None)


class ByFsspec:
    """What one file holds of a set, by fsspec and zarr-python: the stretch of each array that its chunks span."""

    name: ClassVar[str] = "fsspec"

    def __init__(self, asked: str) -> None:
        import zarr
        from fsspec.implementations.reference import ReferenceFileSystem

        path, target, place = asked.split("\0")
        self.keys: Mapping[str, Any] = references(path)
        moved = {key: placed(value, target, place) for key, value in self.keys.items()}
        files = ReferenceFileSystem(
            moved, remote_protocol="file", asynchronous=True, skip_instance_cache=True
        )
        store = zarr.storage.FsspecStore(files, read_only=True, path="")
        self.group: Any = zarr.open_group(store, mode="r", use_consolidated=False, zarr_format=2)
        self.spans: dict[str, list[tuple[int, int]]] = dict(self._spans(target))

    def _spans(self, target: str) -> Any:
        cells: dict[str, list[str]] = {}
        for key, value in self.keys.items():
            if isinstance(value, list | tuple) and value[0] == target:
                array, _, cell = key.rpartition("/")
                cells.setdefault(array, []).append(cell)
        for array, there in cells.items():
            found = self.group[array]
            at = np.array([[int(n) for n in cell.split(".")] for cell in there])
            low, high = at.min(0) * found.chunks, (at.max(0) + 1) * found.chunks
            yield array, [*zip(low.tolist(), np.minimum(high, found.shape).tolist(), strict=True)]

    def arrays(self) -> dict[str, Listed]:
        """Every array that has a chunk in the file."""
        return {n: Listed(tuple(b - a for a, b in span), 0) for n, span in self.spans.items()}

    def read(
        self, array: str, start: Sequence[int], count: Sequence[int], dtype: str
    ) -> NDArray[Any]:
        """A window of the stretch of an array, or of a coordinate along it."""
        if array not in self.group:
            raise Cannot("it has no such array")
        found = self.group[array]
        span = self.spans.get(array) or [self.along(d) for d in found.attrs.get(NAMES, ())]
        origin = [a for a, _ in span] or [0] * found.ndim
        begin = [o + s for o, s in zip(origin, start, strict=True)]
        values = np.asarray(found[window(begin, count)] if count else found[...])
        return alike(values, dtype, count)

    def along(self, dim: str) -> tuple[int, int]:
        """What the file spans of a dimension, as far as an array of it says."""
        for name, span in self.spans.items():
            dims = list(self.group[name].attrs.get(NAMES, ()))
            if dim in dims:
                return span[dims.index(dim)]
        return 0, 0


def placed(value: Any, target: str, place: str) -> Any:
    """A reference with its file where it is here."""
    if isinstance(value, list | tuple):
        return [place if value[0] == target else value[0], *value[1:]]
    return value
