"""Images in the engine's store, and the digests of their configurations."""

from pathlib import Path

from bakehouse.builder.built_image import BuiltImage, configuration_digest
from bakehouse.engine.protocol import StoredImage
from bakehouse.registry.manifest import digest_of
from tests.support.fake_engine import DIGEST, FakeEngine, Run, image
from tests.support.layer_archives import Member, config_of, layer, saved

LAYERS = (layer(Member("etc/base", b"base")),)


def engine() -> FakeEngine:
    engine = FakeEngine(lambda spec: Run())
    engine.archives[DIGEST] = saved(LAYERS)
    return engine


def test_an_image_of_the_engine_has_the_digest_of_its_configuration(tmp_path: Path) -> None:
    built = BuiltImage.stored_as(StoredImage(DIGEST, 42), image(), engine(), tmp_path)

    assert built == BuiltImage(image(), digest_of(config_of(LAYERS)), DIGEST, 42)


def test_the_configuration_of_a_stored_image_is_read_once(tmp_path: Path) -> None:
    store = engine()
    digest = digest_of(config_of(LAYERS))
    assert configuration_digest(DIGEST, store, tmp_path) == digest
    store.archives.clear()
    assert configuration_digest(DIGEST, store, tmp_path) == digest
