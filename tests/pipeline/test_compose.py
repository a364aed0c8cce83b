"""Which layers of an image are kept, written here, or left to a build step."""

import marshal
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import source_hash
from pathlib import Path
from unittest.mock import Mock

import pytest

from bakehouse.layers import wheel_layout
from bakehouse.layers.composed_image import Layer
from bakehouse.pipeline.compose import LayerWriter, NeedsBuildError
from bakehouse.plan.image_layer import ImageLayer
from bakehouse.plan.model import Image
from tests.support.stored_images import digest
from tests.support.trees import IMAGE, Tree
from tests.support.wheels import sha256, wheel

SOURCES = {"same.py": "a = 1\n", "other.py": "b = 2\n"}


@pytest.fixture
def image(tree: Tree, tmp_path: Path) -> Image:
    """An image with three components, two layers of a wheel and code, all of whose layers are pinned."""
    path = wheel(tmp_path / "wheels", "mine", "1", files=SOURCES)
    tree.write("images/own.lock", f"mine==1 --hash=sha256:{sha256(path)}  # {path.name} 5\n")
    tree.write("src/train.py", "print(1)\n")
    tree.image(f"{IMAGE}requirements: own.lock\ncode: {{directory: ../src, entry_point: train.py}}\n")
    planned = tree.planned_image()
    return replace(planned, layer_keys=tuple(replace(key, is_pinned=True) for key in planned.layer_keys))


@pytest.fixture
def writer(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LayerWriter:
    """Compiles to text, and has the wheel of the image without a download."""
    stage = image.own_packages
    assert stage
    wheels = wheel_layout.open_wheels(stage, {stage.wheels[0]: tmp_path / "wheels/mine-1-py3-none-any.whl"})
    monkeypatch.setattr(LayerWriter, "_open_wheels", lambda *_: wheels)

    def compiled(contents: Mapping[str, bytes]) -> dict[str, bytes]:
        return {wheel_layout.code_path(path, stage.python): b"new" for path in contents}

    return LayerWriter(Mock(), image, tmp_path, lambda _: None, compiled, Mock(), Mock())


def old(image: Image) -> list[Layer]:
    """The layers of the last build: a base, and those of the image."""
    stage = image.own_packages
    paths = [path.rstrip("/") for path in stage.copied] if stage else []
    return [Layer(digest(n), n, path) for n, path in enumerate(["", "", "", "", *paths, ""], 1)]


def digests(layers: list[Layer]) -> list[str]:
    return [layer.digest for layer in layers]


def test_layers_that_were_made_from_the_same_are_kept(image: Image, writer: LayerWriter) -> None:
    layers = writer.layers(old(image), image.layer_names)
    # No key covers the code
    assert digests(layers)[:-1] == digests(old(image))[:-1]
    assert len(writer.new) == 1


def test_only_changed_wheels_and_code_are_written(image: Image, writer: LayerWriter) -> None:
    names = [*image.layer_names[:3], "other", "byte code", ""]
    layers = writer.layers(old(image), names)
    assert digests(layers)[:4] == digests(old(image))[:4]
    assert [*writer.new] == digests(layers)[4:]
    assert [layer.wheels for layer in layers] == [layer.wheels for layer in old(image)]


def test_other_steps_and_those_that_nothing_pins_need_a_build(image: Image, writer: LayerWriter) -> None:
    names, (first, *others) = image.layer_names, image.layer_keys
    unpinned = replace(image, layer_keys=(replace(first, is_pinned=False), *others))
    no_code = replace(image.content, code=())
    no_key = replace(image, layer_keys=(ImageLayer(""), *others), content=no_code)
    for changed, known in ((image, [names[0], "other", *names[2:]]), (unpinned, names), (no_key, names)):
        with pytest.raises(NeedsBuildError, match=r"^the layer of `(torch|python|run)` changed$"):
            replace(writer, image=changed).layers(old(image), known)


def test_byte_code_of_unchanged_sources_is_reused(image: Image, writer: LayerWriter, tmp_path: Path) -> None:
    site = f"{wheel_layout.PREFIX}/lib/python3.11/site-packages".lstrip("/")
    codes = {
        wheel_layout.code_path(f"{site}/{name}", "3.11"): b"head" * 2
        + source_hash(text.encode())
        + marshal.dumps(name)
        for name, text in (SOURCES | {"other.py": "changed\n"}).items()
    }
    with (tmp_path / "old.tar").open("wb") as file:
        wheel_layout.write_byte_code(file, codes, "requirements~small_1")
    names = [*image.layer_names[:4], "byte code", ""]

    with_old = replace(writer, stored=lambda _: tmp_path / "old.tar")
    written = with_old.new[with_old.layers(old(image), names)[-2].digest].read_bytes()

    assert (marshal.dumps("same.py") in written, marshal.dumps("other.py") in written) == (True, False)
    assert b"new" in written
