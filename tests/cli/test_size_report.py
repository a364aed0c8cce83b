"""Queries of `bake sizes` to the engine."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.analysis.sizes import PartSize
from bakehouse.builder.pack import Packer
from bakehouse.cli.size_report import _new_layers
from bakehouse.registry.manifest import digest_of
from bakehouse.util.files import write_whole
from tests.support.fake_engine import FakeEngine, Run
from tests.support.fleet_sizes import RECORD, SMALL


def config(layers: str) -> bytes:
    """Configuration of an image with these layers, one letter each."""
    return json.dumps({"rootfs": {"diff_ids": [f"sha256:{layer}" for layer in layers]}}).encode()


def new_layers(state: Path, now: str, released: str, *, packed: Sequence[str]) -> tuple[PartSize, ...] | None:
    """The layers that a release lacks; the images with `packed` layers were packed on this machine."""
    for layers in packed:
        digest = digest_of(config(layers)).removeprefix("sha256:")
        write_whole(state / "configurations" / f"{digest}.json", config(layers))
    packer = Packer(FakeEngine(lambda spec: Run()), state)
    size = replace(SMALL, config=digest_of(config(now)))
    return _new_layers(packer, size, replace(RECORD, config=digest_of(config(released))))


def test_layers_that_a_release_has_not_are_those_of_their_parts(tmp_path: Path) -> None:
    upper = SMALL.layers[1]
    part = PartSize(upper.owner, 1, upper.stored, upper.unpacked)
    assert new_layers(tmp_path, "ab", "ac", packed=["ab", "ac"]) == (part,)
    assert new_layers(tmp_path, "ab", "ba", packed=["ab", "ba"]) == ()


@pytest.mark.parametrize("packed", ["ab", "ac"])
def test_a_release_of_another_machine_is_not_compared(tmp_path: Path, packed: str) -> None:
    assert new_layers(tmp_path, "ab", "ac", packed=[packed]) is None
