"""The main job as users run it: the fleet, a release, and its layers."""

import json
import re
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.build_inputs import build_inputs
from bakehouse.catalog.project import HOME
from bakehouse.engine.docker import OWNER_LABEL
from bakehouse.errors import NotReleasableError
from bakehouse.ledger import releases
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import Workspace, select
from bakehouse.util import tempdir
from tests.integration.fleet import FLEET, Fleet
from tests.support.programs import docker

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def bake(workspace: Workspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(HOME / "bake"), *arguments]
    return subprocess.run(command, cwd=workspace.project.root, capture_output=True, text=True, check=False)


def layers(reference: str) -> list[str]:
    [image] = json.loads(docker("image", "inspect", reference))
    return list(image["RootFS"]["Layers"])


def test_a_stage_that_images_share_is_one_step_of_the_graph(fleet: Fleet) -> None:
    stages = {step.stage for step in fleet.steps if len(step.images) == len(FLEET)} - {"image"}
    assert {"toolchain", "venv", "python", "sshd", "open-mpi", "mpi4py", "sagemaker-training"} <= stages

    steps = Counter((step.stage, step.position, step.text) for step in fleet.steps if step.stage in stages)
    assert {step: count for step, count in steps.items() if count > 1} == {}


def test_images_share_the_layers_of_shared_components(workspace: Workspace, fleet: Fleet) -> None:
    shared = set.intersection(*(set(layers(f"bakehouse/{name}:latest")) for name in FLEET))
    # Stages of build tools become no layer.
    dockerfile = (workspace.project.images / FLEET[0] / "Dockerfile").read_text()
    copied = {*re.findall(r"^COPY --link --from=(\S+) /out/\S* /$", dockerfile, re.MULTILINE)}
    stages = [
        {stage.key: stage.name for stage in fleet.images[name].image.stages if stage.name in copied}
        for name in FLEET
    ]
    common = set.intersection(*(set(names) for names in stages))

    assert {"python", "sshd", "open-mpi", "mpi4py"} <= {stages[0][key] for key in common}
    # And the base's; a step of the image itself may give the same layer too.
    assert len(shared) > len(common)


def test_a_second_build_gives_the_same_digests_and_starts_no_container(
    workspace: Workspace, fleet: Fleet
) -> None:
    since = f"{time.time():.3f}"
    again = build(select(workspace, FLEET), print)
    until = f"{time.time():.3f}"

    assert [image.digest for image in again] == [fleet.images[name].digest for name in FLEET]
    own = ("--filter", f"label={OWNER_LABEL}={tempdir.run_id()}")
    assert docker("events", "--since", since, "--until", until, "--filter", "event=start", *own) == ""


def test_the_header_of_a_dockerfile_names_the_command_that_makes_its_base(
    workspace: Workspace, fleet: Fleet
) -> None:
    header = (workspace.project.images / "mpi-cpu/Dockerfile").read_text()
    command = re.search(r"^#   bake (build debian\S+) ", header, re.MULTILINE)
    assert command

    result = bake(workspace, *command[1].split())

    assert result.returncode == 0, result.stderr
    reference = result.stdout.split()[-1]
    assert f"\nFROM {reference} AS base\n" in header
    assert layers(reference) == layers("bakehouse/mpi-cpu:latest")[: len(layers(reference))]


@pytest.mark.parametrize("name", ["mpi-cpu", "pytorch-cpu"])
def test_plain_docker_build_finds_everything_cached_and_gives_the_same_layers(
    name: str, workspace: Workspace, fleet: Fleet
) -> None:
    project = workspace.project
    with build_inputs(replace(project, mirrors=(), ca_file=None), print) as inputs:
        secrets = [f"--secret=id={key},src={path}" for key, path in inputs.secrets.items()]
        directory = str(project.images / name)
        command = [
            "docker",
            "build",
            "--progress=plain",
            *secrets,
            "-t",
            f"bakehouse/plain-{name}:test",
            directory,
        ]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    try:
        # Copies of whole layers are made again if the engine has dropped theirs, which takes no time.
        # BuildKit hides a step that a build of another test runs at the same time.
        runs = re.findall(r"^(#\d+) \[\S+ \d+/\d+\] RUN ", log, re.MULTILINE)
        assert runs
        assert [step for step in runs if re.search(rf"^{step} DONE ", log, re.MULTILINE)] == [], log
        assert layers(f"bakehouse/plain-{name}:test") == layers(f"bakehouse/{name}:latest")
    finally:
        docker("image", "rm", f"bakehouse/plain-{name}:test")


def test_demo_ends_with_an_address_and_a_snippet(workspace: Workspace, fleet: Fleet) -> None:
    result = bake(workspace, "demo")

    assert result.returncode == 0, result.stderr
    uri = bake(workspace, "uri", "pytorch-cpu").stdout.strip()
    assert uri == f"127.0.0.1:{workspace.project.registry_port}/bakehouse/pytorch-cpu@" + uri.split("@")[1]
    assert f'    training_image="{uri}",\n' in result.stdout
    # The sample in README is what this command prints.
    assert f"@{uri.split('@')[1]}\n" in (HOME / "README.md").read_text()
    assert len(result.stderr.splitlines()) <= 40
    heading, *commands = result.stdout.splitlines()[-4:]
    assert heading == "next:"
    assert [line.split()[1] for line in commands] == ["explain", "run", "init"]
    [record] = releases.load(workspace.project.images / "pytorch-cpu" / "releases.json")
    assert record.tested
    assert record.config == fleet.images["pytorch-cpu"].digest
    assert record.media_type == "application/vnd.docker.distribution.manifest.v2+json"


def test_an_image_is_not_pushed_before_it_is_tested(workspace: Workspace, fleet: Fleet) -> None:
    result = bake(workspace, "push", "tensorflow-cpu")

    assert result.returncode == NotReleasableError.exit_code
    assert "tensorflow-cpu" in result.stderr
    assert not Path(workspace.project.images, "tensorflow-cpu", "releases.json").exists()
