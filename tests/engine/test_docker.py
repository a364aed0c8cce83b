"""Client of the engine: errors without an engine, and removal of leftovers."""

import os
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from bakehouse.engine.docker import OWNER_LABEL, DockerEngine, connect
from bakehouse.engine.protocol import CleanupCounts
from bakehouse.errors import EngineError
from bakehouse.util import tempdir
from tests.support.errors import refusal


def test_no_engine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    assert refusal(EngineError, connect) == dedent("""\
        error: no container engine answers
          action  open unix:///nowhere/docker.sock
          answer  No such file or directory

        hint: run `bake doctor`
        """)


class Api:
    """Fake API of the engine with objects of a running and of a dead run."""

    def __init__(self) -> None:
        machine, _, start = tempdir.run_id().split("-")
        self.owners = {"mine": tempdir.run_id(), "dead": f"{machine}-{os.getpid()}-{int(start) + 1}"}
        self.removed: list[str] = []
        self.client: Any = self
        self.api = self

    def _listed(self, *names: str) -> Sequence[dict[str, Any]]:
        owned = [(name, {OWNER_LABEL: self.owners[name.split()[0]]}) for name in names]
        return [{"Id": name, "Name": name, "Created": 1, "Labels": labels} for name, labels in owned]

    def containers(self, **filters: object) -> Sequence[dict[str, Any]]:
        return self._listed("dead container", "mine container", "dead host")

    def networks(self, **filters: object) -> Sequence[dict[str, Any]]:
        return self._listed("mine network", "dead network")

    def volumes(self, **filters: object) -> dict[str, Any]:
        return {"Volumes": None}

    def remove_container(self, key: str, **options: object) -> None:
        self.removed.append(key)

    def remove_network(self, key: str) -> None:
        self.removed.append(key)

    def remove_volume(self, key: str) -> None:
        self.removed.append(key)

    def remove_image(self, name: str) -> None:
        """Answer as for an image whose tag is a status code."""
        response = requests.Response()
        response.status_code = int(name.rpartition(":")[2])
        if response.status_code == 404:
            raise ImageNotFound("", response, f"No such image: {name}")
        if not response.ok:
            raise APIError("", response, "the disk failed")


def test_what_a_sweep_removed_is_counted_by_kind() -> None:
    api = Api()

    assert DockerEngine(api.client).sweep() == CleanupCounts(containers=2, networks=1, volumes=0)
    assert api.removed == ["dead container", "dead host", "dead network"]


@pytest.mark.parametrize(("status", "is_removed"), [(200, True), (404, True), (409, False)])
def test_only_an_image_that_a_container_uses_is_not_removed(status: int, is_removed: bool) -> None:
    """An absent image counts as removed."""
    assert DockerEngine(Api().client).remove_image(f"bakehouse/one:{status}") == is_removed


def test_an_image_that_the_engine_fails_to_remove_is_an_error() -> None:
    assert refusal(EngineError, DockerEngine(Api().client).remove_image, "bakehouse/one:500") == (
        "error: the container engine could not remove image `bakehouse/one:500`\n  answer  the disk failed\n"
    )
