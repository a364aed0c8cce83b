"""Images packed for registries: the same bytes, however an engine stores them."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import Diagnostic, EngineError, PublishError
from bakehouse.registry.layer_cache import CompressedLayer, LayerCache
from bakehouse.registry.manifest import DOCKER_MANIFEST, FORMS, GZIP_LAYER, content_id, digest_of, unfit
from bakehouse.util.file_lock import exclusive
from tests.support.errors import raised
from tests.support.fake_engine import DIGEST, FakeEngine, Run, image
from tests.support.layer_archives import Form, Member, config_of, layer, saved

LAYERS = (layer(Member("etc/base", b"base")), layer(Member("opt/a", b"1" * 5000)))
CONFIG = config_of(LAYERS)
BUILT = BuiltImage(image(), digest_of(CONFIG), DIGEST, 1, content_id(CONFIG))


class Engine(FakeEngine):
    """Engine that has the image."""

    def __init__(self, form: Form = "none") -> None:
        super().__init__(lambda spec: Run())
        self.archives[DIGEST] = saved(LAYERS, form=form)


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Path]:
    """A new directory for each engine."""
    return (tmp_path / str(number) for number in range(9))


def messages() -> list[str]:
    return []


@pytest.mark.parametrize("name", ["docker", "oci", "oci-zstd"])
def test_the_digest_does_not_depend_on_the_form_in_the_store(directories: Iterator[Path], name: str) -> None:
    forms: list[Form] = ["none", "gzip", "zstd"]
    packed = [
        Packer(Engine(form), next(directories)).pack(BUILT, FORMS[name], messages().append) for form in forms
    ]
    assert len({image.manifest.content for image in packed}) == 1
    assert unfit(packed[0].manifest, FORMS[name]) == ()


def test_the_manifest_names_configuration_and_layers(tmp_path: Path) -> None:
    packed = Packer(Engine(), tmp_path).pack(BUILT, FORMS["docker"], messages().append)
    document = json.loads(packed.manifest.content)
    assert (document["schemaVersion"], document["mediaType"]) == (2, DOCKER_MANIFEST)
    assert document["config"]["digest"] == BUILT.digest
    assert [entry["mediaType"] for entry in document["layers"]] == [GZIP_LAYER] * 2
    assert [entry["digest"] for entry in document["layers"]] == [
        digest_of(packed_layer.path.read_bytes()) for packed_layer in packed.layers
    ]
    assert [packed_layer.diff_id for packed_layer in packed.layers] == [digest_of(tar) for tar in LAYERS]


def test_what_was_packed_once_needs_no_engine(tmp_path: Path) -> None:
    first = Packer(Engine(), tmp_path).pack(BUILT, FORMS["docker"], messages().append)
    absent = Engine()
    absent.archives.clear()
    lines = messages()
    assert Packer(absent, tmp_path).pack(BUILT, FORMS["docker"], lines.append) == first
    assert lines == []


@pytest.mark.parametrize("content", [b"", b"{", b"{}"])
def test_a_damaged_configuration_is_read_again(tmp_path: Path, content: bytes) -> None:
    first = Packer(Engine(), tmp_path).pack(BUILT, FORMS["docker"], messages().append)
    (stored,) = (tmp_path / "configurations").iterdir()
    stored.write_bytes(content)
    assert Packer(Engine(), tmp_path).pack(BUILT, FORMS["docker"], messages().append) == first
    assert stored.read_bytes() == CONFIG


def test_a_layer_of_images_that_are_pushed_at_once_is_compressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = threading.Barrier(2)
    added: list[str] = []
    add = LayerCache.add

    def slow_add(self: LayerCache, content: Iterable[bytes]) -> CompressedLayer:
        time.sleep(0.05)
        layer = add(self, content)
        added.append(layer.diff_id)
        return layer

    def at_once(path: Path, waiting: Callable[[], None], until: float) -> AbstractContextManager[None]:
        started.wait(5)
        return exclusive(path, waiting, until)

    monkeypatch.setattr(LayerCache, "add", slow_add)
    monkeypatch.setattr("bakehouse.builder.pack.exclusive", at_once)
    lines = messages()

    def run() -> None:
        Packer(Engine(), tmp_path).pack(BUILT, FORMS["docker"], lines.append)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == sorted(digest_of(layer) for layer in LAYERS)
    assert lines.count("waiting for the compression of another image") == 1


def test_an_image_that_is_gone_is_reported(tmp_path: Path) -> None:
    class Empty(Engine):
        def image(self, reference: str) -> StoredImage | None:
            return None

    error = raised(PublishError, Packer(Empty(), tmp_path).pack, BUILT, FORMS["docker"], messages().append)
    assert error.diagnostics == (
        Diagnostic(
            f"the engine no longer has the tested image {BUILT.digest[:19]}",
            hint="run `bake release mpi-cpu`",
        ),
    )


def test_another_image_under_the_same_digest_is_reported(tmp_path: Path) -> None:
    engine = Engine()
    engine.archives[DIGEST] = saved(LAYERS[:1])
    error = raised(EngineError, Packer(engine, tmp_path).pack, BUILT, FORMS["docker"], messages().append)
    assert error.diagnostics == (
        Diagnostic(
            "the engine exported a different image than mpi-cpu",
            facts=(("built", BUILT.digest), ("exported", digest_of(config_of(LAYERS[:1])))),
            hint="run `bake build mpi-cpu`",
        ),
    )
