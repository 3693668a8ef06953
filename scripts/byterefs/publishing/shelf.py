"""Where publications lie: keys and bytes, with one key that is swapped only if it is what it was.

``Shelf`` is what a publication needs of a destination; ``Directory`` is a folder. An object store is
one more class.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from byterefs.errors import SyncError
from byterefs.files import file_digest, replacing

LOCK = ".byterefs.lock"
Marks = Mapping[str, str]
"""what a destination tells of an object without sending it (an ETag) -> sha256 of its bytes"""


class Shelf(Protocol):
    """A destination. Keys are relative, with ``/``; a put is whole or not there."""

    where: str
    """the destination as the config names it"""
    concurrency: int
    """puts and copies at a time"""

    def lock(self) -> AbstractContextManager[None]:
        """Holds off other publishers where it can, else proves that :meth:`swap` will; SyncError if neither."""

    def learn(self, files: Iterable[tuple[Path, str]]) -> None:
        """Local files with their sha256, so that what lies there needs no reading to be compared with them."""

    def recall(self, marks: Marks) -> None:
        """What was known of the destination's objects before."""

    def mark(self, key: str) -> str | None:
        """What the destination tells of a key without sending it; None if nothing."""

    def list(self, prefix: str = "") -> dict[str, int]:
        """Every key below ``prefix`` with its size in bytes, sorted."""

    def digest(self, key: str) -> str:
        """sha256 of a key's bytes."""

    def reread(self, key: str) -> str:
        """The same of the bytes as they are read now, whatever is known of the key."""

    def get(self, key: str) -> bytes | None:
        """The bytes of a key; None where there is none."""

    def put(self, key: str, file: Path) -> None:
        """A local file's bytes under a key, in place of what it held."""

    def copy(self, key: str, to: str) -> None:
        """The same bytes under another key, without moving them where that can be."""

    def take(self, other: Shelf, key: str, to: str) -> bool:
        """The bytes of another shelf's key under ``to``, if they need not come by here; False if they must."""

    def swap(self, key: str, new: bytes, expected: bytes | None) -> bool:
        """Set a key if it still holds ``expected`` (None: nothing); False if it does not."""

    def delete(self, key: str) -> None:
        """Remove a key, and folders that are empty then."""

    def touch(self, key: str) -> None:
        """Let the age of a key or folder begin now."""

    def age(self, key: str) -> float:
        """Days since a key or folder was put or touched."""


class Directory:
    """A folder on this machine, or one that is mounted here."""

    concurrency = 1

    def __init__(self, where: str | Path) -> None:
        self.where, self.root = str(where), Path(where)
        self._digests: dict[tuple[int, int], str] = {}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """An exclusive ``flock``, which the system releases when its holder dies; what that one had begun is removed."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / LOCK).open("a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SyncError(
                    f"{self.where}: another publisher is at work there; wait until it is done, then run again"
                ) from None
            self.sweep()
            yield

    def sweep(self) -> None:
        """Remove beginnings of files whose process is no more."""
        for path in self.root.rglob(".*.part"):
            pid = path.name.split(".")[-2]
            if pid.isdigit() and not Path("/proc", pid).exists():
                path.unlink(missing_ok=True)

    def learn(self, files: Iterable[tuple[Path, str]]) -> None:
        """Nothing: files are read where they lie."""

    def recall(self, marks: Marks) -> None:
        """Nothing: a file system tells nothing of bytes."""

    def mark(self, key: str) -> str | None:
        """None."""

    def list(self, prefix: str = "") -> dict[str, int]:
        """Files below ``prefix``; those whose name starts with a dot and ends in ``.part``, and the lock, are none."""
        found = {}
        for path in (self.root / prefix).rglob("*") if (self.root / prefix).is_dir() else ():
            if path.is_file() and path.name != LOCK and not path.name.endswith(".part"):
                found[path.relative_to(self.root).as_posix()] = path.stat().st_size
        return dict(sorted(found.items()))

    def digest(self, key: str) -> str:
        """sha256 of the file; of files that are hard links of each other it is taken once."""
        stat = (self.root / key).stat()
        inode = (stat.st_ino, stat.st_mtime_ns)
        if inode not in self._digests:
            self._digests[inode] = file_digest(self.root / key)
        return self._digests[inode]

    def reread(self, key: str) -> str:
        """sha256 of the file as it is read now."""
        return file_digest(self.root / key)

    def get(self, key: str) -> bytes | None:
        """The file's bytes; None where there is none."""
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def put(self, key: str, file: Path) -> None:
        """Copy beside, then rename. A copy that differs from what is there takes its place as a new file."""
        with replacing(self.root / key) as part:
            shutil.copyfile(file, part)

    def copy(self, key: str, to: str) -> None:
        """A hard link; a copy where the file system has none."""
        target = self.root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            os.link(self.root / key, beside)
            beside.replace(target)
        except OSError:
            self.put(to, self.root / key)
        finally:
            beside.unlink(missing_ok=True)

    def take(self, other: Shelf, key: str, to: str) -> bool:
        """From nowhere."""
        return False

    def swap(self, key: str, new: bytes, expected: bytes | None) -> bool:
        """Compare, then rename; the lock keeps other publishers out in between."""
        if self.get(key) != expected:
            return False
        with replacing(self.root / key) as part:
            part.write_bytes(new)
        return True

    def delete(self, key: str) -> None:
        """Remove the file, then the folders that it leaves empty."""
        path = self.root / key
        path.unlink()
        while path.parent != self.root and not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()

    def touch(self, key: str) -> None:
        """Set the mtime to now."""
        os.utime(self.root / key)

    def age(self, key: str) -> float:
        """By mtime."""
        return (time.time() - (self.root / key).stat().st_mtime) / 86_400
