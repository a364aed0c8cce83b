"""The small catalogue as a user's project, and its mirrors."""

import pytest

from tests.commands.security.security_updates import Mirror
from tests.support.apt_configuration import AptConfiguration
from tests.support.locked_debian import index
from tests.support.trees import COMPONENTS, Tree


@pytest.fixture
def project(tree: Tree) -> Tree:
    """The small catalogue as a user's project, on a Debian that Bakehouse itself has no lock of."""
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\nmirrors = ["mirror"]\ncache = "cache"\n')
    tree.component("debian", COMPONENTS["debian"].replace("bookworm", "sid"))
    tree.write("apt/sid.packages", index())
    return tree


@pytest.fixture
def mirror(project: Tree, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    AptConfiguration(project.root, monkeypatch)
    return Mirror(project, monkeypatch)
