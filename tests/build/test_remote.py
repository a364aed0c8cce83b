"""Files and images of builds on remote builders."""

import contextlib
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.build.bake import target_of
from bakehouse.build.build_inputs import BuildInputs, Downloads
from bakehouse.build.progress import Mode, Progress
from bakehouse.build.remote import RemoteBuild
from bakehouse.build.remote_builders import RemoteBuilders
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildx import BakedImage
from bakehouse.errors import BuildError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.plan.model import RegistryBase
from tests.support import fake_engine
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run
from tests.support.file_server import required_file

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
        builders = RemoteBuilders(
            ["far"], print, lambda name: None, lambda name: contextlib.nullcontext(Watch(name))
        )
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
    put(
        tmp_path,
        monkeypatch,
        docker="[ $1 = context ] && echo far && exit; echo ERROR: out of order >&2; exit 1",
    )
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / PACKAGE.file).write_bytes(b"content")

    for mirrors in ((tmp_path / "mirror",), ()):
        with pytest.raises(BuildError, match="out of order"):
            bake_one_and_two(tmp_path, mirrors)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
