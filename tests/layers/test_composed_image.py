"""New images from the documents of a stored one, and the members of stored layers."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from bakehouse.engine.content_store import StoredFiles
from bakehouse.layers import wheel_layout
from bakehouse.layers.composed_image import Layer, compose, layers_of
from bakehouse.layers.stored_layer import read_layer
from bakehouse.registry.manifest import digest_of
from bakehouse.util.oci import Digest

DIFF = "application/vnd.docker.image.rootfs.diff.tar"
WHEELS = "COPY /out/files/a/ / # buildkit"


def digest(number: int) -> Digest:
    return Digest(f"sha256:{number:064x}")


def stored(steps: dict[str, int], indent: int | None = 2, label: str = "") -> StoredFiles:
    """An image whose steps give layers with these numbers; 0 stands for none."""
    history: list[dict[str, Any]] = [
        {"created": "2026", "created_by": step, **({} if number else {"empty_layer": True})}
        for step, number in steps.items()
    ]
    numbers = [number for number in steps.values() if number]
    config = json.dumps(
        {
            "config": {"Labels": {"a": label}},
            "history": history,
            "rootfs": {"diff_ids": [digest(number) for number in numbers], "type": "layers"},
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    content = config.replace("&", "\\u0026").encode()
    manifest = {
        "schemaVersion": 2,
        "config": {"digest": digest_of(content), "size": len(content)},
        "layers": [{"mediaType": DIFF, "digest": digest(number), "size": number} for number in numbers],
    }
    return StoredFiles(json.dumps(manifest, indent=indent).encode(), content, Path("/missing"))


def test_layers_of_wheels_are_replaced_in_their_place() -> None:
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="<é> & ü")
    assert layers_of(before) is None
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="é & ü")
    assert layers_of(before) == (
        Layer(digest(1), 1),
        Layer(digest(2), 2),
        Layer(digest(3), 3, "files/a"),
        Layer(digest(4), 4),
    )

    more = [Layer(digest(7), 7, "files/a"), Layer(digest(8), 8, "byte-code/a")]
    after = compose(before, [Layer(digest(1), 1), Layer(digest(2), 2), *more, Layer(digest(5), 5)])

    expected = stored(
        {
            **{"base": 1, "COPY x": 2, WHEELS: 7, "COPY /out/byte-code/a/ / # buildkit": 8},
            **{"ENV A": 0, "COPY y": 5},
        },
        label="é & ü",
    )
    assert (after.config, after.manifest) == (expected.config, expected.manifest)


def test_documents_in_another_form_are_left_to_buildkit() -> None:
    assert layers_of(stored({"base": 1, WHEELS: 2}, indent=None)) is None
    files = stored({"base": 1, WHEELS: 2})
    compressed = json.loads(files.manifest)
    compressed["layers"][1]["digest"] = digest(9)
    other = StoredFiles(json.dumps(compressed, indent=2).encode(), files.config, files.data_root)
    assert layers_of(other) is None


def test_members_of_a_written_layer_are_found(tmp_path: Path) -> None:
    choose = random.Random(5)
    files: dict[str, tuple[int, bytes]] = {}
    for number in range(200):
        names = [choose.choice("aé") * choose.randint(1, 110) for _ in range(choose.randint(1, 4))]
        content = choose.randbytes(choose.choice([0, 1, 511, 512, 513, 5000]))
        files[f"top{number}/{'/'.join(names)}/file"] = (choose.choice([0o644, 0o755]), content)
    archive = io.BytesIO()
    wheel_layout.write_files(archive, files)
    path = tmp_path / "layer.tar"
    path.write_bytes(archive.getvalue())

    layer = read_layer(path)

    assert {name: member.mode for name, member in layer.members.items()} == {
        name: mode for name, (mode, _) in files.items()
    }
    assert layer.read(*files) == {name: content for name, (_, content) in files.items()}
    assert layer.read("missing") == {}
    assert layer.has_any(["missing", next(iter(files))])
    assert not layer.has_any(["missing", "top1"])


def test_a_file_that_is_no_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(b"x" * 1024)
    with pytest.raises(ValueError, match=r"layer\.tar is not an archive"):
        read_layer(tmp_path / "layer.tar")
