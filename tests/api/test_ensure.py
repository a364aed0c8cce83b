"""Callers of `ensure` that need the same release: one makes it, and the others wait for its end.

The callers are processes. Their release is a stub, which ends when the test says so.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.ledger.claims import LEASE
from tests.support.data import text_of
from tests.support.s3_server import S3Server, s3_server

CALLERS = text_of(__file__, "callers")


@dataclass
class Callers:
    """Processes that call `ensure` for one image."""

    image: str
    ending: tuple[int, int]
    """Pipe that ends a release."""
    pipes: dict[int, int]
    """Pipes of their outputs."""
    outputs: dict[int, bytes]
    """Texts that they have printed, by their pipes."""

    @classmethod
    def of(cls, image: str, number: int) -> "Callers":
        pipes = dict(os.pipe() for _ in range(number))
        return cls(image, os.pipe(), pipes, dict.fromkeys(pipes, b""))

    @property
    def argument(self) -> str:
        return ",".join(map(str, (self.image, self.ending[0], *self.pipes.values())))

    def wait_for(self, text: bytes, number: int) -> list[bytes]:
        """Return the lines with a text as soon as there are so many of them."""
        while len(lines := self.lines(text)) < number:
            for pipe in select.select([*self.outputs], [], [])[0]:
                self.outputs[pipe] += os.read(pipe, 1 << 16)
        return lines

    def lines(self, text: bytes) -> list[bytes]:
        whole = (output.rpartition(b"\n")[0] for output in self.outputs.values())
        return [line for output in whole for line in output.splitlines() if text in line]

    def end_release(self, word: bytes) -> None:
        os.write(self.ending[1], word)

    def close(self) -> None:
        """Close the pipes. A release that waits ends."""
        for pipe in (*self.ending, *self.pipes, *self.pipes.values()):
            os.close(pipe)


@dataclass
class Crew:
    """Callers for two images, on one machine or with a ledger in S3."""

    killed: Callers
    failing: Callers
    s3: S3Server | None


@pytest.fixture(scope="module", params=["files", "S3"])
def crew(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    root = tmp_path_factory.mktemp("project")
    images = root / "recipes/images"
    images.mkdir(parents=True)
    for name in ("killed", "failing"):
        (images / f"{name}.yaml").write_text(
            'summary: Own\nbase: {debian: "12"}\ncomponents: {python: "*"}\n'
        )
    crew = Crew(Callers.of("killed", 10), Callers.of("failing", 4), None)
    environment, ledger = {"PYTHONPATH": str(HOME)}, ""
    with contextlib.ExitStack() as stack:
        if request.param == "S3":
            crew.s3 = stack.enter_context(s3_server())
            environment |= {
                "AWS_ENDPOINT_URL": crew.s3.url,
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
            }
            ledger = 'ledger = "s3://ledgers/team"\nregion = "eu-west-1"\n'
        (root / "pyproject.toml").write_text(f'[tool.bakehouse]\nrecipes = ["recipes"]\n{ledger}')
        groups = (crew.killed, crew.failing)
        for callers in groups:
            stack.callback(callers.close)
        subprocess.run(
            [sys.executable, "-c", CALLERS, str(root), *(callers.argument for callers in groups)],
            cwd=HOME,
            env=os.environ | environment,
            pass_fds=[pipe for callers in groups for pipe in (callers.ending[0], *callers.pipes.values())],
            check=True,
        )
        yield crew


def test_ten_callers_get_the_uri_of_one_release_although_its_maker_is_killed(crew: Crew) -> None:
    callers = crew.killed
    [line] = callers.wait_for(b"releasing ", 1)
    callers.wait_for(b"killed: waiting for another process that releases it", 9)
    os.kill(int(line.split()[-1]), signal.SIGKILL)
    if crew.s3:
        crew.s3.age("/killed/", LEASE)
    callers.wait_for(b"releasing ", 2)
    callers.end_release(b"works")

    uris = callers.wait_for(b"uri ", 9)

    assert {*uris} == {b"uri 127.0.0.1:5050/bakehouse/killed@sha256:" + b"0" * 63 + b"1"}
    assert len(callers.lines(b"releasing ")) == 2
    assert callers.lines(b"error") == []


def test_those_who_wait_get_the_error_of_the_maker(crew: Crew) -> None:
    callers = crew.failing
    callers.wait_for(b"failing: waiting for another process that releases it", 3)
    callers.end_release(b"fails")

    errors = callers.wait_for(b"error ", 4)

    assert {*errors} == {b"error BuildError the build failed hint: read the log"}
