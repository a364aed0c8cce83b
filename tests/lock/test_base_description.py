"""The component of a base that the catalogue lacks."""

import contextlib
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.errors import BuildError
from bakehouse.lock import base_description
from bakehouse.plan.workspace import open_workspace
from tests.support.data import text_of

OUTPUT = text_of(__file__, "output")
REFERENCE = "registry.example/team/pytorch_gpu:2.5.1-cu124"


def test_the_versions_of_an_image() -> None:
    assert base_description.read_provides(OUTPUT) == {
        "ubuntu": "22.04",
        "glibc": "2.35",
        "cuda": "12.4.1",
        "nccl": "2.21.5",
        "nvcc": "12.4",
        "efa": "1.34.0",
        "python": "3.11",
        "pytorch": "2.5.1",
        "sagemaker-training": "4.8.1",
    }


def test_the_component_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_description, "build_settings", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(base_description, "run_step", lambda *_: {"provides": OUTPUT})
    text, line = base_description.describe(open_workspace(), REFERENCE, print, lambda _: None)
    name = base_description.component_name(REFERENCE)
    directory = tmp_path / "components" / name
    directory.mkdir(parents=True)
    (directory / "component.yaml").write_text(text)

    component = load_catalog([tmp_path]).components[name]

    assert name == "own-pytorch-gpu"
    assert len(text.splitlines()) <= 10
    assert component.is_base
    assert component.releases[0].version == "2.5.1"
    assert component.specs[0].provides == base_description.read_provides(OUTPUT)
    assert component.specs[0].gpu
    assert line.startswith(f"{REFERENCE} contains ubuntu 22.04, glibc 2.35, cuda 12.4.1")


def test_an_image_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> dict[str, str]:
        raise BuildError("cannot pull base `x`")

    monkeypatch.setattr(base_description, "build_settings", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(base_description, "run_step", fail)
    text, line = base_description.describe(open_workspace(), "x", print, lambda _: None)

    assert line == "the content of x is not known: cannot pull base `x`; fill in `provides`"
    assert "    # Fill in the versions of the image, and remove names that it does not contain.\n" in text
    assert '  - version: "1"\n' in text


def test_an_image_that_states_no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_description, "build_settings", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(base_description, "run_step", lambda *_: {})

    _, line = base_description.describe(open_workspace(), "x:1", print, lambda _: None)

    assert line == "x:1 states no versions; fill in `provides`"
