"""Processes that push different content under one tag at once, like independent machines."""

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from bakehouse.catalog.project import HOME
from bakehouse.errors import TagTakenError
from bakehouse.registry.manifest import DOCKER_MANIFEST
from tests.integration.push_faults import local_registry, relay
from tests.integration.pushing import NAME, TAG
from tests.integration.tiny_images import built
from tests.support.ecr import ecr_stubs
from tests.support.proxy import Forward, Proxy, Reply, Request, error_body
from tests.support.registry import registry_image

_TOKEN = "one-token"
_SPREAD = 0.3
"""Seconds within which they begin: longer than one takes from its look to its push."""
_GATHERED_WITHIN = 40.0
"""Seconds that a manifest waits for those of the others: more than this machine takes under any load."""
_LOOKED_WITHIN = 1.0
_AFTER = 0.5
"""Seconds from the look of the first one to the others' manifests: what looks twice at once sees itself."""


@dataclass(frozen=True)
class Race:
    """Result of one round."""

    codes: tuple[int, ...]
    """The exit code of each pusher."""
    winner: int | None
    """Number of the pusher whose content the tag names at the end."""

    @property
    def lied_to(self) -> int:
        """Number of pushers with a wrong success: the tag names other content."""
        return sum(code == 0 and number != self.winner for number, code in enumerate(self.codes))

    @property
    def failed(self) -> int:
        """Number of pushers with neither success nor a conflict."""
        return sum(code not in (0, TagTakenError.exit_code) for code in self.codes)

    @property
    def is_decided(self) -> bool:
        """Return whether one digest won, its pusher succeeded, and all others got a conflict."""
        return self.winner is not None and self.codes[self.winner] == 0 and not self.lied_to + self.failed


@dataclass(frozen=True)
class Course:
    """A registry to race to."""

    host: str
    direct: str
    """The registry behind it, readable without a login."""
    login: str = ""
    prepare: Callable[[str, int], None] = lambda repository, pushers: None
    """Called with each round's repository, and how many push to it."""
    settle: str = ""
    """Seconds for a second look after a push; the pusher's own where it is empty."""

    def named(self, repository: str) -> str:
        """Return the configuration digest of the image that the tag names in the end."""
        address = f"http://{self.direct}/v2/{repository}/manifests/{TAG}"
        headers = {"Accept": DOCKER_MANIFEST}
        if self.login:
            headers["Authorization"] = f"Basic {self.login}"
        with urlopen(UrlRequest(address, headers=headers)) as response:
            return str(json.load(response)["config"]["digest"])


@contextlib.contextmanager
def mutable(directory: Path) -> Iterator[Course]:
    """A plain registry: the last one that pushes has the tag."""
    with local_registry(directory) as registry:
        host = f"127.0.0.1:{registry.port}"
        yield Course(host, host)


@contextlib.contextmanager
def contested(directory: Path, settle: str) -> Iterator[Course]:
    """A plain registry where each round goes the worst way, however long each pusher takes for its part.

    None finds the tag taken before it pushes. One is the first, and finds after its push that the tag is
    its own; then all others push at once. `settle` is to be longer than that takes.
    """
    with local_registry(directory) as registry, Proxy(registry.port).running() as proxy:
        gate = _Gate()
        proxy.do("PUT", "/manifests/", gate.push)
        proxy.do("GET|HEAD", "/manifests/", gate.look)
        yield Course(proxy.host, f"127.0.0.1:{registry.port}", prepare=gate.expect, settle=settle)


@dataclass
class _Gathering:
    """Pushers that reached the gate in one round."""

    expected: int = 0
    manifests: set[bytes] = field(default_factory=set)
    """Distinct contents: a manifest that comes twice counts once."""
    is_begun: bool = False
    pushed: threading.Event = field(default_factory=threading.Event)
    looked: threading.Event = field(default_factory=threading.Event)


class _Gate:
    """Lets manifests in when those of all who race are there: all have looked for the tag by then."""

    def __init__(self) -> None:
        self._rounds: defaultdict[str, _Gathering] = defaultdict(_Gathering)
        self._changed = threading.Condition()

    def expect(self, repository: str, pushers: int) -> None:
        self._rounds[repository].expected = pushers

    def push(self, request: Request, forward: Forward) -> Reply:
        round_ = self._round(request)
        with self._changed:
            round_.manifests.add(request.body)
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(round_.manifests) == round_.expected, _GATHERED_WITHIN):
                message = f"{len(round_.manifests)} of {round_.expected} pushed within {_GATHERED_WITHIN:g} s"
                headers = {"Content-Type": "application/json"}
                return Reply(400, headers, error_body("UNSUPPORTED", message))
            is_first, round_.is_begun = not round_.is_begun, True
        if not is_first:
            round_.pushed.wait(_GATHERED_WITHIN)
            round_.looked.wait(_LOOKED_WITHIN)
            time.sleep(_AFTER)
            return forward(request)
        reply = forward(request)
        round_.pushed.set()
        return reply

    def look(self, request: Request, forward: Forward) -> Reply:
        round_ = self._round(request)
        was_pushed = round_.pushed.is_set()
        reply = forward(request)
        if was_pushed:
            round_.looked.set()
        return reply

    def _round(self, request: Request) -> _Gathering:
        return self._rounds[request.path.removeprefix("/v2/").partition("/manifests/")[0]]


@contextlib.contextmanager
def immutable(directory: Path) -> Iterator[Course]:
    """As ECR does it: the first one has the tag."""
    with ecr_stubs(registry_image()) as ecr:
        ecr.registry.tokens.add(_TOKEN)

        def prepare(repository: str, pushers: int) -> None:
            ecr.client.create_repository(repositoryName=repository, imageTagMutability="IMMUTABLE")

        login = base64.b64encode(f"AWS:{_TOKEN}".encode()).decode()
        # Where tags stay a second look finds what the first one found.
        yield Course(ecr.host, ecr.host, login, prepare, settle="0")


class Run(Protocol):
    """Runs a round of a number, with the first of the pushers where not all are to take part."""

    def __call__(self, number: int, random: Random, of: int = ...) -> Race: ...


@contextlib.contextmanager
def racers(course: Course, count: int, directory: Path) -> Iterator[Run]:
    """So many pushers; what is given runs a round of a number."""
    with contextlib.ExitStack() as stack:
        digests, started = [], []
        for number in range(count):
            own = directory / f"racer-{number}"
            (own / "docker").mkdir(parents=True)
            (own / "image").mkdir()
            image = stack.enter_context(built(own / "image", NAME, bytes_=20_000))
            host = stack.enter_context(relay(course.host))
            auths = {host: {"auth": course.login}} if course.login else {}
            (own / "docker" / "config.json").write_text(json.dumps({"auths": auths}))
            digests.append(str(image.digest))
            settings = (host, image.digest, image.stored, str(own), course.settle)
            arguments = ("-P", "-m", "tests.integration.pushing", "serve", *settings)
            log = stack.enter_context((own / "log").open("w"))
            started.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
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
            course.prepare(f"{prefix}/{NAME}", of)
            order = random.sample(range(of), of)
            for racer in order:
                time.sleep(random.uniform(0, _SPREAD / of))
                inlet = started[racer].stdin
                assert inlet
                inlet.write(f"{prefix}\n")
                inlet.flush()
            codes = tuple(_code(racer) for racer in started[:of])
            tag_digest = course.named(f"{prefix}/{NAME}")
            return Race(codes, digests.index(tag_digest) if tag_digest in digests else None)

        yield race


def _code(racer: "subprocess.Popen[str]") -> int:
    assert racer.stdout
    return int(json.loads(racer.stdout.readline())["code"])


def _end(racer: "subprocess.Popen[str]") -> None:
    racer.communicate(timeout=30)


def summary(races: Sequence[Race]) -> str:
    """Return the results of rounds in one line."""
    codes = Counter(code for race in races for code in race.codes)
    ends = {0: "published", TagTakenError.exit_code: "reported the conflict"}
    pushers = ", ".join(
        f"{number} {ends.get(code, f'exit {code}')}" for code, number in sorted(codes.items())
    )
    decided = sum(race.is_decided for race in races)
    lied_to = sum(bool(race.lied_to) for race in races)
    return f"{len(races)} rounds, {decided} decided, {lied_to} with a loser that reported success; {pushers}"
