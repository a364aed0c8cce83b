"""`build` makes a base image that is named, so that plain `docker build` finds it."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.errors import UsageError
from bakehouse.pipeline import build
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.workspace import Selection, open_workspace, select
from tests.support.errors import raised


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

    named = build.named_bases(workspace, ["pytorch-cpu", "debian-12", "mpi-*"])
    build.make_bases(workspace.project, named, print)

    assert named == {"debian-12": image.base}
    assert bases == [image.base]
    assert image.base_part.label == "debian-12"


def test_a_misspelt_base_is_an_error_that_names_the_known_one() -> None:
    workspace = open_workspace(HOME)
    [diagnostic] = raised(UsageError, build.named_bases, workspace, ["debain-12"]).diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "unknown image or base `debain-12`",
        "did you mean `debian-12`?",
    )
    assert build.named_bases(workspace, ["pytroch-cpu", "pytorch"]) == {}


def test_a_base_and_an_image_are_built_by_one_command(
    bases: list[BootstrappedBase], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    selected: list[tuple[str, ...]] = []

    def built(selection: Selection, *_: object, **__: object) -> tuple[BuiltImage, ...]:
        selected.append(tuple(recipe.name for recipe in selection.recipes))
        return ()

    monkeypatch.setattr(build, "build", built)

    assert main.run(["build", "debian-12"]) == 0
    [base] = bases
    assert selected == []
    assert capsys.readouterr().out == f"debian-12  {base.reference}\n"

    assert main.run(["build", "debian-12", "mpi-cpu", "--json"]) == 0
    assert selected == [("mpi-cpu",)]
    assert json.loads(capsys.readouterr().out) == [{"base": "debian-12", "reference": base.reference}]


def test_a_mistake_in_an_image_is_found_before_the_base_is_made(
    bases: list[BootstrappedBase], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["build", "debian-12", "mpi-cup"]) == 64
    assert capsys.readouterr().err == "error: unknown image `mpi-cup`\n\nhint: did you mean `mpi-cpu`?\n"
    assert bases == []
