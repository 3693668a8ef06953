"""Each job in a process of its own, with a limit of time and memory: what kills one ends no other."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True, slots=True)
class Death:
    """A job that gave no result."""

    how: str
    """in words: ``killed by signal 11``"""
    last: str
    """the last line that the process wrote"""


@dataclass(slots=True)
class _Child:
    job: Any
    pid: int
    pipe: int
    deadline: float
    said: IO[bytes]
    data: bytearray


def results[J, R](
    jobs: Sequence[J], work: Callable[[J], R], *, cores: int, seconds: float, memory: int
) -> Iterator[tuple[J, R | Death]]:
    """Every job with what ``work`` gave for it, or its Death, as they end.

    ``seconds`` of wall clock and ``memory`` bytes beyond what this process has are what one job may
    take; at the end of either the job and all that it started are killed.
    """
    todo, running = list(reversed(jobs)), dict[int, _Child]()
    with selectors.DefaultSelector() as ends:
        while todo or running:
            while todo and len(running) < cores:
                child = _start(todo.pop(), work, seconds, memory)
                running[child.pipe] = child
                ends.register(child.pipe, selectors.EVENT_READ)
            wait = min(c.deadline for c in running.values()) - time.monotonic()
            ready = [key.fd for key, _ in ends.select(max(0.0, wait))]
            late = [fd for fd, c in running.items() if c.deadline <= time.monotonic()]
            for fd in {*ready, *late}:
                piece = b"" if fd in late and fd not in ready else os.read(fd, 1 << 16)
                running[fd].data += piece
                if not piece:
                    ends.unregister(fd)
                    child = running.pop(fd)
                    yield child.job, _ended(child, late=fd in late, seconds=seconds)


def _start(job: Any, work: Callable[[Any], Any], seconds: float, memory: int) -> _Child:
    """A child that works on one job and writes its pickled result into a pipe."""
    read, write = os.pipe()
    said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _ended
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Arrow's one thread, which the child does not need: it starts its own
        warnings.filterwarnings(
            "ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning
        )
        pid = os.fork()
    if pid:
        os.close(write)
        return _Child(job, pid, read, time.monotonic() + seconds, said, bytearray())
    code = 1
    try:
        os.setpgid(0, 0)
        faulthandler.disable()
        os.close(read)
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        _limit(memory)
        data = pickle.dumps(work(job))
        with open(write, "wb") as out:
            out.write(data)
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _limit(memory: int) -> None:
    """No more address space than ``memory`` bytes beyond what is mapped already, and no core file."""
    with open("/proc/self/statm") as f:
        mapped = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _ended(child: _Child, *, late: bool, seconds: float) -> Any:
    """The result of a child that is done, dead or too late; nothing of its group is left."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child.pid, signal.SIGKILL) if late or kill is os.killpg else None
        except (ProcessLookupError, PermissionError):
            continue
    os.close(child.pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    last = _last_line(child.said)
    if late:
        return Death(f"it took more than {seconds:.0f} s", last)
    try:
        return pickle.loads(bytes(child.data))
    except Exception:
        how = f"killed by signal {-status}" if status < 0 else f"ended with code {status}"
        return Death(how, last)


def _last_line(said: IO[bytes]) -> str:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - 4096))
    lines = said.read().decode(errors="replace").strip().splitlines()
    said.close()
    return lines[-1].strip() if lines else ""
