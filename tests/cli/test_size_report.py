"""Queries of `bake sizes` to the engine."""

from dataclasses import replace

import pytest

from bakehouse.analysis.sizes import PartSize
from bakehouse.cli.size_report import _new_layers
from bakehouse.engine.protocol import StoredImage
from tests.analysis.test_fleet_sizes import RECORD, SMALL
from tests.support.fake_engine import FakeEngine, Run


class Engine(FakeEngine):
    """Holds images of these layers by their digests."""

    def __init__(self, **layers: tuple[str, ...]) -> None:
        super().__init__(lambda spec: Run())
        self.layers = {"now": layers.get("now"), RECORD.digest: layers.get("released")}

    def image(self, reference: str) -> StoredImage | None:
        layer = self.layers[reference]
        return None if layer is None else StoredImage(reference, 0, layers=layer)


def test_layers_that_a_release_has_not_are_those_of_their_parts() -> None:
    upper = SMALL.layers[1]
    engine = Engine(now=("sha256:a", "sha256:b"), released=("sha256:a", "sha256:c"))
    assert _new_layers(engine, replace(SMALL, digest="now"), RECORD) == (
        PartSize(upper.owner, 1, upper.stored, upper.unpacked),
    )
    same = Engine(now=("sha256:a", "sha256:b"), released=("sha256:b", "sha256:a"))
    assert _new_layers(same, replace(SMALL, digest="now"), RECORD) == ()


@pytest.mark.parametrize(
    "layers",
    [{"now": ("sha256:a", "sha256:b")}, {"released": ("sha256:a",)}, {"now": (), "released": ("sha256:a",)}],
)
def test_images_missing_from_the_engine_are_not_reported(layers: dict[str, tuple[str, ...]]) -> None:
    assert _new_layers(Engine(**layers), replace(SMALL, digest="now"), RECORD) is None
