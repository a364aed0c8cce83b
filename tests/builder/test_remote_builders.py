"""Available remote builders, and what happens when one is lost."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.remote_builders import RemoteBuilders, is_remote
from bakehouse.engine.builder_watch import BuilderLost, Watch, lost
from bakehouse.engine.buildkit_errors import EngineGone
from bakehouse.engine.buildx import BakedImage
from bakehouse.errors import EngineError
from bakehouse.util.oci import Digest
from tests.support.errors import raised
from tests.support.fake_commands import put

BAKED = {"a": BakedImage(Digest("sha256:aa"), Digest("sha256:ac"))}


class Farm:
    """Builders, of which some are down; `answers` are the results of calls of buildx."""

    def __init__(self, names: str, answers: list[EngineError | None], down: str = "") -> None:
        self.lines: list[str] = []
        self.used: list[str] = []
        self.down = down.split()
        self._answers = answers
        self.builders = RemoteBuilders(names.split(), self.lines.append, self.require, self.watch)

    def require(self, name: str) -> None:
        if name in self.down:
            raise EngineError(f"builder node `{name}0` does not run")

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[Watch]:
        yield Watch(name)

    def run(self) -> dict[str, BakedImage]:
        return self.builders.run(self.builders.available()[0], self._bake)

    def _bake(self, name: str, watched: Watch) -> dict[str, BakedImage]:
        self.used.append(name)
        if answer := self._answers.pop(0):
            raise answer
        return BAKED


def test_builders_with_faults_are_left_out() -> None:
    farm = Farm("far broken near near", [], down="broken")

    assert farm.builders.available() == ("far", "near")
    assert farm.lines == ["builder node `broken0` does not run; building on `far`, `near`"]


def test_a_fault_is_reported_once() -> None:
    farm = Farm("broken far near", [lost("far", "no answer"), None], down="broken")

    farm.builders.available()
    farm.run()

    assert farm.used == ["far", "near"]
    assert farm.lines == [
        "builder node `broken0` does not run; building on `far`, `near`",
        "builder `far` stopped answering; continuing on `near`",
    ]


def test_a_builder_that_was_down_continues_if_no_other_is_left() -> None:
    farm = Farm("far near", [lost("far", "no answer"), None], down="near")

    farm.builders.available()
    farm.down = ["far"]
    farm.run()

    assert farm.used == ["far", "near"]


def test_no_builder_is_available() -> None:
    farm = Farm("far near", [], down="far near")

    assert [diagnostic.message for diagnostic in raised(EngineError, farm.run).diagnostics] == [
        "builder node `far0` does not run",
        "builder node `near0` does not run",
    ]


def test_another_builder_continues_after_a_loss() -> None:
    farm = Farm("far near", [EngineGone("gone", tail=("closing transport",)), None])

    assert farm.run() == BAKED
    assert farm.used == ["far", "near"]
    assert farm.lines == ["builder `far` stopped answering; continuing on `near`"]


def test_the_same_builder_continues_when_it_answers_again() -> None:
    farm = Farm("far", [lost("far", "no answer"), None])

    assert farm.run() == BAKED
    assert farm.lines == ["builder `far` stopped answering; continuing on `far`"]


def test_a_builder_that_is_lost_for_good_is_named() -> None:
    farm = Farm("far", [lost("far", "no answer")])
    farm.builders.require = lambda name: farm.require(name if farm.used else "")
    farm.down = ["far"]

    with pytest.raises(BuilderLost, match="builder `far` stopped answering"):
        farm.run()


def test_a_builder_that_is_lost_again_and_again() -> None:
    farm = Farm("far", [lost("far", "no answer")] * 3)

    with pytest.raises(BuilderLost):
        farm.run()

    assert farm.used == ["far"] * 3


# `office` and the client's own context have the same endpoint.
CONTEXTS = """\
case "$*" in
"context ls"*) echo default; echo office; echo other ;;
*other*) echo tcp://other.example:2376 ;;
*) echo unix:///var/run/docker.sock ;;
esac
"""


def test_builders_that_are_this_machines_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, docker=CONTEXTS)
    environment = {"BUILDX_CONFIG": str(tmp_path)}
    definition = {"Name": "far", "Driver": "remote", "Nodes": [{"Name": "far0", "Endpoint": "tcp://far:1"}]}
    (tmp_path / "instances").mkdir()
    (tmp_path / "instances/far").write_text(json.dumps(definition))

    assert [is_remote(names, environment) for names in ([], ["default"], ["office"])] == [False] * 3
    assert [is_remote(names, environment) for names in (["other"], ["far"], ["default", "far"])] == [True] * 3
