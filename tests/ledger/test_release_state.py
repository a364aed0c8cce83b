"""Releases, copies, roll-backs and repeated records of an image in two registries, against a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.ledger import image_uris
from bakehouse.ledger.releases import ReleasedRollback, ReleaseRecord, withdrawn
from tests.support.release_records import a_record

RECORD = a_record()
HOSTS = {"dev": "dev.example/team", "prod": "prod.example/team"}
PREFIXES = {"dev": "one.example/dev", "prod": "one.example/prod"}


@dataclass
class Model:
    """A ledger, and by registry its releases and the current one."""

    places: Mapping[str, str]
    """Host and prefix of each registry."""
    ledger: tuple[ReleaseRecord, ...] = ()
    time: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        self.has: dict[str, list[int]] = {name: [] for name in HOSTS}
        self.current: dict[str, int | None] = dict.fromkeys(HOSTS)
        self.withdrawn: dict[str, set[int]] = {name: set() for name in HOSTS}
        self.replaced: dict[str, list[int]] = {name: [0] for name in HOSTS}

    def add(self, registry: str, number: int, **values: Any) -> None:
        digest, (host, _, prefix) = f"sha256:{number:064x}", self.places[registry].partition("/")
        repository = f"{prefix}/{RECORD.image}"
        uri = f"{host}/{repository}@{digest}"
        record = replace(RECORD, digest=digest, registry=host, repository=repository, image_uri=uri)
        record = replace(record, date="2026-11-20", **values)
        self.ledger += (record,)

    def release(self, registry: str) -> None:
        self.count += 1
        self.add(registry, self.count)
        self.has[registry].append(self.count)
        self.current[registry] = self.count

    def copy(self, registry: str) -> None:
        """Copy the releases that `promote --registry` copies."""
        other = next(name for name in HOSTS if name != registry)
        for number in self.has[other]:
            if number not in self.withdrawn[other] and number not in self.has[registry]:
                self.add(registry, number)
                self.has[registry].append(number)
                # A release that is older than a withdrawn one does not end a roll-back
                if number > max(self.current[registry] or 0, *self.replaced[registry]):
                    self.current[registry] = number

    def roll_back(self, registry: str) -> None:
        """Go to the oldest release, or forward to the newest from there."""
        numbers, before = sorted(self.has[registry]), self.current[registry]
        if len(numbers) < 2 or before is None:
            return
        target = numbers[0] if before != numbers[0] else numbers[-1]
        self.time += 1
        rollback = ReleasedRollback(f"2026-11-20T10:00:{self.time:02}Z", f"sha256:{before:064x}")
        self.add(registry, target, rollback=rollback)
        self.replaced[registry].append(before)
        if target < before:
            self.withdrawn[registry].add(before)
        self.withdrawn[registry].discard(target)
        self.current[registry] = target

    def retag(self, registry: str) -> None:
        """Record another fact of the current release, as a moved tag or a scan does."""
        if number := self.current[registry]:
            self.time += 1
            known = [
                record
                for record in self.ledger
                if record.place == self.places[registry] and int(record.digest[7:], 16) == number
            ]
            self.ledger += (replace(known[-1], scanned=f"{self.time}"),)


STEPS = [(step, name) for step in ("release", "copy", "roll_back", "retag") for name in HOSTS]


@pytest.mark.parametrize(("places", "count"), [(HOSTS, 4), (PREFIXES, 3)])
def test_each_registry_has_its_own_current_release(
    tmp_path: Path, places: Mapping[str, str], count: int
) -> None:
    tables = {name: place.split("/") for name, place in places.items()}
    settings = {name: RegistrySettings(name, host, prefix=prefix) for name, (host, prefix) in tables.items()}
    project = ProjectSettings(tmp_path, (), registries=settings)
    for steps in product(STEPS, repeat=count):
        model = Model(places)
        for step, name in [("release", "dev"), ("release", "dev"), ("copy", "prod"), *steps]:
            getattr(model, step)(name)
        for name in places:
            record = image_uris.current(replace(project, registry=name), model.ledger)
            assert record is not None
            assert int(record.digest[7:], 16) == model.current[name], (steps, name)
        assert withdrawn(model.ledger) == {
            (places[name], f"sha256:{number:064x}") for name in places for number in model.withdrawn[name]
        }, steps
