"""What every registry has to answer for an image to be pushed there, and the names that registries take."""

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bakehouse.deadline import OverdueError, bounded
from bakehouse.errors import Diagnostic, PublishError, Reason

if TYPE_CHECKING:
    # Looking up an address imports this module, and has no time for what these import.
    from datetime import date

    from bakehouse.plan import Digest, ImageKey

_REPOSITORY = re.compile(
    r"(?:[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?")
_REPOSITORY_LENGTHS = range(2, 257)
ECR_HOST = re.compile(r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+")
"""Amazon ECR's addresses, in every partition."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a password; the password stays out of every text."""

    username: str
    password: str = field(repr=False)


class Registry(Protocol):
    """A place that images are pushed to."""

    @property
    def host(self) -> str:
        """Its address as references begin with it, port included."""

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        """How to log in; `renew` when what was given before was not accepted."""

    def make_repository(self, repository: str, alias: str) -> None:
        """Called when the registry does not know the repository: make it, or raise what to do.

        `alias` is the one tag there that may move.
        """

    def whom(self) -> str:
        """Whom the registry sees when we push, as the subject of a sentence; empty where nobody logs in."""

    def troubles(self) -> tuple[Reason, ...]:
        """What is known on this side that can make a push fail."""


@runtime_checkable
class Dated(Protocol):
    """A registry that knows when something was pushed."""

    def pushed(self, repository: str, digest: "Digest") -> str:
        """When a digest was pushed, and by whom where that is known; empty where it isn't."""


class InTime:
    """A registry that has answered by a moment of time.monotonic(), or raises OverdueError.

    What logs in may be a program of docker's, or a service that does not answer.
    """

    def __init__(self, registry: Registry, until: float) -> None:
        self._registry = registry
        self._until = until
        self.host = bounded(lambda: registry.host, until)

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        return bounded(lambda: self._registry.credentials(renew=renew), self._until)

    def make_repository(self, repository: str, alias: str) -> None:
        bounded(lambda: self._registry.make_repository(repository, alias), self._until)

    def whom(self) -> str:
        # It is part of what is told at the end.
        with suppress(OverdueError):
            return bounded(self._registry.whom, self._until)
        return ""

    def troubles(self) -> tuple[Reason, ...]:
        return self._registry.troubles()

    def pushed(self, repository: str, digest: "Digest") -> str:
        if not isinstance(self._registry, Dated):
            return ""
        dated = self._registry
        return bounded(lambda: dated.pushed(repository, digest), self._until)


class NamedRegistry:
    """Any registry that `docker login` knows; it makes repositories by itself when they are pushed to."""

    def __init__(self, host: str, login: Callable[[str], Credentials | None]) -> None:
        self.host = host
        self._login = login
        self._known: tuple[Credentials | None, ...] = ()
        """What docker stores for the host, once it was asked, which may start a program."""

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        if renew or not self._known:
            self._known = (self._login(self.host),)
        return self._known[0]

    def make_repository(self, repository: str, alias: str) -> None:
        pass

    def whom(self) -> str:
        credentials = self.credentials()
        return f"docker's login `{credentials.username}`" if credentials else ""

    def troubles(self) -> tuple[Reason, ...]:
        return ()


def is_loopback(host: str) -> bool:
    """Whether a registry is on this machine, where it is asked over plain HTTP as docker does."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def is_named(host: str, registry: str) -> bool:
    """Whether people mean this host by `local`, by `ecr`, or by its own name."""
    match registry:
        case "local":
            return is_loopback(host)
        case "ecr":
            return ECR_HOST.fullmatch(host) is not None
        case _:
            return host == registry


def region_of(host: str) -> str:
    """The region of an Amazon ECR registry; empty for any other."""
    found = ECR_HOST.fullmatch(host)
    return found["region"] if found else ""


def immutable_tag(identifier: str, day: "date", key: "ImageKey") -> str:
    """The tag of one release: what it is, when it was published, what went into it."""
    return f"{identifier}-{day:%Y%m%d}-{key[:8]}"


def candidate_tag(identifier: str, digest: "Digest") -> str:
    """The tag of what is published to be tried; it can't come to mean another image: the digest is in it."""
    return f"{identifier}-candidate-{digest.removeprefix('sha256:')[:16]}"


def is_release_of(tag: str, identifier: str, key: "ImageKey") -> bool:
    """Whether a tag is an immutable one of this image, of any day."""
    return re.fullmatch(rf"{re.escape(identifier)}-[0-9]{{8}}-{re.escape(key[:8])}", tag) is not None


def release_day(tag: str) -> "date | None":
    """The day in the tag of a release; None where it is no such tag."""
    from datetime import date

    found = re.fullmatch(r".+-([0-9]{8})-[0-9a-f]{8}", tag)
    return date.fromisoformat(found[1]) if found else None


def check_names(host: str, repository: str, *tags: str) -> None:
    """Refuse names that a registry would refuse after minutes of pushing."""
    if not _HOST.fullmatch(host):
        message = f"`{host}` is not the address of a registry"
        hint = "write a host and, where needed, a port, as in `registry.example.com:5000`"
        raise PublishError(Diagnostic(message, hint=hint))
    if not _REPOSITORY.fullmatch(repository) or len(repository) not in _REPOSITORY_LENGTHS:
        message = f"`{repository}` can't be the name of a repository"
        rule = "2 to 256 characters: lower-case letters and digits, joined by `.`, `_`, `-` or `/`"
        raise PublishError(Diagnostic(message, reasons=(Reason(f"registries take {rule}"),)))
    for tag in tags:
        if not _TAG.fullmatch(tag):
            message = f"`{tag}` can't be a tag"
            rule = "at most 128 letters, digits, `.`, `_` and `-`, not beginning with `.` or `-`"
            raise PublishError(Diagnostic(message, reasons=(Reason(f"registries take {rule}"),)))
