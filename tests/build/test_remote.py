"""Choice of a remote builder, and what happens when one is lost."""

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.build.bake import target_of
from bakehouse.build.build_inputs import BuildInputs, Downloads
from bakehouse.build.progress import Mode, Progress
from bakehouse.build.remote import RemoteBuild, RemoteBuilders, is_remote
from bakehouse.engine.builder_watch import BuilderLost, Watch, lost
from bakehouse.engine.buildkit_errors import EngineGone, ImagesFailed
from bakehouse.engine.buildx import BakedImage
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.plan.model import RegistryBase
from bakehouse.util.oci import Digest
from tests.support import fake_engine
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run
from tests.support.file_server import required_file

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
            raise EngineError(Diagnostic(f"builder node `{name}0` does not run"))

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[Watch]:
        yield Watch(name)

    def run(self) -> dict[str, BakedImage]:
        return self.builders.run(self._bake)

    def _bake(self, name: str, watched: Watch) -> dict[str, BakedImage]:
        self.used.append(name)
        if answer := self._answers.pop(0):
            raise answer
        return BAKED


def test_the_first_available_builder_builds() -> None:
    farm = Farm("far near", [None], down="far")

    assert farm.run() == BAKED
    assert farm.used == ["near"]
    assert farm.lines == ["builder node `far0` does not run; building on `near`"]


def test_a_fault_is_reported_once() -> None:
    farm = Farm("broken far near", [lost("far", "no answer"), None], down="broken")

    farm.builders.first()
    farm.run()

    assert farm.used == ["far", "near"]
    assert farm.lines == [
        "builder node `broken0` does not run; building on `far`",
        "builder `far` stopped answering; continuing on `near`",
    ]


def test_no_builder_is_available() -> None:
    farm = Farm("far near", [], down="far near")

    with pytest.raises(EngineError) as failed:
        farm.run()

    assert [diagnostic.message for diagnostic in failed.value.diagnostics] == [
        "builder node `far0` does not run",
        "builder node `near0` does not run",
    ]


def test_another_builder_continues_after_a_loss() -> None:
    farm = Farm("far near", [EngineGone(Diagnostic("gone", tail=("closing transport",))), None])

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


PACKAGE = required_file(b"content", "tiny-1.0.tar.gz", "sdist", "tiny==1.0")


def bake_one_and_two(root: Path, mirrors: tuple[Path, ...] = ()) -> dict[str, BakedImage]:
    """Build two images, of which the second needs `PACKAGE`."""
    texts = {
        "one": "FROM base\nRUN true\n",
        "two": f"FROM base\nRUN --mount=type=secret,id=mirrors download {PACKAGE.sha256}\n",
    }
    for name, text in texts.items():
        directory = root / "images" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "Dockerfile").write_text(text)
        (directory / "docker-bake.json").write_text(f'{{"target": {{"{name}": {{}}}}}}')
    images = {name: replace(fake_engine.image(name), base=RegistryBase("base", None)) for name in texts}
    local = LocalMirrors(mirrors, HashCache(root / "hashes.json"))
    with (
        Fetcher(FileCache(root / "cache", print), local) as fetcher,
        Progress(io.StringIO(), Mode.LINES) as progress,
    ):
        downloads = Downloads(RequiredFiles((PACKAGE,), {PACKAGE: ("two",)}, ((PACKAGE,),)), fetcher)
        engine = FakeEngine(lambda spec: Run())
        builders = Farm("far", []).builders
        build = RemoteBuild(images, builders, engine, downloads, root, root / "state", progress)
        return build.bake([target_of(image) for image in images.values()], BuildInputs())


def test_an_unavailable_file_fails_only_the_images_that_need_it(tmp_path: Path) -> None:
    with pytest.raises(ImagesFailed) as failed:
        bake_one_and_two(tmp_path)

    assert failed.value.images == {"two"}
    assert failed.value.diagnostics[0].message == "1 file could not be downloaded"


def test_files_that_were_sent_before_are_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker="echo ERROR: out of order >&2; exit 1")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / PACKAGE.file).write_bytes(b"content")

    for mirrors in ((tmp_path / "mirror",), ()):
        with pytest.raises(BuildError, match="out of order"):
            bake_one_and_two(tmp_path, mirrors)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)


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
