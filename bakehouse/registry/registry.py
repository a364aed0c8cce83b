"""Protocol of the registries that images are pushed to."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bakehouse.errors import Reason
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import ConnectionSettings, machine_settings
from bakehouse.fetch.http_client import HttpClient
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.oci import Digest, is_loopback


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, which no message contains."""

    username: str
    password: str = field(repr=False)


class Registry(Protocol):
    """Registry that images are pushed to."""

    @property
    def host(self) -> str:
        """Host and port, with which references begin."""

    @property
    def client(self) -> HttpClient:
        """HTTP client for its requests."""

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        """Return the login; `renew` it after the registry has rejected the previous one."""

    def create_repository(self, repository: str, moving_tag: str) -> None:
        """Create a missing repository, or raise PublishError with a hint.

        `moving_tag` is its only mutable tag.
        """

    def principal(self) -> str:
        """Return the identity of pushes, as the subject of a sentence; empty without a login."""

    def known_problems(self) -> tuple[Reason, ...]:
        """Return problems on this side that can make a push fail."""

    def pushed(self, repository: str, digest: Digest) -> str:
        """Return when a digest was pushed, and by which user; empty if unknown."""


def open_client(host: str, ca: Path | None) -> HttpClient:
    """Return a client for a registry, which also trusts the certificates in `ca`.

    A registry on loopback is reached without a proxy.
    """
    settings = ConnectionSettings() if is_loopback(host) else machine_settings(ca, pip_config.read())
    return HttpClient(settings)


class DeadlineRegistry:
    """Registry whose calls raise OverdueError after a deadline by time.monotonic().

    A login may run a credential helper of docker, or call a service that does not respond.
    """

    def __init__(self, registry: Registry, until: float) -> None:
        self._registry = registry
        self._until = until
        self.host = bounded(lambda: registry.host, until)
        self.client = registry.client

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        return bounded(lambda: self._registry.credentials(renew=renew), self._until)

    def create_repository(self, repository: str, moving_tag: str) -> None:
        bounded(lambda: self._registry.create_repository(repository, moving_tag), self._until)

    def principal(self) -> str:
        # An error message contains it, also the one for a passed deadline.
        with suppress(OverdueError):
            return bounded(self._registry.principal, self._until)
        return ""

    def known_problems(self) -> tuple[Reason, ...]:
        return self._registry.known_problems()

    def pushed(self, repository: str, digest: Digest) -> str:
        return bounded(lambda: self._registry.pushed(repository, digest), self._until)


class NamedRegistry:
    """Registry with a login such as that of `docker login`; a push creates its repositories."""

    def __init__(self, host: str, login: Callable[[str], Credentials | None], ca: Path | None = None) -> None:
        self.host = host
        self.client = open_client(host, ca)
        self._login = login
        self._cache: tuple[Credentials | None, ...] = ()
        """The stored login, after it was read. Reading it may start a credential helper."""

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        if renew or not self._cache:
            self._cache = (self._login(self.host),)
        return self._cache[0]

    def create_repository(self, repository: str, moving_tag: str) -> None:
        pass

    def principal(self) -> str:
        credentials = self.credentials()
        return f"docker's login `{credentials.username}`" if credentials else ""

    def known_problems(self) -> tuple[Reason, ...]:
        return ()

    def pushed(self, repository: str, digest: Digest) -> str:
        return ""
