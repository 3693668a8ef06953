"""Arrays that a file has no bytes of: coordinates and grid mappings made from tags, keys or a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from byterefs import codecs, literals
from byterefs.model import ArrayMeta, SourceArray
from byterefs.scanners._common import Attributes, record


def attributes(found: Mapping[str, Any]) -> Attributes:
    """Values as JSON, and their dtypes, sorted by name."""
    pairs = {name: literals.attr_json(value) for name, value in sorted(found.items())}
    return {n: v for n, (v, _) in pairs.items()}, {n: d for n, (_, d) in pairs.items()}


def derived(
    name: str, dims: tuple[str, ...], values: NDArray[Any], attrs: Mapping[str, Any]
) -> SourceArray:
    """An array by its values alone."""
    described, dtypes = attributes(attrs)
    meta = ArrayMeta(
        array=name,
        dims=dims,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype.str,
        fill=None,
        codec=codecs.PLAIN,
        info="",
        attrs=described,
        attr_dtypes=dtypes,
        layout="derived",
    )
    return record(meta, None, values, True)
