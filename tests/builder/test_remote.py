"""Files and images of builds on remote builders."""

import contextlib
import io
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bakehouse.builder import remote
from bakehouse.builder.bake import target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import Downloads
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.remote import RemoteBuild
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.builder_watch import Watch, lost
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BuildError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.plan.model import RegistryBase
from bakehouse.util.oci import Digest
from tests.support import fake_engine, plans
from tests.support.errors import raised
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run
from tests.support.file_server import required_file

PACKAGE = required_file(b"content", "tiny-1.0.tar.gz", "sdist", "tiny==1.0")


def put_image(root: Path, name: str, dockerfile: str) -> None:
    directory = root / "images" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "Dockerfile").write_text(dockerfile)
    (directory / "docker-bake.json").write_text(f'{{"target": {{"{name}": {{}}}}}}')


@contextlib.contextmanager
def remote_build(
    root: Path, names: Sequence[str], builders: Sequence[str], mirrors: tuple[Path, ...] = ()
) -> Iterator[RemoteBuild]:
    """A build of images, of which `two` may need `PACKAGE`."""
    images = {name: plans.changed(fake_engine.image(name), base=RegistryBase("base", None)) for name in names}
    local = LocalMirrors(mirrors, HashCache(root / "hashes.json"))
    with (
        Fetcher(FileCache(root / "cache", print), local) as fetcher,
        Progress(io.StringIO(), Mode.LINES) as progress,
    ):
        downloads = Downloads(RequiredFiles((PACKAGE,), {PACKAGE: ("two",)}, ((PACKAGE,),)), fetcher)
        engine = FakeEngine(lambda spec: Run())
        available = RemoteBuilders(
            [*builders], print, lambda name: None, lambda name: contextlib.nullcontext(Watch(name))
        )
        project = ProjectSettings(root, (), state_directory=root / "state")
        yield RemoteBuild(images, available, BuildContext(project, engine, progress, downloads))


def bake_one_and_two(root: Path, mirrors: tuple[Path, ...] = ()) -> dict[str, BakedImage]:
    """Build two images, of which the second needs `PACKAGE`."""
    put_image(root, "one", "FROM base\nRUN true\n")
    put_image(root, "two", f"FROM base\nRUN --mount=type=secret,id=mirrors download {PACKAGE.sha256}\n")
    with remote_build(root, ["one", "two"], ["far"], mirrors) as build:
        return build.bake([target_of(image, build.context.project.state) for image in build.images.values()])


def test_an_unavailable_file_fails_only_the_images_that_need_it(tmp_path: Path) -> None:
    error = raised(ImagesFailed, bake_one_and_two, tmp_path)

    assert error.images == {"two"}
    assert error.diagnostics[0].message == "1 file could not be downloaded"


def test_another_builder_continues_and_the_layout_keeps_the_last_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def bake(targets: Sequence[Target], context: BuildContext, *, builder: str, **_: object) -> object:
        calls.append((builder, [target.output for target in targets]))
        if builder == "far":
            raise lost("far", "no answer")
        return {target.name: BakedImage(Digest("sha256:1"), Digest("sha256:2")) for target in targets}

    monkeypatch.setattr(remote, "bake_with_inputs", bake)
    monkeypatch.setattr(RemoteBuild, "_load", lambda build, image, digests: digests)
    kept: list[object] = []
    monkeypatch.setattr(OciLayout, "keep", lambda layout, manifests: kept.append({*manifests}))
    put_image(tmp_path, "one", "FROM base\nRUN true\n")
    with remote_build(tmp_path, ["one"], ["far", "near"]) as build:
        build.bake([target_of(image, build.context.project.state) for image in build.images.values()])
        build.remove_old()

    output = f'type=oci,"dest={tmp_path / "state/remote/images"}"'
    assert [builder for builder, _ in calls] == ["far", "near"]
    assert all(text.startswith(output) for _, outputs in calls for text in outputs)
    assert kept[-1] == {"sha256:1"}


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
