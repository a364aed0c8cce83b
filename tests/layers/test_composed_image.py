"""New images from the documents of a stored one, and the members of stored layers."""

import io
import json
import random
from pathlib import Path

import pytest

from bakehouse.engine.content_store import StoredFiles
from bakehouse.layers import wheel_layout
from bakehouse.layers.composed_image import Layer, compose, layers_of
from bakehouse.layers.stored_layer import read_layer
from tests.support.stored_images import digest, stored

WHEELS = "COPY /out/files/requirements~a/ / # buildkit"


def test_layers_of_wheels_are_replaced_in_their_place() -> None:
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="<é> & ü")
    assert layers_of(before) is None
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="é & ü")
    assert layers_of(before) == (
        Layer(digest(1), 1),
        Layer(digest(2), 2),
        Layer(digest(3), 3, "files/requirements~a"),
        Layer(digest(4), 4),
    )

    more = [Layer(digest(7), 7, "files/requirements~a"), Layer(digest(8), 8, "byte-code/requirements~a")]
    after = compose(before, [Layer(digest(1), 1), Layer(digest(2), 2), *more, Layer(digest(5), 5)])

    expected = stored(
        {
            **{"base": 1, "COPY x": 2, WHEELS: 7, "COPY /out/byte-code/requirements~a/ / # buildkit": 8},
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
