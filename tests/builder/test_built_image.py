"""Images in the engine's store, and the digests of their configurations."""

from pathlib import Path

from bakehouse.builder.built_image import BuiltImage, identity_of
from bakehouse.engine.protocol import StoredImage
from bakehouse.registry.manifest import content_id, digest_of
from tests.support.fake_engine import DIGEST, FakeEngine, Run, image
from tests.support.layer_archives import Member, config_of, layer, saved

LAYERS = (layer(Member("etc/base", b"base")),)
CONFIG = config_of(LAYERS)


def engine() -> FakeEngine:
    engine = FakeEngine(lambda spec: Run())
    engine.archives[DIGEST] = saved(LAYERS)
    return engine


def test_an_image_of_the_engine_has_the_digest_of_its_configuration(tmp_path: Path) -> None:
    built = BuiltImage.stored_as(StoredImage(DIGEST, 42), image(), engine(), tmp_path)

    assert built == BuiltImage(image(), digest_of(CONFIG), DIGEST, 42, content_id(CONFIG))


def test_the_configuration_of_a_stored_image_is_read_once(tmp_path: Path) -> None:
    store = engine()
    identity = digest_of(CONFIG), content_id(CONFIG)
    assert identity_of(DIGEST, store, tmp_path) == identity
    store.archives.clear()
    assert identity_of(DIGEST, store, tmp_path) == identity


def test_a_damaged_configuration_is_read_again(tmp_path: Path) -> None:
    identity_of(DIGEST, engine(), tmp_path)
    [path] = (tmp_path / "configurations").iterdir()
    path.write_text("{")

    assert identity_of(DIGEST, engine(), tmp_path) == (digest_of(CONFIG), content_id(CONFIG))
