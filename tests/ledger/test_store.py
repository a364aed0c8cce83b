"""Selection of images by the ledger of a project."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.ledger.releases import (
    append,
)
from bakehouse.ledger.store import open_ledger, select_images, unreleased_images
from bakehouse.plan.model import Image, ImageKey
from tests.support.built_images import IMAGE
from tests.support.release_records import a_record


def test_images_are_chosen_by_names_and_globs(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    for name in ("mpi-cpu", "pytorch-cpu", "pytorch-cu130"):
        append(project.images / name / "releases.json", replace(a_record(), image=name), tmp_path)
    ledger = open_ledger(project)
    assert select_images(ledger, []) == ("mpi-cpu", "pytorch-cpu", "pytorch-cu130")
    assert select_images(ledger, ["pytorch-*", "pytorch-cpu"]) == ("pytorch-cpu", "pytorch-cu130")
    with pytest.raises(UsageError) as caught:
        select_images(ledger, ["mpi-cpu", "pytorch-cup", "x*"])
    assert caught.value.diagnostics == (
        Diagnostic(
            "no release and no candidate of `pytorch-cup` was published", hint="did you mean `pytorch-cpu`?"
        ),
        Diagnostic(
            "no release and no candidate of `x*` was published",
            hint="use one of `mpi-cpu`, `pytorch-cpu`, `pytorch-cu130`",
        ),
    )


def test_images_without_a_release_of_their_key_are_unreleased(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    ledger = open_ledger(project)
    candidate = replace(a_record(), candidate=True)

    assert unreleased_images(project, ledger, [IMAGE]) == (IMAGE,)
    ledger.add(candidate)
    assert unreleased_images(project, ledger, [IMAGE]) == (IMAGE,)
    assert unreleased_images(project, ledger, [IMAGE], candidates=True) == ()
    ledger.add(replace(candidate, candidate=False))
    assert unreleased_images(project, ledger, [IMAGE]) == ()
    other = replace(IMAGE, key=ImageKey("0" * 64))
    assert unreleased_images(project, ledger, [other], candidates=True) == (other,)


@pytest.mark.parametrize(
    ("registry", "unreleased"), [("local", ()), ("registry.example/team", (IMAGE,)), ("ecr", (IMAGE,))]
)
def test_releases_in_another_registry_do_not_count(
    tmp_path: Path, registry: str, unreleased: tuple[Image, ...]
) -> None:
    project = ProjectSettings(tmp_path, (), registry=registry)
    ledger = open_ledger(project)
    ledger.add(a_record())

    assert unreleased_images(project, ledger, [IMAGE]) == unreleased
