"""Versions of a recipe's requirements with those of its components, with a stub of uv."""

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.requirements_file import RequiredPackage, Requirements
from bakehouse.errors import Location, RecipeError
from bakehouse.lock import recipe_lock

HERE = Location(Path("component.txt"), 1, 1)
LOCKED = {name: Package(name, "1.0", "ab" * 32, f"{name}.whl", 10, HERE) for name in ("first", "second")}


class NewestVersions:
    """Components and an index in which 2.0 of each package is the newest; uv keeps pinned versions alone."""

    locked = LOCKED
    contained: tuple[Package, ...] = ()
    needs = ()

    def versions(
        self,
        requirements: Iterable[object],
        needs: Iterable[object],
        pins: Iterable[Package] = (),
        preferred: Iterable[Package] = (),
    ) -> dict[str, str]:
        return {**dict.fromkeys(self.locked, "2.0"), **{package.name: package.version for package in pins}}


def test_all_locked_versions_that_fit_together_are_kept() -> None:
    around = cast("recipe_lock._ImagePackages", NewestVersions())

    assert recipe_lock._joint((), (), around, lambda _: None) == {"first": "1.0", "second": "1.0"}


REQUIRED = Requirements((RequiredPackage("first==1.0", HERE, frozenset({"ab" * 32})),), (), ())


def test_hashes_of_a_package_that_a_component_installs_are_not_compared() -> None:
    recipe_lock._check_hashes(REQUIRED, ())


def test_a_file_with_another_hash_than_the_requirement_s_is_refused() -> None:
    chosen = Package("first", "1.0", "cd" * 32, "first-1.0-py3-none-any.whl", 10)

    with pytest.raises(RecipeError, match="none of the hashes of `first` is that of the file for this image"):
        recipe_lock._check_hashes(REQUIRED, (chosen,))
