"""Registries selected by `--registry`, the project's settings or a ledger record."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.catalog.project import Project
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.engine import provision
from bakehouse.errors import Diagnostic, EngineError, PublishError, UsageError
from bakehouse.registry import docker_push
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.ecr_endpoints import check_host, is_ecr, registry_host
from bakehouse.registry.local_registry import EmbeddedRegistry
from bakehouse.registry.registry import NamedRegistry, Registry
from bakehouse.util.aws import Access
from bakehouse.util.oci import check_names
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

_BY_NAME = ("local", "ecr")
"""What is no address, and needs no settings."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Registries and prefix that images are published to."""

    registries: tuple[Registry, ...]
    """One, or those of an account in several regions, the foremost first."""
    prefix: str
    """What repositories begin with."""
    scan: str = ""
    """The least severity of a finding that keeps an image from being released; empty asks for no scan."""


@contextlib.contextmanager
def destination(project: Project, to: str, say: Reporter, *, create: bool = False) -> Iterator[Destination]:
    """Open what `--registry` names: `local`, `ecr`, a configured registry or a host; a prefix may follow.

    Without it, it is the project's own.
    """
    name, _, prefix = (to or project.registry).partition("/")
    settings = project.registries.get(name)
    if settings and not settings.host:
        registries = tuple(_of_region(settings, region, create=create) for region in settings.regions)
        own = settings.prefix or project.repository_prefix
        yield Destination(registries, prefix or own, settings.scan)
        return
    host = settings.host if settings else name
    own = (settings.prefix if settings else "") or project.repository_prefix
    _check_known(project, host)
    with registry(project, host, say, create=create) as found:
        known = settings_of(project, host)
        yield Destination((found,), prefix or own, known.scan if known else "")


def check(project: Project, to: str) -> None:
    """Refuse what can't be a destination before anything is built for it; nobody is asked."""
    name, _, prefix = (to or project.registry).partition("/")
    settings = project.registries.get(name)
    hosts = [settings.host if settings else name]
    if settings and not settings.host:
        hosts = [host for _, host in _hosts(settings)]
    prefix = prefix or (settings.prefix if settings else "") or project.repository_prefix
    for host in hosts:
        _check_known(project, host)
        check_host(host)
        check_names("localhost" if host in _BY_NAME else host, f"{prefix}/image")


@contextlib.contextmanager
def registry(project: Project, host: str, say: Reporter, *, create: bool = False) -> Iterator[Registry]:
    """The registry at an address: the embedded one, Amazon ECR as the settings have it, or another."""
    if host in ("local", f"127.0.0.1:{project.registry_port}"):
        # Where it can't be installed, the registry's image takes its place.
        with contextlib.suppress(EngineError):
            provision.ensure_tools(provision.ask_at_terminal, say, "docker-registry")
        with EmbeddedRegistry(project.state / "registry", project.registry_port) as embedded:
            yield embedded
    elif settings := settings_of(project, host):
        region = next(region for region, one in _hosts(settings) if one == host)
        yield _of_region(settings, region, create=create)
    elif host == "ecr":
        yield EcrRegistry(region=project.region, create=create)
    elif is_ecr(host):
        check_host(host)
        yield EcrRegistry(host=host, create=create)
    else:
        check_host(host)
        yield NamedRegistry(host, docker_push.docker_login)


def settings_of(project: Project, host: str) -> RegistrySettings | None:
    """What the project's settings say of an address of Amazon ECR."""
    for settings in project.registries.values():
        # One that can't be right is told of where it is meant.
        with contextlib.suppress(PublishError):
            if settings.account and any(one == host for _, one in _hosts(settings)):
                return settings
    return None


def _hosts(settings: RegistrySettings) -> list[tuple[str, str]]:
    """The address of each region."""
    return [(region, _host(settings, region)) for region in settings.regions]


def _host(settings: RegistrySettings, region: str) -> str:
    return registry_host(settings.account, region, fips=settings.fips, dual_stack=settings.dual_stack)


def _of_region(settings: RegistrySettings, region: str, *, create: bool) -> EcrRegistry:
    access = Access(settings.profile, settings.role, settings.fips, settings.dual_stack)
    return EcrRegistry(
        host=_host(settings, region),
        region=region,
        account=settings.account,
        access=access,
        create=create,
        creation=settings.create,
    )


def _check_known(project: Project, host: str) -> None:
    """A host has a dot or a port: what has neither was meant to be a name of the settings."""
    if host in (*_BY_NAME, "localhost") or "." in host or ":" in host:
        return
    known = ("local", "ecr", *project.registries)
    hint = suggestion(host, known) or "name one of [tool.bakehouse.registries], or a host"
    raise UsageError(Diagnostic(f"there is no registry `{host}`", hint=hint))
