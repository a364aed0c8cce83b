"""Registries selected by `--registry`, the project's settings or a ledger record."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.engine import docker, provision
from bakehouse.errors import PublishError, RegistryAuthError, UsageError
from bakehouse.registry import registry_image
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.ecr_endpoints import check_host, is_ecr, registry_host
from bakehouse.registry.local_registry import EmbeddedRegistry, RegistryContainer, RegistryStatus
from bakehouse.registry.registry import Credentials, NamedRegistry, Registry
from bakehouse.util.aws import Access
from bakehouse.util.files import make_directory
from bakehouse.util.oci import check_names, is_named
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter


def docker_login(host: str) -> Credentials | None:
    """Return the login of `docker login` for a registry, from docker's file or credential helper.

    Raises RegistryAuthError for a login that cannot be read or used.
    """
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        authentication = load_config().resolve_authconfig(host) or {}
    except DockerException:
        # The helper's own message may contain secrets.
        raise RegistryAuthError(
            f"cannot read docker's login for `{host}`: its credential helper is missing or failed",
            hint=f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {host}`",
        ) from None
    except (ValueError, KeyError, AttributeError, TypeError):
        # docker's Python package does not check what it reads.
        raise RegistryAuthError(
            f"cannot read docker's login for `{host}`: invalid settings or output of its helper",
            hint="check `auths` and the credential helper in docker's settings, "
            f"or run `docker login {host}`",
        ) from None
    # The names are lower case in the file, but not in a helper's output.
    login = {name.lower(): value for name, value in authentication.items()}
    if login.get("identitytoken"):
        raise RegistryAuthError(
            f"docker's login for `{host}` is an identity token, which Bakehouse does not support",
            hint=f"log in with a user name and a password or access token: `docker login {host}`",
        )
    username, password = login.get("username"), login.get("password")
    return Credentials(username, password) if username and password else None


_ACTIONS = ("start", "stop", "status")
_BY_NAME = ("local", "ecr")
"""Registries that are selected by a name without settings."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Registries and prefix that images are published to."""

    registries: tuple[Registry, ...]
    """One registry, or those of an account in several regions, the primary one first."""
    prefix: str
    """Prefix of repositories."""
    scan: str = ""
    """Lowest severity of scan findings that fails; empty requests no scan."""


@contextlib.contextmanager
def destination(
    project: ProjectSettings, selection: str, progress: Reporter, *, create: bool = False
) -> Iterator[Destination]:
    """Open the registries that `--registry` selects; without it, those of the project.

    `selection` is `local`, `ecr`, a registry of the settings or a host. A prefix may follow.
    """
    host, settings, prefix = _select(project, selection)
    if settings and not settings.host:
        yield Destination(_in_regions(project, settings, create=create), prefix, settings.scan)
        return
    check_known(project, host)
    with registry(project, host, progress, create=create) as selected:
        ecr_settings = settings_of(project, host)
        yield Destination((selected,), prefix, ecr_settings.scan if ecr_settings else "")


def registries(project: ProjectSettings, selection: str, *, create: bool = False) -> tuple[Registry, ...]:
    """Return the registries that `--registry` selects, for requests; the local one is not started."""
    host, settings, _ = _select(project, selection)
    if settings and not settings.host:
        return _in_regions(project, settings, create=create)
    check_known(project, host)
    if is_local(project, host):
        return (local_registry(project),)
    return (_remote(project, host, create=create),)


def prefix(project: ProjectSettings, selection: str) -> str:
    """Return the prefix of the repositories that `--registry` selects."""
    return _select(project, selection)[2]


def is_selected(project: ProjectSettings, selection: str, host: str, repository: str) -> bool:
    """Return whether `--registry` selects a repository of a host, without network requests."""
    name, settings, prefix = _select(project, selection)
    if not repository.startswith(f"{prefix}/"):
        return False
    if settings and not settings.host:
        return any(host == other for _, other in _hosts(settings))
    return is_named(host, "local" if is_local(project, name) else name)


def check_selection(project: ProjectSettings, selection: str) -> None:
    """Raise an error for an impossible destination before a build, without network requests."""
    host, settings, prefix = _select(project, selection)
    hosts = [name for _, name in _hosts(settings)] if settings and not settings.host else [host]
    for name in hosts:
        check_known(project, name)
        check_host(name)
        check_names("localhost" if name in _BY_NAME else name, f"{prefix}/image")


def _select(project: ProjectSettings, selection: str) -> tuple[str, RegistrySettings | None, str]:
    """Host or name, settings and prefix of a selected registry."""
    name, _, prefix = (selection or project.registry).partition("/")
    settings = project.registries.get(name)
    host = settings.host if settings else name
    return host, settings, prefix or (settings.prefix if settings else "") or project.repository_prefix


@contextlib.contextmanager
def registry(
    project: ProjectSettings, host: str, progress: Reporter, *, create: bool = False
) -> Iterator[Registry]:
    """Open the registry of a host: the local one, Amazon ECR with its settings, or another."""
    if is_local(project, host):
        with local_registry(project, progress) as local:
            yield local
    else:
        yield _remote(project, host, create=create)


def is_local(project: ProjectSettings, host: str) -> bool:
    """Return whether a host or name selects the local registry."""
    return host in ("local", f"127.0.0.1:{project.registry_port}")


def _ignore(line: str) -> None:
    """Ignore a line of progress: a registry that is not started reports nothing."""


def local_registry(project: ProjectSettings, progress: Reporter = _ignore) -> EmbeddedRegistry:
    """Return the local registry of this user, not started."""

    def container() -> RegistryContainer:
        daemon = provision.ensure(provision.ask_at_terminal, progress)
        state = project.registry_state
        make_directory(state)
        with contextlib.closing(docker.connect()) as engine:
            in_volume = not engine.sees(state)
        # A volume belongs to root. The user of a rootless engine is root inside its containers.
        user = "0:0" if in_volume or daemon.rootless else f"{os.getuid()}:{os.getgid()}"
        image = registry_image.ensure(project, daemon.platform, progress)
        return RegistryContainer(image, user, in_volume, selinux=daemon.selinux)

    former = project.root / "build/registry"
    registry = EmbeddedRegistry(project.registry_state, project.registry_port, container, former=former)
    if note := registry.former_images:
        progress(note)
    return registry


def manage_local(project: ProjectSettings, action: str, report: Reporter) -> RegistryStatus:
    """Start or stop the local registry, and return its state. Raises UsageError for an unknown action."""
    if action not in _ACTIONS:
        raise UsageError(
            f"`registry` has no action `{action}`",
            hint=suggestion(action, _ACTIONS) or "use `start`, `stop` or `status`",
        )
    registry = local_registry(project, report)
    if action == "start":
        with registry:
            registry.keep()
    elif action == "stop":
        was_running = registry.is_running() or registry.is_former_running()
        if not registry.stop():
            raise PublishError(
                f"the registry at {registry.host} is in use",
                hint="it stops when the running push or release ends",
            )
        if was_running:
            report(f"stopped the registry at {registry.host}")
    else:
        # It reports another server on the port.
        registry.check_port()
    return registry.status()


def _remote(project: ProjectSettings, host: str, *, create: bool) -> Registry:
    if settings := settings_of(project, host):
        region = next(region for region, name in _hosts(settings) if name == host)
        return _in_region(project, settings, region, create=create)
    if host == "ecr":
        return EcrRegistry(region=project.region, create=create, ca=project.ca)
    check_host(host)
    if is_ecr(host):
        return EcrRegistry(host=host, create=create, ca=project.ca)
    return NamedRegistry(host, docker_login, project.ca)


def settings_of(project: ProjectSettings, host: str) -> RegistrySettings | None:
    """Return the project's settings of a host of Amazon ECR."""
    for settings in project.registries.values():
        # Invalid settings are reported when they are selected.
        with contextlib.suppress(PublishError):
            if settings.account and any(name == host for _, name in _hosts(settings)):
                return settings
    return None


def _hosts(settings: RegistrySettings) -> list[tuple[str, str]]:
    """Regions with the hosts of their registries."""
    return [(region, _host(settings, region)) for region in settings.regions]


def _host(settings: RegistrySettings, region: str) -> str:
    return registry_host(settings.account, region, fips=settings.fips, dual_stack=settings.dual_stack)


def _in_regions(
    project: ProjectSettings, settings: RegistrySettings, *, create: bool
) -> tuple[EcrRegistry, ...]:
    return tuple(_in_region(project, settings, region, create=create) for region in settings.regions)


def _in_region(
    project: ProjectSettings, settings: RegistrySettings, region: str, *, create: bool
) -> EcrRegistry:
    access = Access(settings.profile, settings.role, settings.fips, settings.dual_stack)
    return EcrRegistry(
        host=_host(settings, region),
        region=region,
        account=settings.account,
        access=access,
        create=create,
        creation=settings.create,
        ca=project.ca,
    )


def check_known(project: ProjectSettings, host: str) -> None:
    """Raise UsageError for an unknown name: a host has a dot or a port."""
    if host in (*_BY_NAME, "localhost") or "." in host or ":" in host:
        return
    hint = suggestion(host, (*_BY_NAME, *project.registries))
    raise UsageError(
        f"there is no registry `{host}`", hint=hint or "use a name of [tool.bakehouse.registries], or a host"
    )
