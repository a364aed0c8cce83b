"""Fixtures for tests of locks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipes, read_recipes
from bakehouse.lock import locking


@pytest.fixture
def own_images_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock without Bakehouse's images: with the components of a test, each of them is resolved anew."""

    def read(roots: Sequence[Path], *arguments: Any, **options: Any) -> Recipes:
        return read_recipes([root for root in roots if root != HOME / "recipes"], *arguments, **options)

    monkeypatch.setattr(locking, "read_recipes", read)
