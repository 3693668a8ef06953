"""What a reader of sources is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Slab(NamedTuple):
    """A box of elements of one array of one source."""

    source: str
    array: str
    start: Sequence[int]
    """first element along each axis"""
    count: Sequence[int]  # type: ignore[assignment]  # the spec's word, which tuple has too
    """elements along each axis"""
    dtype: np.dtype[Any]
    """of the answer: the source's own, in native byte order"""

    @classmethod
    def of(
        cls, source: str, array: str, start: Sequence[int], count: Sequence[int], dtype: str
    ) -> Slab:
        """The slab of an array of this stored dtype."""
        return cls(source, array, start, count, np.dtype(dtype).newbyteorder("="))

    def of_rank(self, rank: int) -> Slab:
        """Without the first axis where the source has none, since only its name says the step (scan.file_name)."""
        if rank != len(self.start) - 1 or self.start[0] != 0 or self.count[0] != 1:
            return self
        return self._replace(start=self.start[1:], count=self.count[1:])

    @property
    def window(self) -> tuple[slice, ...]:
        """As numpy indexes it."""
        return tuple(slice(s, s + n) for s, n in zip(self.start, self.count, strict=True))
