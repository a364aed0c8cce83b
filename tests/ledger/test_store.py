"""Selection of images by the ledger of a project."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.ledger import store
from bakehouse.ledger.image_uris import ImageQuery, find
from bakehouse.ledger.releases import append
from bakehouse.ledger.store import FileLedger, open_ledger, select_images, unreleased_images
from bakehouse.plan.model import Image, ImageKey
from bakehouse.util import file_lock
from tests.support.built_images import IMAGE
from tests.support.errors import raised
from tests.support.release_records import a_record


def test_images_are_chosen_by_names_and_globs(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, ())
    for name in ("mpi-cpu", "pytorch-cpu", "pytorch-cu130"):
        append(project.images / name / "releases.json", replace(a_record(), image=name), tmp_path)
    ledger = open_ledger(project)
    assert select_images(ledger, []) == ("mpi-cpu", "pytorch-cpu", "pytorch-cu130")
    assert select_images(ledger, ["pytorch-*", "pytorch-cpu"]) == ("pytorch-cpu", "pytorch-cu130")
    assert raised(UsageError, select_images, ledger, ["mpi-cpu", "pytorch-cup", "x*"]).diagnostics == (
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


def renamed(tmp_path: Path) -> FileLedger:
    """A ledger with a release of `old` and one of `new`, which has its records now."""
    ledger = FileLedger(ProjectSettings(tmp_path, ()))
    for name in ("old", "new"):
        ledger.add(replace(a_record(), image=name))
    assert ledger.follow_rename("old", "new")
    return ledger


def test_a_renamed_image_has_the_records_of_its_former_name(tmp_path: Path) -> None:
    ledger = renamed(tmp_path)
    assert [record.image for record in ledger.records("new")] == ["old", "new"]
    assert ledger.images() == ("new",)
    assert not (tmp_path / "images/old").exists()
    assert not ledger.follow_rename("old", "new")


def test_new_records_of_a_former_name_follow_it(tmp_path: Path) -> None:
    ledger = renamed(tmp_path)
    ledger.add(replace(a_record(), image="old", date="2027-01-01", bytes=1))
    assert [record.bytes for record in ledger.records("new")][-1] == 1
    assert ledger.images() == ("new",)


def test_new_records_of_a_former_name_take_the_lock_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = renamed(tmp_path)
    locked = recorded_locks(monkeypatch)
    ledger.add(replace(a_record(), image="old", date="2027-01-01", bytes=1))
    ledger.add(replace(a_record(), image="new", date="2027-01-01", bytes=2))
    assert locked == ["releases-new.lock", "releases-new.lock"]


def test_a_rename_takes_the_locks_of_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = recorded_locks(monkeypatch)
    renamed(tmp_path)
    assert locked[2:] == ["releases-new.lock", "releases-old.lock"]


def recorded_locks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names of locks."""
    locked: list[str] = []
    exclusive = file_lock.exclusive

    def record(path: Path) -> contextlib.AbstractContextManager[None]:
        locked.append(path.name)
        return exclusive(path)

    monkeypatch.setattr(file_lock, "exclusive", record)
    monkeypatch.setattr(store, "exclusive", record)
    return locked


def test_a_second_rename_keeps_all_records(tmp_path: Path) -> None:
    ledger = renamed(tmp_path)
    ledger.follow_rename("new", "newest")
    assert len(ledger.records("newest")) == 2
    assert ledger.former_names() == {"old": "newest", "new": "newest"}


def test_a_former_name_is_answered_with_the_present_one(tmp_path: Path) -> None:
    ledger = renamed(tmp_path)
    with pytest.raises(UsageError) as caught:
        select_images(ledger, ["old"])
    message = "no release and no candidate of `old` was published"
    assert caught.value.diagnostics == (Diagnostic(message, hint="it is called `new` now"),)
    error = raised(UsageError, find, tmp_path / "images", "old", ImageQuery())
    expected = Diagnostic("`old` was renamed", hint="use `new`, which has its releases")
    assert error.diagnostics == (expected,)
