"""A project with a candidate in two registries, and a key that signs."""

from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.evidence import check_rows
from bakehouse.ledger.store import open_ledger
from bakehouse.registry.manifest import content_id
from tests.support.built_images import results
from tests.support.candidates import candidate, fake_registries, proxies
from tests.support.fake_registry import CONFIG
from tests.support.proxy import Proxy
from tests.support.signing_keys import KeyFiles, make_key
from tests.support.teams import keys, proxy, team

__all__ = ["fake_registries", "key", "keys", "project", "proxies", "proxy", "team"]


@pytest.fixture
def project(tmp_path: Path, proxies: tuple[Proxy, Proxy]) -> ProjectSettings:
    """A project with a candidate in both registries that passed its smoke test."""
    project = ProjectSettings(tmp_path, ())
    check_rows.record(project.state, content_id(CONFIG), results())
    open_ledger(project).add(candidate(*proxies))
    return project


@pytest.fixture
def key(tmp_path: Path) -> KeyFiles:
    return make_key(tmp_path, "signing")
