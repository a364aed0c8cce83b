"""Queries of `bake sizes` to the engine."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.analysis.sizes import PartSize
from bakehouse.build.pack import Packer
from bakehouse.cli.size_report import _new_layers
from bakehouse.util.files import write_whole
from tests.analysis.test_fleet_sizes import RECORD, SMALL
from tests.support.fake_engine import FakeEngine, Run


def packer(state: Path, **layers: Sequence[str]) -> Packer:
    """Packed images with these layers before, by their configurations."""
    for name, diff_ids in layers.items():
        config = json.dumps({"rootfs": {"diff_ids": diff_ids}})
        write_whole(state / "configurations" / f"{name}.json", config)
    return Packer(FakeEngine(lambda spec: Run()), state)


NOW = replace(SMALL, config="sha256:now")
RELEASED = replace(RECORD, config="sha256:released")


def test_layers_that_a_release_has_not_are_those_of_their_parts(tmp_path: Path) -> None:
    upper = SMALL.layers[1]
    other = packer(tmp_path / "other", now=["sha256:a", "sha256:b"], released=["sha256:a", "sha256:c"])
    assert _new_layers(other, NOW, RELEASED) == (PartSize(upper.owner, 1, upper.stored, upper.unpacked),)
    same = packer(tmp_path / "same", now=["sha256:a", "sha256:b"], released=["sha256:b", "sha256:a"])
    assert _new_layers(same, NOW, RELEASED) == ()


@pytest.mark.parametrize("name", ["now", "released"])
def test_a_release_of_another_machine_is_not_compared(tmp_path: Path, name: str) -> None:
    assert _new_layers(packer(tmp_path, **{name: ["sha256:a", "sha256:b"]}), NOW, RELEASED) is None
