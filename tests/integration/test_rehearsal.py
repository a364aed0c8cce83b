"""Rehearsals with a real engine: images of different families, none of which can be built here."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BakehouseError, PublishError, SmokeError
from bakehouse.evidence import step_layers
from bakehouse.evidence.image_state import Level, known_layers, state_of
from bakehouse.maintain.rehearsal import RehearsalResults, Rehearsed
from bakehouse.maintain.rehearse import rehearse
from bakehouse.pipeline.build import build, ensure_built
from bakehouse.pipeline.publish import push_images
from bakehouse.pipeline.smoke import smoke_images
from bakehouse.plan.image_layer import KEY_DIGITS
from bakehouse.plan.workspace import Workspace, open_workspace, select
from bakehouse.publish.options import PublishOptions
from tests.support.programs import docker

pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(1800)]

SMP, EFA, EXTENDED = (
    "pytorch-1.10-cu113-py38-smp",
    "pytorch-2.10-cu128-py312-efa",
    "pytorch-2.13-cu130-py312-extended",
)
REAL = "mpi-cpu"
"""An image whose files are all available, so that no stubs are needed."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A project whose own recipe is wrong in one place: a rehearsal finds it, and the others go on."""
    root = tmp_path_factory.mktemp("rehearsal")
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (root / "own/images").mkdir(parents=True)
    (root / "own/images/wrong.yaml").write_text(
        'summary: One of its steps fails\nbase: {aws-dlc-pytorch: "2.13.0"}\n'
        'variants: {aws-dlc-pytorch: "cpu-*"}\nrun:\n  - "true"\n  - |\n    echo about to fail\n    exit 3\n'
    )
    (root / "own/images/right.yaml").write_text(
        'summary: All of its steps go through\nbase: {aws-dlc-pytorch: "2.13.0"}\n'
        'variants: {aws-dlc-pytorch: "cpu-*"}\nrun: ["python3 -m pip --version > /opt/pip-version"]\n'
    )
    return open_workspace(root)


@pytest.fixture(scope="module")
def outcome(project: Workspace) -> Iterator[RehearsalResults]:
    outcome = rehearse(select(project, [SMP, EFA, EXTENDED, REAL, "wrong", "right"]), print)
    for failure in outcome.failures:
        print(failure_text(failure))
    yield outcome
    for result in outcome.rehearsed:
        docker("image", "rm", "--force", result.rehearsal.reference)


def rehearsed(outcome: RehearsalResults, name: str) -> Rehearsed:
    return next(result for result in outcome.rehearsed if result.rehearsal.real.name == name)


def read(outcome: RehearsalResults, name: str, *command: str) -> str:
    reference = rehearsed(outcome, name).rehearsal.reference
    return docker("run", "--rm", "--network=none", "--entrypoint=", reference, *command)


def test_all_that_can_go_through_does(outcome: RehearsalResults) -> None:
    assert sorted(result.rehearsal.real.name for result in outcome.rehearsed) == sorted(
        [SMP, EFA, EXTENDED, "right"]
    )
    assert outcome.failed == ["wrong"]


def test_a_failing_step_is_reported_with_its_line_and_what_it_printed(outcome: RehearsalResults) -> None:
    [failure] = outcome.failures
    assert failure.message == "image `wrong` failed to build: stage `image` failed with exit code 3"
    assert failure.location is not None
    assert failure.location.path.name == "Dockerfile"
    assert failure.tail[-1] == "about to fail"
    with pytest.raises(BakehouseError):
        outcome.require_all()


def test_the_installer_got_its_real_options(outcome: RehearsalResults) -> None:
    for name in (SMP, EFA):
        [stage] = [stage for stage in rehearsed(outcome, name).rehearsal.real.stages if stage.name == "efa"]
        noted = read(outcome, name, "cat", "/opt/amazon/efa-installer-options").split()
        mpi = stage.facts.get("mpi")
        assert noted == [*stage.facts["flags"].split(), *([f"--mpi={mpi}"] if mpi else [])]


def test_the_base_answers_as_the_real_one(outcome: RehearsalResults) -> None:
    version = read(outcome, SMP, "/opt/venv/bin/python3", "-c", "import sys; print(sys.version)")
    assert version.startswith("3.8.99 (rehearsal")
    assert "cp38" in read(
        outcome, SMP, "sh", "-c", "cat /opt/venv/lib/python3.8/site-packages/smdistributed*/WHEEL"
    )
    assert "pip" in read(outcome, "right", "cat", "/opt/pip-version")


def test_every_rehearsed_image_says_so_inside_and_outside(outcome: RehearsalResults) -> None:
    for result in outcome.rehearsed:
        [inspected] = json.loads(docker("image", "inspect", result.rehearsal.reference))
        assert inspected["Config"]["Labels"]["org.bakehouse.rehearsed"] == "rehearsed, not built"
        note = read(outcome, result.rehearsal.real.name, "cat", "/etc/bakehouse-rehearsal")
        assert note.endswith("for rehearsals\n")
        assert ": a stub" in note


def test_installed_versions_are_as_declared_as_far_as_stubs_answer(outcome: RehearsalResults) -> None:
    assert {"efa", "open-mpi", "smddp", "smp", "pytorch", "nccl", "python"} <= set(
        rehearsed(outcome, SMP).agree
    )
    # Of the distribution, whose place Debian 12 takes
    assert {check.component for check in rehearsed(outcome, SMP).differ} <= {"sshd", "jit", "glibc"}


def test_what_ran_is_on_record_with_its_stubs(project: Workspace, outcome: RehearsalResults) -> None:
    [image] = select(project, ["right"]).plan.images
    state = state_of(image, known_layers(project.project))
    assert (state.level, state.known, state.stubs) == (Level.REHEARSED, 0, ("aws-dlc-pytorch",))


def test_available_files_give_the_layers_of_a_build_and_only_once(
    project: Workspace, outcome: RehearsalResults
) -> None:
    [image] = select(project, [REAL]).plan.images
    rehearsed = {row for row in step_layers.read(project.project.state) if row.digest}
    lines: list[str] = []

    assert state_of(image, known_layers(project.project)).text == "built"
    [_] = build(select(project, [REAL]), print)
    built = {row for row in step_layers.read(project.project.state) if row.digest}
    assert {row.key for row in built - rehearsed} == {image.key[:KEY_DIGITS]}
    rehearse(select(project, [REAL]), lines.append)
    assert lines[-1] == "0 layers to build, 0 images to rehearse"


def test_a_rehearsed_image_under_a_real_name_is_neither_tried_nor_pushed(
    project: Workspace, outcome: RehearsalResults
) -> None:
    [image] = select(project, ["right"]).plan.images
    docker("tag", rehearsed(outcome, "right").rehearsal.reference, image.reference)
    try:
        built = ensure_built(select(project, ["right"]), print)
        with pytest.raises(SmokeError, match="rehearsed, not built"):
            smoke_images(project, built, print)
        with pytest.raises(PublishError, match="rehearsed, not built"):
            push_images(project, built, print, PublishOptions(candidate=True))
    finally:
        docker("image", "rm", image.reference)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("push", "is an image of a rehearsal, which contains stubs"),
        ("smoke", "is an image of a rehearsal, which contains stubs"),
        ("uri", "was rehearsed, not built, so it has no image URI"),
    ],
)
def test_tasks_refuse_the_name_of_a_rehearsal(task: str, reason: str, project: Workspace) -> None:
    result = subprocess.run(
        [str(HOME / "bake"), task, f"rehearsal/{SMP}"],
        cwd=project.project.root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 64
    assert result.stderr.startswith(f"error: `rehearsal/{SMP}` {reason}\n")


def test_a_second_rehearsal_executes_nothing(project: Workspace, outcome: RehearsalResults) -> None:
    again = rehearse(select(project, [EXTENDED]), print)

    assert [result.digest for result in again.rehearsed] == [rehearsed(outcome, EXTENDED).digest]
