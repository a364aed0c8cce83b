"""Locks of Debian packages in a project."""

import pytest

from bakehouse.catalog.apt_lock import stanzas
from bakehouse.catalog.project import HOME
from bakehouse.lock import apt, locking
from bakehouse.lock.apt import AptChange, Resolved
from tests.support.trees import Tree


@pytest.fixture
def project(empty: Tree) -> Tree:
    empty.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    empty.write("mine/images/sound.yaml", 'summary: Sound\nbase: {debian: "12"}\n')
    return empty


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The suites that were resolved, in which nothing has changed."""
    suites: list[str] = []

    def resolve(suite: str, *_: object, **__: object) -> Resolved:
        suites.append(suite)
        return Resolved({})

    monkeypatch.setattr(apt, "resolve", resolve)
    return suites


@pytest.mark.parametrize("pattern", ["sound", "base-files"])
def test_an_upgrade_leaves_out_suites_that_the_project_does_not_use(
    project: Tree, resolved: list[str], pattern: str
) -> None:
    locking.run(project.root, [pattern], print, scope=locking.LockScope(upgrade=True))

    assert resolved == ["bookworm"]


def test_an_upgrade_without_changes_writes_no_lock(project: Tree, resolved: list[str]) -> None:
    locking.run(project.root, ["sound"], print, scope=locking.LockScope(upgrade=True))

    assert not (project.root / "mine/apt").exists()


def test_an_upgrade_names_the_images_of_each_package(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("mine/images/silent.yaml", 'summary: Silent\nbase: {debian: "12"}\n')
    text = (HOME / "recipes/apt/bookworm.packages").read_text()
    locked = next(fields for _, fields in stanzas(text) if fields["Package"] == "base-files")
    newer = {**locked, "Version": "99", "SHA256": "9" * 64}
    changes = (AptChange("base-files", "12", "99"), AptChange("gone", "1", ""))

    monkeypatch.setattr(apt, "resolve", lambda *_, **__: Resolved({"base-files": newer}, changes))
    lines = locking.run(project.root, ["sound"], print, scope=locking.LockScope(upgrade=True))

    assert "bookworm: base-files 12 -> 99 in 2 images" in lines


def test_what_is_reported_as_changed_is_written(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that only Bakehouse locks and the project does not need stays locked there."""
    lock = project.root / "mine/apt/bookworm.packages"
    text = (HOME / "recipes/apt/bookworm.packages").read_text()
    locked = next(fields for _, fields in stanzas(text) if fields["Package"] == "base-files")
    newer = {**locked, "Version": "99", "SHA256": "9" * 64}

    def upgraded(packages: dict[str, dict[str, str]], *changes: AptChange) -> list[str]:
        monkeypatch.setattr(apt, "resolve", lambda *_, **__: Resolved(packages, changes))
        lines = locking.run(project.root, ["base-files"], print, scope=locking.LockScope(upgrade=True))
        return [line for line in lines if line.startswith("bookworm")]

    assert upgraded({}, AptChange("openssl", "3.0", "")) == ["bookworm.packages: 0 packages, 0 changed"]
    assert not lock.exists()
    change = AptChange("base-files", "12", "99")
    assert upgraded({"base-files": newer}, change)[-1] == "bookworm.packages: 1 packages, 1 changed"
    assert "Version: 99" in lock.read_text()
    assert upgraded({"base-files": newer}, change) == ["bookworm.packages: 1 packages, 0 changed"]
