"""Protocol of the registries that images are pushed to."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bakehouse.errors import Reason
from bakehouse.util.deadline import OverdueError, bounded

if TYPE_CHECKING:
    # Looking up an address imports this module, and has no time for what these import.

    from bakehouse.util.oci import Digest


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a password; the password stays out of every text."""

    username: str
    password: str = field(repr=False)


class Registry(Protocol):
    """Registry that images are pushed to."""

    @property
    def host(self) -> str:
        """Its address as references begin with it, port included."""

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        """How to log in; `renew` when what was given before was not accepted."""

    def create_repository(self, repository: str, moving_tag: str) -> None:
        """Called when the registry does not know the repository: make it, or raise what to do.

        `moving_tag` is the only tag there that may move.
        """

    def principal(self) -> str:
        """Return the identity of pushes, as the subject of a sentence; empty without a login."""

    def known_problems(self) -> tuple[Reason, ...]:
        """Return problems on this side that can make a push fail."""


@runtime_checkable
class HasPushDate(Protocol):
    """Registry that records push dates."""

    def pushed(self, repository: str, digest: "Digest") -> str:
        """When a digest was pushed, and by whom where that is known; empty where it isn't."""


class DeadlineRegistry:
    """A registry that has answered by a moment of time.monotonic(), or raises OverdueError.

    What logs in may be a program of docker's, or a service that does not answer.
    """

    def __init__(self, registry: Registry, until: float) -> None:
        self._registry = registry
        self._until = until
        self.host = bounded(lambda: registry.host, until)

    def credentials(self, *, renew: bool = False) -> Credentials | None:
        return bounded(lambda: self._registry.credentials(renew=renew), self._until)

    def create_repository(self, repository: str, moving_tag: str) -> None:
        bounded(lambda: self._registry.create_repository(repository, moving_tag), self._until)

    def principal(self) -> str:
        # The report at the end contains it.
        with suppress(OverdueError):
            return bounded(self._registry.principal, self._until)
        return ""

    def known_problems(self) -> tuple[Reason, ...]:
        return self._registry.known_problems()

    def pushed(self, repository: str, digest: "Digest") -> str:
        if not isinstance(self._registry, HasPushDate):
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

    def create_repository(self, repository: str, moving_tag: str) -> None:
        pass

    def principal(self) -> str:
        credentials = self.credentials()
        return f"docker's login `{credentials.username}`" if credentials else ""

    def known_problems(self) -> tuple[Reason, ...]:
        return ()
