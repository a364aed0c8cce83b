"""Files of steps that travel with the build, where steps cannot reach this host."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from bakehouse.builder import image_owners, sent_files
from bakehouse.builder.bake import target_of
from bakehouse.builder.build import open_context
from bakehouse.builder.build_context import BuildContext, BuildOptions
from bakehouse.builder.build_inputs import Downloads
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.sent_files import SentFiles
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import daemon_info
from bakehouse.engine.buildkit_errors import TransferBroken
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.engine.protocol import EngineHost
from bakehouse.errors import EngineError, UsageError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan.model import RegistryBase
from bakehouse.util.oci import Digest
from tests.support import fake_engine, plans
from tests.support.daemons import ENGINE
from tests.support.fake_engine import FakeEngine, Run
from tests.support.file_server import required_file

PACKAGE = required_file(b"content", "tiny-1.0.tar.gz", "sdist", "tiny==1.0")
IMAGE = plans.changed(fake_engine.image("one"), base=RegistryBase("base", None))
STEP = f"RUN --mount=type=secret,id=mirrors download {PACKAGE.sha256}"
ELSEWHERE = EngineHost(problem="`10.213.0.1` is not an address of this host")
BAKED = BakedImage(Digest("sha256:" + "aa" * 32), Digest("sha256:" + "ac" * 32))


@pytest.fixture(autouse=True)
def own_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_info, "inspect", lambda: ENGINE)


def context(root: Path, *files: RequiredFile) -> BuildContext:
    (root / "mirror").mkdir(parents=True)
    (root / "mirror" / PACKAGE.file).write_bytes(b"content")
    (root / "images/one").mkdir(parents=True)
    (root / "images/one/Dockerfile").write_text(f"FROM base\n{STEP}\n")
    local = LocalMirrors((root / "mirror",), HashCache(root / "hashes.json"))
    required = RequiredFiles(files, dict.fromkeys(files, ("one",)), (files,))
    downloads = Downloads(required, Fetcher(FileCache(root / "cache", print), local))
    project = ProjectSettings(root, (), state_directory=root / "state", user_state=root / "user")
    engine = FakeEngine(lambda spec: Run())
    return BuildContext(project, engine, Progress(io.StringIO(), Mode.LINES), downloads)


def test_the_engine_receives_the_files_of_its_steps(tmp_path: Path) -> None:
    received: list[Target] = []

    def bake(targets: Sequence[Target]) -> dict[str, BakedImage]:
        received.extend(targets)
        return {"one": BAKED}

    images = {"one": IMAGE}
    baked = sent_files.bake_with_files(
        [target_of(IMAGE, tmp_path / "state")], images, context(tmp_path, PACKAGE), bake
    )

    assert baked == {"one": BAKED}
    [target] = received
    [(name, source)] = target.contexts.items()
    assert target.dockerfile.splitlines()[1] == STEP.replace(
        "RUN ", f"RUN --mount=type=bind,from={name},target=/run/bakehouse "
    )
    layout = OciLayout(tmp_path / "state/remote/inputs")
    digest = Digest(source.removeprefix(f"oci-layout://{layout.directory}@"))
    assert layout.has_image(digest)
    [layer] = json.loads(layout.blob(digest).read_bytes())["layers"]
    assert b"content" in layout.blob(layer["digest"]).read_bytes()


def test_an_engine_without_a_containerd_store_loads_the_files_as_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_info, "inspect", lambda: replace(ENGINE, containerd_store=False))
    loaded: dict[str, Digest] = {}
    monkeypatch.setattr(OciLayout, "load", lambda _, manifest, names: loaded.update({names[0]: manifest}))
    monkeypatch.setattr(FakeEngine, "image", lambda _, name: None)
    received: list[str] = []

    def bake(targets: Sequence[Target]) -> dict[str, BakedImage]:
        received.extend(source for target in targets for source in target.contexts.values())
        return {"one": BAKED}

    built = context(tmp_path, PACKAGE)
    sent_files.bake_with_files([target_of(IMAGE, tmp_path / "state")], {"one": IMAGE}, built, bake)

    [(name, manifest)] = loaded.items()
    assert name == f"bakehouse/files:{manifest.removeprefix('sha256:')}"
    assert received == [f"docker-image://{name}"]
    assert OciLayout(tmp_path / "state/remote/inputs").has_image(manifest)


def test_images_of_files_of_other_projects_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_info, "inspect", lambda: replace(ENGINE, containerd_store=False))
    monkeypatch.setattr(OciLayout, "load", lambda *_: None)
    removed: list[str] = []

    def remove(engine: FakeEngine, name: str) -> bool:
        removed.append(name)
        return True

    monkeypatch.setattr(FakeEngine, "remove_image", remove)
    own = context(tmp_path / "own", PACKAGE)
    other = replace(own.project, root=tmp_path)
    names = [f"bakehouse/files:{name}" for name in ("old", "shared", "others")]
    for project, recorded in ((own.project, names[:2]), (other, names[1:])):
        image_owners.record(project, ["bakehouse/one:0123abcd", *recorded])
    targets = [target_of(IMAGE, tmp_path / "own/state")]

    for _ in range(2):
        sent_files.bake_with_files(targets, {"one": IMAGE}, own, lambda _: {"one": BAKED})

    assert removed == ["bakehouse/files:old"]
    assert "bakehouse/one:0123abcd" in image_owners.read(own.project).own


def send_new_files(own: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build with other files than the image `bakehouse/files:old`, which the project loaded."""
    monkeypatch.setattr(daemon_info, "inspect", lambda: replace(ENGINE, containerd_store=False))
    monkeypatch.setattr(OciLayout, "load", lambda *_: None)
    image_owners.record(own.project, ["bakehouse/files:old"])
    target = target_of(IMAGE, own.project.state)
    sent_files.bake_with_files([target], {"one": IMAGE}, own, lambda _: {"one": BAKED})


@pytest.mark.parametrize("fails", [True, False])
def test_images_of_files_that_cannot_be_removed_are_still_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A container uses the image, or the engine fails to remove it."""

    def remove(engine: FakeEngine, name: str) -> bool:
        if fails:
            raise EngineError(f"the container engine could not remove image `{name}`")
        return False

    monkeypatch.setattr(FakeEngine, "remove_image", remove)
    own = context(tmp_path, PACKAGE)
    send_new_files(own, monkeypatch)

    assert "bakehouse/files:old" in image_owners.read(own.project).own


def test_other_projects_record_images_of_files_before_or_after_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, their build would find the image and then lose it."""
    own = context(tmp_path / "own", PACKAGE)
    other = replace(own.project, root=tmp_path)
    recording = Thread(target=image_owners.record, args=(other, ["bakehouse/files:old"]))
    owners: list[frozenset[str]] = []

    def remove(engine: FakeEngine, name: str) -> bool:
        recording.start()
        recording.join(timeout=0.3)
        owners.append(image_owners.read(other).own)
        return True

    monkeypatch.setattr(FakeEngine, "remove_image", remove)
    send_new_files(own, monkeypatch)
    recording.join(timeout=60)

    assert [*owners, image_owners.read(other).own] == [frozenset(), {"bakehouse/files:old"}]


def test_a_damaged_record_of_another_project_does_not_stop_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = context(tmp_path, PACKAGE)
    damaged = own.project.user_state / "images/other.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("1 1")
    send_new_files(own, monkeypatch)

    damaged.unlink()
    assert "bakehouse/files:old" in image_owners.read(own.project).own


def test_an_interrupted_transfer_is_repeated_with_another_digest(tmp_path: Path) -> None:
    sources: list[str] = []

    def bake(targets: Sequence[Target]) -> dict[str, BakedImage]:
        [target] = targets
        sources.extend(target.contexts.values())
        if len(sources) == 1:
            raise TransferBroken("the transfer broke")
        return {"one": BAKED}

    built = context(tmp_path, PACKAGE)
    sent_files.bake_with_files([target_of(IMAGE, tmp_path / "state")], {"one": IMAGE}, built, bake)

    assert len({*sources}) == 2


def test_files_without_sha256_cannot_be_sent(tmp_path: Path) -> None:
    unknown = RequiredFile("url", "data.bin", None, None, "https://data.example/data.bin")

    with (
        pytest.raises(UsageError, match="the sha256 of 1 file is unknown"),
        sent_files.alone(SentFiles(context(tmp_path, unknown))),
    ):
        pass


@pytest.mark.parametrize(("host", "sends"), [(ELSEWHERE, True), (fake_engine.HOST, False)])
def test_files_are_sent_only_where_steps_cannot_reach_this_host(
    tmp_path: Path, host: EngineHost, sends: bool
) -> None:
    log = io.StringIO()
    engine = FakeEngine(lambda spec: Run())
    engine.shared = host
    project = ProjectSettings(tmp_path, (), state_directory=tmp_path / "state")

    with open_context(project, [IMAGE], engine, Progress(log, Mode.LINES), BuildOptions()) as opened:
        assert opened.sends_files == sends
        # Steps that reach this host get its URL.
        mirrors = opened.inputs.secrets["mirrors"].read_text()
        assert ("http://127.0.0.1:" in mirrors) != sends
    message = (
        "build steps cannot reach this host (`10.213.0.1` is not an address of this host): sending their "
        "files with the build"
    )
    assert (message in log.getvalue()) == sends
