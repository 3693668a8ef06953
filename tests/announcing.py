"""A small dataset published and announced on a loopback server, for tests of what `register` writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from byterefs import files, register, sync, view
from demonstration.server import Handler, Server
from forms import Results
from granules import oisst


@contextmanager
def served(folder: Path, handler: type[Handler] = Handler) -> Iterator[Server]:
    """A folder on a free port of loopback."""
    with Server(folder, handler=handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Announced:
    """``folder`` has archive/, results/ and place/; ``at`` is the address under which it is served.

    ``granules`` is where the server of the archive serves it, ``at`` if nothing else is said.
    """

    def __init__(self, folder: Path, at: str, granules: str | None = None, **parts: Any) -> None:
        self.folder, self.at = folder, at
        self.archive, self.place = folder / "archive", folder / "place"
        rules = {f"{self.archive}/": f"{granules or at}/archive/"}
        self.results = Results(folder / "results", **{"remap": {"public": rules}, **parts})
        self.emit: dict[str, Any] = {
            "sqlite": {}, "vrt": {}, "parquet": {}, "kerchunk": {"json": True}, "icechunk": {},
        }  # fmt: skip
        self.syncs: list[dict[str, Any]] = [
            {"name": "here", "target": "public", "to": str(self.place), "url": f"{at}/place"}
        ]

    def days(self, first: int, last: int, **options: Any) -> None:
        """Let days of September 2026 arrive, publish and announce them."""
        paths = []
        for n in range(first, last + 1):
            day = date(2026, 9, 1) + timedelta(n - 1)
            paths.append(self.archive / f"{day:%Y%m%d}.nc")
            oisst(paths[-1], day, **options)
        self.publish(paths)

    def publish(self, paths: Sequence[Path]) -> Mapping[str, Any]:
        """Scan, emit, verify, sync and register, as the rules do; the counts of `register`."""
        self.results.scan(paths)
        pairs = [p for p in self.results.pairs if p[1] in self.emit]
        self.results.emit(*pairs)
        with view.View.open(self.results.store) as opened:
            files.write_json(self.results.folder / "view" / "receipt.json", view.receipt(opened))
        for target, form in pairs:
            self.results.verify(target, form)
        self.sync()
        return self.register()

    def sync(self) -> None:
        """Publish as the config's entries say."""
        for entry in self.syncs:
            receipt = self.receipt("sync", entry["name"])
            receipt.unlink(missing_ok=True)
            truth = [self.receipt("sync", entry["mirror_of"])] if "mirror_of" in entry else []
            proofs = [p for p in self.results.proofs if p.stem in self.emit]
            sync.run(receipt, options=entry, verified=proofs, mirrored=truth)

    def register(self) -> Mapping[str, Any]:
        """Announce; the counts."""
        return register.run(
            self.receipt("register", "receipt"),
            store=self.results.store,
            config={
                "dataset": self.results.config["dataset"],
                "emit": self.emit,
                "sync": self.syncs,
                "register": {"bowerbird": "noaa_oisst_daily"},
            },
            synced=[self.receipt("sync", entry["name"]) for entry in self.syncs],
        )

    def receipt(self, stage: str, name: str) -> Path:
        return self.results.folder / stage / f"{name}.json"

    def told(self) -> dict[str, Any]:
        """The receipt of `register`."""
        return dict(json.loads(self.receipt("register", "receipt").read_text()))
