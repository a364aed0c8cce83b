"""Locks of Debian packages in a project."""

import pytest

from bakehouse.lock import apt, locking
from bakehouse.lock.apt import Resolved
from tests.conftest import Tree


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
    locking.run(project.root, [pattern], print, lambda event: None, upgrade=True)

    assert resolved == ["bookworm"]


def test_an_upgrade_without_changes_writes_no_lock(project: Tree, resolved: list[str]) -> None:
    locking.run(project.root, ["sound"], print, lambda event: None, upgrade=True)

    assert not (project.root / "mine/apt").exists()
