"""Images on two remote builders: each step runs once, and the images are those of one engine."""

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from benchmarks import two_builders
from tests.integration.remote_builder import RemoteBuilder, remote_builder
from tests.integration.remote_project import CONTENT, FILE, RemoteProject

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a second engine"),
    pytest.mark.timeout(600),
]

NAMES = ("one", "two", "three")
ONCE = "RUN cat /proc/sys/kernel/random/uuid > /out/once\n"
"""Another step of the stage `part`, with another result each time."""
OWN = """\
FROM base AS own
RUN sleep {seconds} && mkdir -p /out && echo {run} > /out/own && find /out -exec touch -h -d @0 {{}} +
FROM base AS image
COPY --link --from=part /out/ /
COPY --link --from=own /out/ /
"""


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RemoteBuilder, ...]]:
    config = tmp_path_factory.mktemp("config")
    with (
        remote_builder(tmp_path_factory.mktemp("builder"), "far", config) as far,
        remote_builder(tmp_path_factory.mktemp("builder"), "near", config) as near,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("BUILDX_CONFIG", str(config))
        yield far, near


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, builders: tuple[RemoteBuilder, ...]
) -> Iterator[RemoteProject]:
    with contextlib.closing(RemoteProject(tmp_path_factory.mktemp("project"), NAMES)) as project:
        yield project


def content(project: RemoteProject, name: str, path: str) -> bytes:
    command = ["docker", "run", "--rm", "--network=none", project.images[name].reference, "cat", path]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_two_builders_share_the_images_and_run_no_step_twice(project: RemoteProject) -> None:
    run = uuid4().hex
    own = {name: OWN.format(seconds=number, run=f"{run} {name}") for number, name in enumerate(NAMES)}
    project.write({name: ONCE + text for name, text in own.items()})

    built = project.build("far", "near")

    assert [image.image.name for image in built] == [*NAMES]
    assert {step.builder for step in project.steps()} == {"far", "near"}
    assert Counter(step.stage for step in project.steps()) == {"debs": 1, "part": 2, "own": len(NAMES)}
    assert [content(project, name, "/own") for name in NAMES] == [
        f"{run} {name}\n".encode() for name in NAMES
    ]
    assert [content(project, name, f"/opt/{FILE.file}") for name in NAMES] == [CONTENT] * len(NAMES)
    assert len({content(project, name, "/once") for name in NAMES}) == 1


def test_a_changed_step_is_the_only_one_that_runs_again(project: RemoteProject) -> None:
    run = uuid4().hex
    texts = {name: OWN.format(seconds=0, run=f"{run} {name}") for name in NAMES}
    project.write(texts)
    project.build("far", "near")

    project.write({**texts, "two": OWN.format(seconds=0, run=f"{run} changed")})
    remote = project.build("near", "far")

    assert [(step.stage, step.images) for step in project.steps()] == [("own", ("two",))]
    project.remove()
    assert [image.digest for image in project.build()] == [image.digest for image in remote]


@pytest.mark.release
def test_one_builder_does_the_work_of_two_in_the_benchmark(project: RemoteProject) -> None:
    result = two_builders.compare(project, ("far", "near"), dict.fromkeys(NAMES, 1), shared=1, rounds=1)

    assert result.same == (f"Both sides have the same number of images' own steps: {len(NAMES)}.",)
