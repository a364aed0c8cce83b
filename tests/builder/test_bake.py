"""Bake with served files: reports of downloads, and failures that name the affected images."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.bake import bake_with_inputs
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import Downloads
from bakehouse.builder.progress import Mode, Progress
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.errors import BuildError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFiles
from tests.support.errors import raised
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run
from tests.support.file_server import required_file

LOST = required_file(b"lost", "lost-1.0.tar.gz", "sdist", "lost==1.0")
FAILS = """\
echo '{"vertexes": [{"digest": "d", "name": "[two part 2/2] RUN fetch", "error": "exit code: 1"}]}' >&2
exit 1"""


class BuildSetup:
    """Images `one`, `two` and `three`; the last two need a file that no source has."""

    def __init__(self, directory: Path, fetcher: Fetcher) -> None:
        self.directory, self.fetcher, self.output = directory, fetcher, io.StringIO()
        self.feed = Downloads(RequiredFiles((LOST,), {LOST: ("two", "three")}, ((LOST,),)), fetcher)
        for name in ("one", "two", "three"):
            (directory / name).mkdir()
            (directory / name / "docker-bake.json").write_text(f'{{"target": {{"{name}": {{}}}}}}')

    def bake(self, *names: str) -> dict[str, BakedImage]:
        with Progress(self.output, Mode.LINES) as progress:
            project = ProjectSettings(self.directory, (), state_directory=self.directory)
            context = BuildContext(project, FakeEngine(lambda spec: Run()), progress, self.feed)
            targets = [Target(name, name, Path(name, "docker-bake.json")) for name in names]
            return bake_with_inputs(targets, context)

    def lose(self) -> None:
        """Make an earlier download of the file fail."""
        assert self.fetcher.ask(LOST).done.wait(30)


@pytest.fixture
def build_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildSetup]:
    put(tmp_path, monkeypatch, docker=FAILS)
    local = LocalMirrors((), HashCache(tmp_path / "hashes.json"))
    with Fetcher(FileCache(tmp_path / "store", print), local) as fetcher:
        yield BuildSetup(tmp_path, fetcher)


def test_an_unavailable_file_fails_only_the_images_that_need_it(build_setup: BuildSetup) -> None:
    build_setup.lose()
    error = raised(ImagesFailed, build_setup.bake, "one", "two")
    assert error.images == {"two"}
    assert error.diagnostics[0].message == "1 file could not be downloaded"


def test_a_file_that_only_other_images_want_says_nothing_of_these(build_setup: BuildSetup) -> None:
    build_setup.lose()
    error = raised(BuildError, build_setup.bake, "one")
    assert error.diagnostics[0].message != "1 file could not be downloaded"


def test_what_was_fetched_is_reported(build_setup: BuildSetup) -> None:
    build_setup.fetcher.say("fetched part.tgz: 5.0 MB in 1 s")
    with pytest.raises(BuildError):
        build_setup.bake("one")
    assert "fetched part.tgz: 5.0 MB in 1 s\n" in build_setup.output.getvalue()
