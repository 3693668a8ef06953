"""Every form of a dataset, emitted and verified as the workflow does it, in a results folder of a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import building
from byterefs import emitters, files, stages, verify
from byterefs.receipts import SERVES_ALL

OPTIONS: Mapping[str, Mapping[str, Any]] = {"kerchunk": {"json": True}}


class Results:
    """``results/<dataset>`` of a small dataset; ``folder`` holds store/, emit/, verify/, sync/."""

    def __init__(self, folder: Path, **parts: Any) -> None:
        self.folder, self.config = folder, building.config(**parts)
        self.store = folder / "store" / "store.sqlite"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(target, form) of everything that is emitted."""
        targets = ["access", *sorted(self.config["remap"])]
        return [
            (target, form)
            for form in emitters.NAMES
            for target in (targets if form not in SERVES_ALL else ["access"])
        ]

    def scan(self, paths: Iterable[Path], removed: Sequence[str] = ()) -> None:
        """Scan files into the store and plan again."""
        self.store.parent.mkdir(parents=True, exist_ok=True)
        building.scan_into(self.store.parent, paths, self.config, removed)
        building.replan(self.store.parent, self.config).close()

    def out(self, target: str, form: str) -> Path:
        return self.folder / "emit" / target / form

    def emitted(self, target: str, form: str) -> Path:
        return self.folder / "emit" / target / f"{form}.receipt.json"

    def proof(self, target: str, form: str) -> Path:
        return self.folder / "verify" / target / f"{form}.json"

    def emit(self, *pairs: tuple[str, str]) -> None:
        """Emit (target, form) pairs, all by default."""
        receipt = self.folder / "view" / "receipt.json"
        stages.look(self.store, receipt)
        digest = json.loads(receipt.read_text())["digest"]
        for target, form in pairs or self.pairs:
            done = emitters.build(
                self.store, digest, self.out(target, form),
                form=form, target=target, options=OPTIONS.get(form, {}),
            )  # fmt: skip
            files.write_json(self.emitted(target, form), done)

    def covered(self, target: str, form: str) -> None:
        """Make the receipt say what lies there, as if the emitter had written it so."""
        done = json.loads(self.emitted(target, form).read_text())
        covers = files.covers(self.out(target, form))
        done |= {"covers": covers, "digest": files.digest(covers)}
        files.write_json(self.emitted(target, form), done)

    def verify(self, target: str, form: str, **options: Any) -> dict[str, Any]:
        """Verify one form; the receipt's content."""
        verify.run(
            self.store, self.emitted(target, form), self.proof(target, form),
            form=form, target=target, options=options,
        )  # fmt: skip
        return dict(json.loads(self.proof(target, form).read_text()))

    def values(self, form: str, *arrays: str) -> dict[str, np.ndarray]:
        """Arrays (all by default) of an emitted form through its own reader, in the order of their names."""
        out = self.out("access", form)
        with closing(emitters.load(form).open(out, access=lambda path: path)) as reader:
            found = reader.arrays()
            return {
                name: np.asarray(reader.read(name, tuple(map(slice, found[name].shape))))
                for name in arrays or sorted(found)
            }

    def proven(self, form: str, array: str) -> np.ndarray:
        """An array of a form that is emitted and verified."""
        self.emit(("access", form))
        assert self.verify("access", form)["verified"]
        return self.values(form, array)[array]

    @property
    def proofs(self) -> list[Path]:
        """The verification receipts that the workflow hands to sync."""
        return [self.proof(target, form) for target, form in self.pairs]
