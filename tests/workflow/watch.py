"""What a program opens in a folder, seen from outside it: Linux's inotify through ctypes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

IN_OPEN, IN_Q_OVERFLOW, IN_ISDIR = 0x20, 0x4000, 0x40000000
EVENT = struct.Struct("iIII")


class Watch:
    """Counts, from ``with`` to its end, how often each file of a folder was opened, and the folder itself.

    ``opened`` is by file name; ``listed`` is how often the folder was opened, which is how it is read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: Counter[str] = Counter()
        self.listed = 0

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watch = libc.inotify_add_watch(self.fd, os.fsencode(self.folder), IN_OPEN)
        if min(self.fd, watch) < 0:
            raise OSError(ctypes.get_errno(), "inotify is not to be had", str(self.folder))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        events = bytearray()
        try:
            while part := os.read(self.fd, 1 << 20):
                events += part
        except BlockingIOError:
            pass  # everything is read
        finally:
            os.close(self.fd)
        self._count(bytes(events))

    def _count(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            _, mask, _, length = EVENT.unpack_from(events, at)
            at += EVENT.size
            name = events[at : at + length].rstrip(b"\0").decode()
            at += length
            assert not mask & IN_Q_OVERFLOW
            if mask & IN_ISDIR:
                self.listed += not name
            else:
                self.opened[name] += 1
