"""A project with the small image, whose records the tests write."""

import pytest

from tests.commands.report.sites import Site
from tests.support.teams import keys
from tests.support.trees import Tree

__all__ = ["keys", "site"]

INSTANCE = """\
summary: Instance types
releases:
  - version: "2026.11"
    variants:
      - {name: ml.c5.2xlarge, provides: {gpus: "0", vcpus: "8"}}
      - {name: ml.g5.xlarge, provides: {gpus: "1", gpu-architecture: "8.6", vcpus: "4"}}
      - {name: ml.p9.xlarge, provides: {gpus: "1"}}
      - {name: ml.c7g.large, provides: {gpus: "0"}}
"""


@pytest.fixture
def site(tree: Tree) -> Site:
    tree.component("instance", INSTANCE)
    return Site(tree)
