"""OCI layouts: files and images by digest, and what `docker load` receives."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from bakehouse.engine.image_archive import OnProgress, ReaderOf, SavedImage
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BuildError
from tests.support.errors import raised
from tests.support.fake_commands import put
from tests.support.fake_engine import FakeEngine, Run

LAYER = b"x" * 2048
DIFF_ID = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
CONFIG = json.dumps({"rootfs": {"type": "layers", "diff_ids": [DIFF_ID]}}).encode()


class Engine(FakeEngine):
    """Engine with one image of one layer."""

    def __init__(self) -> None:
        super().__init__(lambda spec: Run())

    def read_image(
        self, reference: str, reader_of: ReaderOf, on_progress: OnProgress = lambda number: None
    ) -> SavedImage:
        reader = reader_of(DIFF_ID)
        assert reader
        reader(io.BytesIO(LAYER))
        return SavedImage((), (), CONFIG)


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


def manifest(layout: OciLayout, digest: str) -> dict[str, list[dict[str, str]]]:
    return json.loads((layout.directory / "blobs" / digest.replace(":", "/")).read_text())  # type: ignore[no-any-return]


def test_equal_files_give_equal_digests(layout: OciLayout, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    first = layout.add_files({"d/a": tmp_path / "a", "b": b"two"})
    (tmp_path / "a").touch()

    assert OciLayout(tmp_path / "other").add_files({"b": b"two", "d/a": tmp_path / "a"}) == first
    assert layout.context(first) == f"oci-layout://{layout.directory}@{first}"
    assert layout.has_image(first)
    with tarfile.open(layout.blob(manifest(layout, first)["layers"][0]["digest"])) as archive:  # type: ignore[arg-type]
        assert [(entry.name, entry.mtime) for entry in archive] == [("b", 0), ("d/a", 0)]


def test_an_image_with_other_digests_has_the_same_content(layout: OciLayout) -> None:
    plain, first, second = (layout.add_image("base", Engine(), changes) for changes in (0, 1, 2))
    layers = [manifest(layout, digest)["layers"][0] for digest in (plain, first, second)]
    blobs = [layout.blob(layer["digest"]) for layer in layers]  # type: ignore[arg-type]

    assert layers[0]["digest"] == DIFF_ID
    assert len({layer["digest"] for layer in layers}) == 3
    assert [blobs[0].read_bytes(), *(gzip.decompress(blob.read_bytes()) for blob in blobs[1:])] == [LAYER] * 3


def test_layers_are_shared_and_unused_blobs_removed(layout: OciLayout, tmp_path: Path) -> None:
    base, files = layout.add_image("base", Engine()), layout.add_files({"a": b"1"})
    other = OciLayout(tmp_path / "other")

    for _ in range(2):
        layout.share_layers(base, other)
    layout.keep([base])

    assert [path.read_bytes() for path in (other.directory / "blobs/sha256").iterdir()] == [LAYER]
    assert layout.has_image(base)
    assert not layout.has_image(files)
    assert len([*(layout.directory / "blobs/sha256").iterdir()]) == 3


def test_an_image_is_loaded_under_all_its_names(
    layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker=f"cat > {tmp_path}/loaded.tar")
    digest = layout.add_image("base", Engine())

    layout.load(digest, ["bakehouse/a:1", "registry.example/a:latest"])

    with tarfile.open(tmp_path / "loaded.tar") as archive:
        content = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    index = json.loads(content["index.json"])["manifests"]
    assert [(item["digest"], item["annotations"]) for item in index] == [
        (digest, {"io.containerd.image.name": "docker.io/bakehouse/a:1"}),
        (digest, {"io.containerd.image.name": "registry.example/a:latest"}),
    ]
    [listed] = json.loads(content["manifest.json"])
    assert listed["RepoTags"] == ["bakehouse/a:1", "registry.example/a:latest"]
    assert (content[listed["Config"]], [content[name] for name in listed["Layers"]]) == (CONFIG, [LAYER])


def test_an_engine_that_cannot_load(
    layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker="echo no space left on device >&2; exit 1")
    digest = layout.add_image("base", Engine())

    [diagnostic] = raised(BuildError, layout.load, digest, ["bakehouse/a:1"]).diagnostics
    assert diagnostic.message == "the engine of this machine could not load `bakehouse/a:1`"
    assert diagnostic.tail == ("no space left on device",)
