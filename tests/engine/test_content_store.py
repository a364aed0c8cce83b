"""Images read from the files of containerd's content store."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bakehouse.analysis.layers import LayerContents, LayerFile, readers_into
from bakehouse.engine import content_store
from bakehouse.engine.image_archive import Reader
from bakehouse.errors import EngineError
from tests.support.errors import error_text, raised
from tests.support.layer_archives import Form, Member, compressed, config_of, layer

LOWER, UPPER = layer(Member("a", b"1")), layer(Member("b", b"22"))
MADE_BY = ("Debian bookworm", "COPY /out/ / # buildkit")


def skip(digest: str) -> Reader | None:
    return None


def ignore(count: int) -> None:
    pass


def blob_path(data_root: Path, digest: str) -> Path:
    return data_root / "containerd/daemon/io.containerd.content.v1.content/blobs" / digest.replace(":", "/")


def add(data_root: Path, content: bytes) -> str:
    """Store a blob and return its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    blob_path(data_root, digest).parent.mkdir(parents=True, exist_ok=True)
    blob_path(data_root, digest).write_bytes(content)
    return digest


def add_image(data_root: Path, layers: Sequence[bytes], made_by: Sequence[str] = MADE_BY) -> str:
    """Store an image and return the digest of its manifest."""
    manifest = {
        "config": {"digest": add(data_root, config_of(layers, made_by))},
        "layers": [{"digest": add(data_root, content)} for content in layers],
    }
    return add(data_root, json.dumps(manifest).encode())


@pytest.mark.parametrize("form", ["gzip", "zstd", "none"])
def test_layers_are_read_in_order(tmp_path: Path, form: Form) -> None:
    layers = [compressed(content, form) for content in (LOWER, UPPER)]
    image = add_image(tmp_path, layers)
    contents: dict[str, LayerContents] = {}

    saved = content_store.read(image, tmp_path, readers_into(contents), ignore)

    assert saved is not None
    assert [(blob.bytes, blob.compression) for blob in saved.layers] == [(len(each), form) for each in layers]
    assert [contents[blob.digest].files for blob in saved.layers] == [
        (LayerFile("/a", 1),),
        (LayerFile("/b", 2),),
    ]
    assert saved.made_by == MADE_BY
    assert saved.config == config_of(layers, MADE_BY)


def test_a_layer_that_occurs_twice_is_read_once(tmp_path: Path) -> None:
    read: list[str] = []

    def reader_of(digest: str) -> Reader:
        return lambda file: read.append(digest)

    saved = content_store.read(add_image(tmp_path, [LOWER, LOWER]), tmp_path, reader_of, ignore)

    assert saved is not None
    assert len(saved.layers) == 2
    assert len(read) == 1


def test_progress_counts_the_bytes_of_all_layers(tmp_path: Path) -> None:
    counts: list[int] = []

    content_store.read(add_image(tmp_path, [LOWER, UPPER]), tmp_path, readers_into({}), counts.append)

    assert counts[-1] == len(LOWER) + len(UPPER)


def test_an_image_with_a_missing_layer_is_not_read(tmp_path: Path) -> None:
    image = add_image(tmp_path, [LOWER, UPPER])
    blob_path(tmp_path, add(tmp_path, UPPER)).unlink()

    assert content_store.read(image, tmp_path, skip, ignore) is None
    assert content_store.read_config(image, tmp_path) == config_of([LOWER, UPPER], MADE_BY)


def test_a_configuration_that_is_missing_is_not_read(tmp_path: Path) -> None:
    image = add_image(tmp_path, [LOWER])
    blob_path(tmp_path, add(tmp_path, config_of([LOWER], MADE_BY))).unlink()

    assert content_store.read_config(image, tmp_path) is None


def test_an_image_of_another_store_is_not_read(tmp_path: Path) -> None:
    assert content_store.read("sha256:" + "0" * 64, tmp_path, skip, ignore) is None


def test_an_index_of_images_is_not_read(tmp_path: Path) -> None:
    index = add(tmp_path, json.dumps({"manifests": []}).encode())

    assert content_store.read(index, tmp_path, skip, ignore) is None


def test_a_damaged_manifest_is_not_read(tmp_path: Path) -> None:
    image = add_image(tmp_path, [LOWER])
    blob_path(tmp_path, image).write_bytes(b"")

    assert content_store.read(image, tmp_path, skip, ignore) is None


def test_a_layer_that_is_not_an_archive_is_reported(tmp_path: Path) -> None:
    image = add_image(tmp_path, [b"nothing"], MADE_BY[:1])

    error = raised(EngineError, content_store.read, image, tmp_path, skip, ignore)

    digest = f"sha256:{hashlib.sha256(b'nothing').hexdigest()}"
    assert error_text(error) == (
        "error: the engine exported an unreadable image\n"
        f"  reason  blob {digest} is not a layer\n"
        "\n"
        "hint: run `docker save IMAGE | tar t` to see the engine's archive\n"
    )
