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
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.util.oci import Digest
from tests.support import fake_engine, plans
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
    with pytest.raises(ImagesFailed) as failed:
        bake_one_and_two(tmp_path)

    assert failed.value.images == {"two"}
    assert failed.value.diagnostics[0].message == "1 file could not be downloaded"


def test_images_of_builders_that_are_no_longer_selected_are_removed(tmp_path: Path) -> None:
    with remote_build(tmp_path, ["one"], ["far"]) as build:
        for name in ("far", "gone"):
            build.output(name).directory.mkdir(parents=True)
        build.remove_old()

    assert [path.name for path in (tmp_path / "state/remote/images").iterdir()] == ["far"]


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


def test_images_are_loaded_from_where_they_were_written_after_a_shared_step_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        put_image(tmp_path, name, f"FROM base AS shared\nRUN true\nFROM shared AS image\nRUN {name}\n")
    written: dict[str, str] = {}
    loaded: dict[str, Path] = {}

    def bake(targets: Sequence[Target], context: BuildContext, **_: object) -> dict[str, BakedImage]:
        if targets[0].part_of:
            raise ImagesFailed(Diagnostic("no network"), images=frozenset({"one"}))
        written.update({target.name: target.output for target in targets})
        return {target.name: BakedImage(Digest("sha256:1"), Digest("sha256:2")) for target in targets}

    def load(build: RemoteBuild, image: Image, digests: BakedImage, layout: OciLayout) -> BakedImage:
        loaded[image.name] = layout.directory
        return digests

    monkeypatch.setattr(remote, "bake_with_inputs", bake)
    monkeypatch.setattr(RemoteBuild, "_load", load)
    with remote_build(tmp_path, ["one", "two"], ["far", "near"]) as build:
        build.bake([target_of(image, build.context.project.state) for image in build.images.values()])

    assert {directory.name for directory in loaded.values()} == {"far", "near"}
    assert all(f'"dest={loaded[name]}"' in output for name, output in written.items())
    assert [*written] == ["one", "two"]
