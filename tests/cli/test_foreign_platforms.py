"""Builds of images whose platform the engine does not run."""

from collections.abc import Iterable

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import workflow
from bakehouse.engine import emulation, provision
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.plan.workspace import open_workspace, plan_images, raise_failures


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without emulation."""

    def require_platforms(daemon: None, platforms: Iterable[str]) -> None:
        raise EngineError(Diagnostic(f"the container engine does not run {', '.join(platforms)} programs"))

    monkeypatch.setattr(provision, "ensure", lambda *_: None)
    monkeypatch.setattr(emulation, "require_platforms", require_platforms)


def test_an_image_that_the_engine_does_not_run_does_not_stop_the_others() -> None:
    workspace = open_workspace(HOME)
    plan = workflow.without_foreign(workspace, plan_images(workspace, ["mpi-cpu*"]), print)

    assert [image.name for image in plan.images] == ["mpi-cpu", "mpi-cpu-py313"]
    with pytest.raises(EngineError, match="does not run linux/arm64 programs"):
        raise_failures(workspace)


def test_an_engine_that_runs_none_of_the_images_is_an_error() -> None:
    workspace = open_workspace(HOME)
    plan = plan_images(workspace, ["mpi-cpu-arm64"])

    with pytest.raises(EngineError, match="does not run linux/arm64 programs"):
        workflow.without_foreign(workspace, plan, print)
