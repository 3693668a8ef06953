"""Oracles in processes of their own: a library that dies there has no answer, and ends nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tally.readers import READERS
from tally.reading import Cannot, Listed


class Witness:
    """One library in a forked process that has the file open."""

    def __init__(self, name: str, path: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self.dead: str | None = None
        self.pipe, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            try:
                _serve(theirs, name, path)
            finally:
                os._exit(0)
        theirs.close()
        self.refusal: str | None = None
        """why the library cannot open the file"""
        self.listed: dict[str, Listed] = {}
        self.driver = ""
        """the library's own name of the format, where it has one"""

    def hello(self) -> None:
        """Wait until the file is open, or is not."""
        try:
            self.listed, self.driver = self._answer()
        except Cannot as why:
            self.refusal = str(why)

    def ask(self, method: str, *args: Any) -> Any:
        """What the reader's method gives; Cannot, with the reason, if it gives nothing."""
        if self.refusal or self.dead:
            raise Cannot(self.dead or self.refusal)
        try:
            self.pipe.send((method, args))
        except OSError:
            raise self._died() from None
        return self._answer()

    def _answer(self) -> Any:
        try:
            if not self.pipe.poll(self.seconds):
                os.kill(self.pid, signal.SIGKILL)
                self.dead = f"it gave no answer in {self.seconds:.0f} s"
                raise Cannot(self.dead)
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if kind == "cannot":
            raise Cannot(value)
        return value

    def _died(self) -> Cannot:
        self.dead = "it died on this file"
        return Cannot(self.dead)

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        os.waitpid(self.pid, 0)


def _serve(pipe: Connection, name: str, path: str) -> None:
    """Open the file, then answer until the other end closes."""
    try:
        reader: Any = READERS[name](path)
        pipe.send(("ok", (reader.arrays(), getattr(reader, "driver", ""))))
    except BaseException as error:
        pipe.send(("cannot", _words(error)))
        return
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            answer = ("ok", getattr(reader, method)(*args))
        except BaseException as error:
            answer = ("cannot", _words(error))
        pipe.send(answer)


def _words(error: BaseException) -> str:
    lines = " ".join(str(error).split())
    return lines if isinstance(error, Cannot) else f"{type(error).__name__}: {lines}"[:300]


class Witnesses:
    """All the libraries that may know a file."""

    def __init__(self, names: Sequence[str], path: str, seconds: float) -> None:
        self.all = {name: Witness(name, path, seconds) for name in names}
        for witness in self.all.values():
            witness.hello()
        self.kept: dict[Any, NDArray[Any] | str] = {}

    @property
    def able(self) -> list[str]:
        """The libraries that can open the file."""
        return [name for name, w in self.all.items() if not w.refusal]

    def listed(self) -> dict[str, Listed]:
        """Every array of the file: of h5py where it can open it, whose list has no interpretation; else the first."""
        first = [n for n in ("h5py", "tifffile") if n in self.able] + self.able
        return next((self.all[n].listed for n in first if self.all[n].listed), {})

    def read(
        self,
        name: str,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any] | str:
        """Values of a window by one library, or why there are none; the last answers are kept."""
        if name not in self.able:
            return "it cannot open the file"
        key = (name, array, tuple(start), tuple(count), dtype)
        if key not in self.kept:
            while (
                sum(a.nbytes for a in self.kept.values() if isinstance(a, np.ndarray)) > 256 << 20
            ):
                self.kept.pop(next(iter(self.kept)))
            try:
                self.kept[key] = self.all[name].ask("read", array, list(start), list(count), dtype)
            except Cannot as why:
                self.kept[key] = str(why)
        return self.kept[key]

    def close(self) -> None:
        """End every process."""
        for witness in self.all.values():
            witness.close()
