"""One run per dataset: a lock that names its owner, and is taken over only from one that is proven dead."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from byterefs.errors import ByteRefsError


class Busy(ByteRefsError):
    """A dataset that another run holds, or may hold."""


class Locks:
    """Locks that are held; ``abandoned`` if one of them was left by an owner that is dead."""

    def __init__(self) -> None:
        self.files: list[TextIO] = []
        self.abandoned = False

    def name(self, owner: dict[str, Any] | None) -> None:
        """Write who holds the locks: the process that does the work; None when it is done."""
        for file in self.files:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(owner) if owner else "")
            file.flush()
            os.fsync(file.fileno())

    def leave(self) -> None:
        """Let the owner's name stand: it was killed, and the next one has to clear up after it."""
        self.files.clear()


@contextmanager
def held(paths: Iterable[Path]) -> Iterator[Locks]:
    """Hold every lock; raises Busy, and holds none, if one belongs to a run that may be alive."""
    locks = Locks()
    with ExitStack() as stack:
        for path in sorted(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            locks.abandoned |= take(file, path)
            locks.files.append(file)
        locks.name(owner(os.getpid()))
        yield locks
        locks.name(None)


def take(file: TextIO, path: Path) -> bool:
    """Lock an open file until it is closed; True if its last owner died and left it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(
            f"{path}: another run of this dataset is at work{_by(file)}; wait for it to end"
        ) from None
    text = _text(file)
    if not text:
        return False
    before = json.loads(text)
    if dead(before):
        return True
    raise Busy(
        f"{path}: process {before['pid']} on {before['host']} holds this dataset and is not proven dead "
        f"from {socket.gethostname()}; when it is gone, remove this file"
    )


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def _by(file: TextIO) -> str:
    """Who holds a lock, if its name is there: it is written a moment after the lock is taken."""
    try:
        found = json.loads(_text(file))
    except json.JSONDecodeError:
        return ""
    return f" (process {found['pid']} on {found['host']})"


def owner(pid: int) -> dict[str, Any]:
    """What tells a process from every other: host, boot of that host, pid and when it started."""
    return {"host": socket.gethostname(), "boot": boot(), "pid": pid, "started": started(pid)}


def dead(before: dict[str, Any]) -> bool:
    """Whether an owner is proven dead: on this host, of an earlier boot, or not there any more."""
    if before["host"] != socket.gethostname():
        return False
    return bool(before["boot"] != boot() or started(before["pid"]) != before["started"])


def boot() -> str:
    """The id of this boot of this machine; "" where the kernel does not tell."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def started(pid: int) -> str | None:
    """When a process started, in the kernel's words; None if there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _signalled(pid)
    fields = stat.rpartition(")")[2].split()  # the name before may hold spaces
    return None if fields[0] in "ZX" else fields[19]


def _signalled(pid: int) -> str | None:
    """A system without /proc tells no more than that a process of this number is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "alive"
    return "alive"
