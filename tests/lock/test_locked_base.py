"""Bases whose apt locks packages: of the suite, of its older lock, or of another suite."""

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.errors import EngineError
from bakehouse.lock import locked_base
from bakehouse.plan.workspace import open_workspace
from tests.support.errors import raised
from tests.support.locked_debian import index
from tests.support.trees import COMPONENTS, Tree

SID = COMPONENTS["debian"].replace("bookworm", "sid")


@pytest.mark.parametrize(
    ("suite", "name"), [("bookworm", "debian:12-"), ("trixie", "debian:13-"), ("forky", "debian:12-")]
)
def test_apt_is_that_of_the_suite_or_of_another_one(suite: str, name: str) -> None:
    base = locked_base.base_with_apt(open_workspace(HOME), suite)
    assert base.reference.startswith(f"bakehouse/{name}")
    assert "apt" in {deb.name for deb in base.debs}


@pytest.fixture
def project(tree: Tree, own_images_only: None) -> Tree:
    """A Debian of its own, in place of that of Bakehouse."""
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.write("apt/sid.packages", index())
    tree.component("debian", SID)
    return tree


def test_a_base_that_is_locked_has_its_packages(project: Tree) -> None:
    base = locked_base.base_with_apt(open_workspace(project.root), "sid")
    assert base.packages
    assert {*base.packages} <= {deb.name for deb in base.debs}


def test_a_base_that_was_moved_is_the_old_one_without_its_own_packages(project: Tree) -> None:
    project.component("debian", SID.replace("packages: [", "packages: [not-locked-yet, "))
    base = locked_base.base_with_apt(open_workspace(project.root), "sid")
    assert base.packages == ()
    assert {deb.name for deb in base.debs} == {
        "apt", "base-files", "dpkg", "gpgv", "libc6", "libgcc-s1",
    }  # fmt: skip


def test_without_any_lock_it_says_what_to_restore(project: Tree) -> None:
    (project.root / "apt/sid.packages").unlink()
    error = raised(EngineError, locked_base.base_with_apt, open_workspace(project.root), "sid")
    [diagnostic] = error.diagnostics
    assert (diagnostic.message, diagnostic.hint) == (
        "no base of Debian is locked, whose apt could lock packages",
        "restore `apt/*.packages` from version control",
    )
