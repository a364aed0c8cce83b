"""Translation of the docker SDK's exceptions into errors for users."""

import contextlib
import re
import shutil
import socket
from collections.abc import Iterator
from typing import Any

from bakehouse.errors import Diagnostic, EngineError

NO_BRIDGE = re.compile(r"adding interface veth\w* to bridge [\w.-]+ failed")
NO_BRIDGE_HINT = "restart the engine: another program, such as a second engine, has removed its bridge"
_HINTS = {
    "could not select device driver": "containers cannot use GPUs here; run `bake doctor` for the reason",
    "unresolvable CDI devices": "CDI does not list this GPU; `nvidia-ctk cdi list` shows the available ones",
    "nvidia-container-cli: device error": "this machine has fewer GPUs than all hosts together request",
}


@contextlib.contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Turn the SDK's exceptions into an EngineError that names the action, such as `start a container`."""
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise EngineError.of(_request_error(action, error, "build it with `bake build`")) from error
    except docker.errors.APIError as error:
        answer = str(error.explanation or error)
        hint = next((hint for text, hint in _HINTS.items() if text in answer), "")
        raise EngineError.of(_request_error(action, error, hint)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise EngineError.of(_connection_error(action, str(error))) from error


def require_client() -> None:
    """Raise EngineError without the `docker` command."""
    if shutil.which("docker") is None:
        raise EngineError(
            "the `docker` command is not installed",
            hint="run `bake doctor`; it lists what is missing and how to install it",
        )


def no_bridge(answer: str) -> str:
    """Return the message for an engine whose bridge was removed; empty for another answer."""
    match = NO_BRIDGE.search(answer)
    return f"the bridge `{match[0].split()[-2]}` of the container engine does not exist" if match else ""


def check_socket(host: str) -> None:
    """Check that the socket can be opened; the SDK hides the reason in three exceptions."""
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(host.removeprefix("unix://"))
        except OSError as error:
            raise EngineError.of(_connection_error(f"open {host}", str(error.strerror))) from error


def _connection_error(action: str, answer: str) -> Diagnostic:
    denied = "Permission denied" in answer
    message = "not allowed to use the container engine" if denied else "no container engine answers"
    hint = "add your user to the group `docker`, then log in again" if denied else "run `bake doctor`"
    return Diagnostic(message, facts=(("action", action), ("answer", " ".join(answer.split()))), hint=hint)


def _request_error(action: str, error: Any, hint: str) -> Diagnostic:
    answer = " ".join(str(error.explanation or error).split())
    if message := no_bridge(answer):
        return Diagnostic(message, facts=(("action", action), ("answer", answer)), hint=NO_BRIDGE_HINT)
    return Diagnostic(f"the container engine could not {action}", facts=(("answer", answer),), hint=hint)
