"""Errors for requests that the engine rejects, with hints for known causes."""

import docker.errors
import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.docker_errors import translate_errors
from bakehouse.errors import EngineError


def api_error(explanation: str) -> docker.errors.APIError:
    return docker.errors.APIError("500 Server Error", explanation=explanation)


@pytest.mark.parametrize(
    ("explanation", "hint"),
    [
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "containers cannot use GPUs here; run `bake doctor` for the reason",
        ),
        (
            "nvidia-container-cli: device error: 3: unknown device: unknown",
            "this machine has fewer GPUs than all hosts together request",
        ),
    ],
)
def test_missing_gpus(explanation: str, hint: str) -> None:
    with pytest.raises(EngineError) as caught, translate_errors("start a container"):
        raise api_error(explanation)

    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: the container engine could not start a container\n  answer  {explanation}\n\nhint: {hint}\n"
    )


def test_a_removed_bridge() -> None:
    answer = (
        "failed to create endpoint a on network bridge: adding interface vethb7f2ec7 to bridge docker0 "
        "failed: Device does not exist"
    )
    with pytest.raises(EngineError) as caught, translate_errors("start a container"):
        raise api_error(answer)

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: the bridge `docker0` of the container engine does not exist\n"
        "  action  start a container\n"
        f"  answer  {answer}\n"
        "\n"
        "hint: restart the engine: another program, such as a second engine, has removed its bridge\n"
    )


def test_an_unknown_error_has_no_hint() -> None:
    explanation = "all pools are used"
    with pytest.raises(EngineError) as caught, translate_errors("make a network"):
        raise api_error(explanation)

    assert caught.value.diagnostics[0].hint == ""
