"""Container of the docker SDK."""

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from bakehouse.engine import tar
from bakehouse.engine.docker_errors import require_client, translate_errors
from bakehouse.engine.protocol import ContainerExit
from bakehouse.util.files import make_directory

if TYPE_CHECKING:
    from docker.errors import APIError
    from docker.models.containers import Container as SdkContainer

API_SECONDS = 120
"""Time limit for an answer of the engine."""
REMOVAL_ATTEMPTS = 5
_POLL_SECONDS = 0.2
_NO_PROGRAM = re.compile(r'exec: "[^"]+": executable file not found in \$PATH')
_PROGRAM_NOT_FOUND = 127
_KILLED = 137
_CLIENT_SECONDS = 10.0


def _ignore(chunk: bytes) -> None:
    """Ignore the output."""


class DockerContainer:
    """`Container` of the docker SDK."""

    def __init__(self, container: "SdkContainer", keeper: "SdkContainer | None" = None) -> None:
        self._container = container
        self._keeper = keeper
        self._follower: threading.Thread | None = None
        self._lacks_program = False
        self._client: subprocess.Popen[bytes] | None = None
        """The `docker` command that this process's terminal is attached to."""
        self._waiter: threading.Thread | None = None
        self._exit_code: Future[int] = Future()

    def start(self, log: Path, on_output: Callable[[bytes], None] = _ignore) -> None:
        from docker.errors import APIError

        make_directory(log.parent)
        with translate_errors("start a container"):
            try:
                self._container.start()
            except APIError as error:
                missing = _NO_PROGRAM.search(str(error.explanation))
                if missing is None:
                    raise
                # A shell would exit with 127, and so does the job on SageMaker.
                self._lacks_program = True
                log.write_text(f"{missing[0]}\n")
                on_output(f"{missing[0]}\n".encode())
                return
        self._follower = threading.Thread(target=self._follow, args=(log, on_output), daemon=True)
        self._follower.start()

    def attach(self) -> int:
        # The SDK neither puts the terminal into raw mode nor passes on its size.
        require_client()
        command = ["docker", "start", "--attach", "--interactive", str(self._container.id)]
        self._client = subprocess.Popen(command)
        return self._client.wait()

    def wait(self, seconds: float) -> ContainerExit | None:
        from docker.errors import NotFound

        if self._lacks_program:
            return ContainerExit(_PROGRAM_NOT_FOUND)
        if self._waiter is None:
            # All calls share one request, because a new connection through ssh takes a second.
            self._waiter = threading.Thread(target=self._await_exit, daemon=True)
            self._waiter.start()
        with translate_errors("wait for a container"):
            try:
                code = self._exit_code.result(seconds)
            except TimeoutError:
                return None
            except NotFound:
                # A removed container was killed: an engine that is closed removes its containers.
                return ContainerExit(_KILLED)
            self._finish_log()
            try:
                self._container.reload()
            except NotFound:
                # An engine that is closed at this moment removes its containers.
                return ContainerExit(code)
        return ContainerExit(code, bool(self._container.attrs["State"]["OOMKilled"]))

    def signal(self, name: str) -> None:
        from docker.errors import APIError

        # A container that has exited cannot be signalled.
        with translate_errors("signal a container"), contextlib.suppress(APIError):
            self._container.kill(signal=name)

    def stop(self, grace: float) -> None:
        with translate_errors("stop a container"):
            self._container.stop(timeout=round(grace))
        self._finish_log()

    def stdout(self) -> str:
        with translate_errors("read the output of a container"):
            return self._container.logs(stdout=True, stderr=False).decode(errors="replace")

    def read(self, path: str) -> dict[str, bytes]:
        with tar.unpacked(self._archive(path)) as entries:
            return {entry.name: entry.read() for entry in entries}

    def sizes(self, path: str) -> dict[str, int]:
        with tar.unpacked(self._archive(path)) as entries:
            return {entry.name: entry.size for entry in entries}

    def copy(self, path: str, directory: Path) -> None:
        with tar.unpacked(self._archive(path)) as entries:
            for entry in entries:
                entry.write_below(directory)

    def is_full(self, path: str) -> bool:
        if self._keeper is None:
            return False
        with translate_errors("read the free space of a volume"):
            api = self._keeper.client.api  # type: ignore[union-attr]
            command = api.exec_create(self._keeper.id, ["df", "-P", "-k", path])
            output = api.exec_start(command["Id"])
            if api.exec_inspect(command["Id"])["ExitCode"]:
                # The image has no `df`.
                return False
        _, size, _, free, *_ = output.splitlines()[-1].split()
        return int(free) * 100 < int(size)

    def remove(self) -> None:
        for container in (self._container, self._keeper):
            if container is not None:
                with translate_errors("remove a container"):
                    remove_until_gone(partial(container.remove, force=True, v=True))
        self._finish_log()
        if self._client:
            # It ends with the container, and restores the terminal.
            try:
                self._client.wait(_CLIENT_SECONDS)
            except subprocess.TimeoutExpired:
                self._client.kill()

    def _await_exit(self) -> None:
        try:
            self._exit_code.set_result(int(self._container.wait(timeout=None)["StatusCode"]))
        except Exception as error:
            self._exit_code.set_exception(error)

    def _runs(self) -> bool:
        with translate_errors("look up a container's process"):
            self._container.reload()
        return bool(self._container.attrs["State"]["Running"])

    def _archive(self, path: str) -> Iterator[bytes]:
        from docker.errors import NotFound

        with translate_errors(f"read `{path}` in a container"), contextlib.suppress(NotFound):
            yield from self._container.get_archive(path)[0]

    def _follow(self, log: Path, on_output: Callable[[bytes], None]) -> None:
        import docker.errors
        import requests

        lost = (docker.errors.APIError, requests.exceptions.RequestException, OSError)
        with log.open("wb", buffering=0) as file, contextlib.suppress(*lost):
            for chunk in self._container.logs(stream=True, follow=True):
                file.write(chunk)
                try:
                    on_output(chunk)
                except OSError:
                    # The reader has closed its pipe, as `head` does; the log must still be complete.
                    on_output = _ignore

    def _finish_log(self) -> None:
        if self._follower:
            self._follower.join(timeout=10)


def remove_until_gone(remove: Callable[[], object]) -> None:
    """Call `remove` until it succeeds, because a process or container may still use the object."""
    from docker.errors import APIError, NotFound

    attempts, until = 0, time.monotonic() + API_SECONDS
    while True:
        try:
            remove()
        except NotFound:
            return
        except APIError as error:
            if _is_being_removed(error):
                # The other removal can take many seconds on a busy machine.
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            attempts += 1
            if attempts == REMOVAL_ATTEMPTS:
                raise
            time.sleep(_POLL_SECONDS * attempts)
        else:
            return


def _is_being_removed(error: "APIError") -> bool:
    return error.status_code == HTTPStatus.CONFLICT and "already in progress" in str(error.explanation)
