"""The task that makes a base image, so that plain `docker build` finds it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.errors import UsageError
from bakehouse.pipeline import build
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.workspace import open_workspace, select


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> list[BootstrappedBase]:
    """The bases that the engine was asked to make."""
    bases: list[BootstrappedBase] = []

    @contextlib.contextmanager
    def engine(*_: object, **__: object) -> Iterator[None]:
        yield

    def ensure_base(base: BootstrappedBase, **_: Any) -> None:
        bases.append(base)

    monkeypatch.setattr(build, "open_engine", engine)
    monkeypatch.setattr("bakehouse.builder.base_image.ensure_base", ensure_base)
    return bases


def test_the_base_is_the_one_that_images_start_from(bases: list[BootstrappedBase]) -> None:
    workspace = open_workspace(HOME)
    [image] = select(workspace, ["pytorch-cpu"]).plan.images

    assert build.make_base(workspace, image.base_part.label, print) == image.base
    assert bases == [image.base]
    assert image.base_part.label == "debian-12"


def test_an_unknown_base_is_an_error_that_names_the_known_ones(bases: list[BootstrappedBase]) -> None:
    workspace = open_workspace(HOME)
    for name, hint in (
        ("debain-12", "did you mean `debian-12`?"),
        ("x", "use one of `debian-12`, `debian-12-arm64`, `debian-13`"),
    ):
        with pytest.raises(UsageError) as caught:
            build.make_base(workspace, name, print)
        [diagnostic] = caught.value.diagnostics
        assert (diagnostic.message, diagnostic.hint) == (f"unknown base `{name}`", hint)
    assert bases == []
