"""Turns what the docker SDK raises into words: no engine, not allowed, refused, and what was wanted of it."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from bakehouse.errors import Diagnostic, EngineError

_HINTS = {
    "could not select device driver": "containers can't have GPUs here; `./bake doctor` says what they lack",
    "nvidia-container-cli: device error": "this machine has fewer GPUs than the hosts ask for in all",
}


@contextlib.contextmanager
def translate_errors(doing: str) -> Iterator[None]:
    """Turn the SDK's exceptions into one EngineError that says what was being done."""
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise EngineError(_refusal(doing, error, "build it with `./bake build`")) from error
    except docker.errors.APIError as error:
        said = str(error.explanation or error)
        hint = next((hint for words, hint in _HINTS.items() if words in said), "")
        raise EngineError(_refusal(doing, error, hint)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise EngineError(_silence(doing, str(error))) from error


def check_socket(host: str) -> None:
    """Say which socket is missing or closed to us: the SDK buries that in three exceptions."""
    if not host.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            knock.connect(host.removeprefix("unix://"))
        except OSError as error:
            raise EngineError(_silence(f"open {host}", str(error.strerror))) from error


def _silence(doing: str, answer: str) -> Diagnostic:
    denied = "Permission denied" in answer
    message = "not allowed to use the container engine" if denied else "no container engine answers"
    hint = "add your user to the group `docker`, then log in again" if denied else "see `./bake doctor`"
    return Diagnostic(message, facts=(("wanted to", doing), ("answer", " ".join(answer.split()))), hint=hint)


def _refusal(doing: str, error: Any, hint: str) -> Diagnostic:
    answer = " ".join(str(error.explanation or error).split())
    return Diagnostic(f"the container engine could not {doing}", facts=(("answer", answer),), hint=hint)
