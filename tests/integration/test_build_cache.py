"""A build cache in a registry: its stages are used after the builder lost its own cache."""

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator
from uuid import uuid4

import pytest

from bakehouse.builder.build_steps import StepKey
from bakehouse.builder.stage_cache import StageCache, open_cache, remove_unused
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BuildError
from bakehouse.maintain.isolated_engine import isolated_engine
from tests.integration.ports import kept_port
from tests.integration.remote_project import IMAGE, RemoteProject
from tests.support.registry import registry_at

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a second engine"),
    pytest.mark.timeout(600),
]

BUILDER = "cached"
STAGES = """\
RUN cat /proc/sys/kernel/random/uuid > /out/random && echo {run}
FROM base AS last
RUN {command}
"""
"""A step of the stage `part` with another result each time, and another stage."""
LAST = "COPY --link --from=last /etc/debian_version /last\n"


class Builder:
    """A second engine with a name, and a build cache in a registry."""

    def __init__(self, host: str, project: RemoteProject, settings: ProjectSettings) -> None:
        self._host, self._project, self._settings = host, project, settings
        self.lines: list[str] = []

    def cache(self, repository: str = "team/cache") -> StageCache | None:
        reference = f"127.0.0.1:{self._settings.registry_port}/{repository}"
        return open_cache(self._settings, reference, self.lines.append, remote=True)

    def clean(self, used: Collection[StepKey], repository: str = "team/cache") -> int:
        reference = f"127.0.0.1:{self._settings.registry_port}/{repository}"
        return remove_unused(self._settings, reference, used)

    def prune(self) -> None:
        command = ["docker", "--host", self._host, "builder", "prune", "--all", "--force"]
        subprocess.run(command, capture_output=True, check=True)

    def random(self) -> str:
        reference = self._project.images["cached"].reference
        command = ["docker", "run", "--rm", "--network=none", reference, "cat", "/random"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteProject]:
    with contextlib.closing(RemoteProject(tmp_path_factory.mktemp("project"), ["cached"])) as project:
        yield project


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory, project: RemoteProject) -> Iterator[Builder]:
    state = tmp_path_factory.mktemp("state")
    with (
        kept_port() as port,
        registry_at(state, port),
        isolated_engine("containerd", print) as paths,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DOCKER_CONFIG", str(state / "docker"))
        host = f"unix://{paths.socket}"
        command = ["docker", "context", "create", BUILDER, "--docker", f"host={host}"]
        subprocess.run(command, capture_output=True, check=True)
        settings = ProjectSettings(project.root, (), registry_port=port, state_directory=state)
        yield Builder(host, project, settings)


def test_a_pruned_builder_reads_all_stages_from_the_registry(
    builder: Builder, project: RemoteProject
) -> None:
    text = STAGES.format(run=uuid4().hex, command="true") + IMAGE + LAST
    project.write({"cached": text})
    [first] = project.build(BUILDER, cache=builder.cache())
    random = builder.random()
    assert {step.stage for step in project.steps()} == {"debs", "part", "last"}

    builder.prune()
    project.write({"cached": text})
    [again] = project.build(BUILDER, cache=builder.cache())
    assert (project.steps(), again.digest, builder.random()) == ((), first.digest, random)

    builder.prune()
    project.build(BUILDER)
    assert builder.random() != random
    assert builder.lines == []


def test_stages_that_end_before_a_failure_run_on_no_other_builder_again(
    builder: Builder, project: RemoteProject
) -> None:
    run = uuid4().hex
    project.write({"cached": STAGES.format(run=run, command="sleep 8 && false") + IMAGE + LAST})
    with pytest.raises(BuildError, match="image `cached` failed to build"):
        project.build(BUILDER, cache=builder.cache())

    # Without its cache, the builder is like another one
    builder.prune()
    project.write({"cached": STAGES.format(run=run, command=f"echo {run}") + IMAGE + LAST})
    project.build(BUILDER, cache=builder.cache())

    assert {step.stage for step in project.steps()} == {"last"}


def test_stages_that_are_not_used_are_removed_from_the_registry(
    builder: Builder, project: RemoteProject
) -> None:
    project.write({"cached": STAGES.format(run=uuid4().hex, command="true") + IMAGE + LAST})
    project.build(BUILDER, cache=builder.cache("team/old"))
    before = builder.cache("team/old")
    assert before
    used = {min(before.keys)}

    assert builder.clean(used, "team/old") == len(before.keys) - 1

    after = builder.cache("team/old")
    assert after
    assert after.keys == used
