"""Processes that push different content under one tag at once, as machines do that know of nobody else."""

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from bakehouse.errors import TagTakenError
from bakehouse.manifests import DOCKER_MANIFEST
from bakehouse.project import HOME
from bakehouse.testing.ecr import ecr_standins
from bakehouse.testing.registry import registry_image
from tests.integration.push_faults import LocalRegistry, relay
from tests.integration.pushing import NAME, TAG
from tests.integration.tiny_images import built

_TOKEN = "one-token"
_SPREAD = 0.3
"""Seconds within which they begin: longer than one takes from its look to its push."""


@dataclass(frozen=True)
class Race:
    """How one round ended."""

    codes: tuple[int, ...]
    """The exit code of each pusher."""
    winner: int | None
    """Whose content the tag names in the end."""

    @property
    def lied_to(self) -> int:
        """How many were told that theirs is published, and it is not what the tag names."""
        return sum(code == 0 and number != self.winner for number, code in enumerate(self.codes))

    @property
    def failed(self) -> int:
        """How many were told something else than success or a conflict."""
        return sum(code not in (0, TagTakenError.exit_code) for code in self.codes)

    @property
    def is_decided(self) -> bool:
        """Whether one digest won, its pusher knows, and all others know that they lost."""
        return self.winner is not None and self.codes[self.winner] == 0 and not self.lied_to + self.failed


@dataclass(frozen=True)
class Course:
    """A registry to race to."""

    host: str
    direct: str
    """The registry behind it, which lets anyone read."""
    login: str = ""
    prepare: Callable[[str], None] = lambda repository: None
    """Called with each round's repository."""
    settle: str = ""
    """Seconds for a second look after a push; the pusher's own where it is empty."""

    def named(self, repository: str) -> str:
        """The digest that the tag names in the end."""
        address = f"http://{self.direct}/v2/{repository}/manifests/{TAG}"
        headers = {"Accept": DOCKER_MANIFEST}
        if self.login:
            headers["Authorization"] = f"Basic {self.login}"
        with urlopen(UrlRequest(address, headers=headers)) as answer:
            return str(answer.headers["Docker-Content-Digest"])


@contextlib.contextmanager
def mutable(folder: Path, settle: str = "") -> Iterator[Course]:
    """A plain registry: the last one that pushes has the tag."""
    with LocalRegistry(folder).running() as registry:
        host = f"127.0.0.1:{registry.port}"
        yield Course(host, host, settle=settle)


@contextlib.contextmanager
def immutable(folder: Path) -> Iterator[Course]:
    """As ECR does it: the first one has the tag."""
    with registry_image() as image, ecr_standins(image) as ecr:
        ecr.registry.tokens.add(_TOKEN)

        def prepare(repository: str) -> None:
            ecr.client.create_repository(repositoryName=repository, imageTagMutability="IMMUTABLE")

        login = base64.b64encode(f"AWS:{_TOKEN}".encode()).decode()
        # Where tags stay a second look finds what the first one found.
        yield Course(ecr.host, ecr.host, login, prepare, settle="0")


class Run(Protocol):
    """Runs a round of a number, with the first of the pushers where not all are to take part."""

    def __call__(self, number: int, random: Random, of: int = ...) -> Race: ...


@contextlib.contextmanager
def racers(course: Course, count: int, folder: Path) -> Iterator[Run]:
    """So many pushers; what is given runs a round of a number."""
    with contextlib.ExitStack() as stack:
        digests, started = [], []
        for number in range(count):
            own = folder / f"racer-{number}"
            (own / "docker").mkdir(parents=True)
            (own / "image").mkdir()
            image = stack.enter_context(built(own / "image", NAME, bytes_=20_000))
            host = stack.enter_context(relay(course.host))
            auths = {host: {"auth": course.login}} if course.login else {}
            (own / "docker" / "config.json").write_text(json.dumps({"auths": auths}))
            digests.append(str(image.digest))
            given = (host, image.digest, str(own), course.settle)
            words = ("-P", "-m", "tests.integration.pushing", "serve", *given)
            log = stack.enter_context((own / "log").open("w"))
            started.append(
                subprocess.Popen(
                    [sys.executable, *words],
                    env={
                        **os.environ,
                        "DOCKER_CONFIG": str(own / "docker"),
                        "PYTHONPATH": str(HOME),
                    },
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            )
            stack.callback(_end, started[-1])

        def race(number: int, random: Random, of: int = count) -> Race:
            prefix = f"round-{of}-{number}"
            course.prepare(f"{prefix}/{NAME}")
            order = random.sample(range(of), of)
            for racer in order:
                time.sleep(random.uniform(0, _SPREAD / of))
                inlet = started[racer].stdin
                assert inlet
                inlet.write(f"{prefix}\n")
                inlet.flush()
            codes = tuple(_code(racer) for racer in started[:of])
            there = course.named(f"{prefix}/{NAME}")
            return Race(codes, digests.index(there) if there in digests else None)

        yield race


def _code(racer: "subprocess.Popen[str]") -> int:
    assert racer.stdout
    return int(json.loads(racer.stdout.readline())["code"])


def _end(racer: "subprocess.Popen[str]") -> None:
    racer.communicate(timeout=30)


def told(races: Sequence[Race]) -> str:
    """What came of rounds, in a line."""
    codes = Counter(code for race in races for code in race.codes)
    ends = {0: "published", TagTakenError.exit_code: "told of the conflict"}
    pushers = ", ".join(
        f"{number} {ends.get(code, f'exit {code}')}" for code, number in sorted(codes.items())
    )
    decided = sum(race.is_decided for race in races)
    lied_to = sum(bool(race.lied_to) for race in races)
    return (
        f"{len(races)} rounds, {decided} decided, {lied_to} with a loser who was told of success; {pushers}"
    )
