"""Builders of buildx: their definitions, and the output of `docker buildx inspect`."""

import json
from pathlib import Path

import pytest

from bakehouse.engine.buildx_builders import (
    Builder,
    BuilderNode,
    Worker,
    find_builder,
    read_workers,
    variables_of,
)
from bakehouse.engine.daemon_info import ProgramResult
from bakehouse.errors import Diagnostic, EngineError, UsageError
from tests.support.data import text_of
from tests.support.errors import raised

ENDPOINT = "tcp://127.0.0.1:1234"
INSPECTION = text_of(__file__, "inspection")
"""Output of buildx 0.13.1, shortened; the version is an example."""


def contexts(*command: str) -> ProgramResult:
    """Answer `docker context ls`."""
    assert command[:3] == ("docker", "context", "ls")
    return ProgramResult(0, "default\noffice\n")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine with the builder `far` and the docker context `office`."""
    node = {"Name": "far0", "Endpoint": ENDPOINT, "Platforms": None, "DriverOpts": None}
    (tmp_path / "instances").mkdir()
    (tmp_path / "instances/far").write_text(json.dumps({"Name": "far", "Driver": "remote", "Nodes": [node]}))
    return {"BUILDX_CONFIG": str(tmp_path)}


def test_a_builder_that_buildx_created(environment: dict[str, str]) -> None:
    assert find_builder("far", environment, contexts) == Builder(
        "far", "remote", (BuilderNode("far0", ENDPOINT, {}),)
    )


def test_an_unknown_name(environment: dict[str, str]) -> None:
    assert raised(UsageError, find_builder, "fat", environment, contexts).diagnostics == (
        Diagnostic("unknown builder `fat`", hint="use one of `default`, `far`, `office`"),
    )


def test_a_machine_without_docker(environment: dict[str, str]) -> None:
    with pytest.raises(EngineError, match="the `docker` command is not installed"):
        find_builder("far", environment, lambda *command: ProgramResult(127, ""))


def test_a_docker_context_is_a_builder(environment: dict[str, str]) -> None:
    builder = find_builder("office", environment, contexts)

    assert (builder.driver, [node.endpoint for node in builder.nodes]) == ("docker", ["office"])


def test_the_variables_that_select_a_builder(environment: dict[str, str]) -> None:
    assert variables_of("far", environment, contexts) == {"BUILDX_BUILDER": "far"}
    assert variables_of("office", environment, contexts) == {
        "BUILDX_BUILDER": "office",
        "DOCKER_CONTEXT": "office",
    }


def test_workers_of_several_nodes() -> None:
    second = INSPECTION.partition("Nodes:\n")[2].replace("v0.13.2", "v0.14.0")

    assert [worker.version for worker in read_workers(INSPECTION + "\n" + second)] == ["v0.13.2", "v0.14.0"]
    [worker] = read_workers(INSPECTION)
    assert worker == Worker("running", "v0.13.2", ("linux/amd64", "linux/amd64/v2", "linux/386"), "21GiB", "")
    assert read_workers("") == ()
    assert read_workers("\nNodes:\nName: a\nStatus: inactive\n") == (Worker("inactive", "", (), "", ""),)
