"""Bakehouse's catalogue, and a fake SageMaker."""

from collections.abc import Iterator

import pytest

from bakehouse.plan.workspace import Workspace, open_workspace
from tests.support.training_front import TrainingFront, training_front


@pytest.fixture(scope="module")
def catalogue() -> Workspace:
    return open_workspace()


@pytest.fixture(scope="module")
def fronts() -> Iterator[TrainingFront]:
    with training_front() as front:
        yield front
