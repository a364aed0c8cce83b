"""Lets BuildKit pull bases from registries that want a login, without `docker login`.

buildx asks docker's configuration for credentials when BuildKit wants some. It is given one of its own: the
user's, and the logins. That lies in a private folder until the build ends, and on no command line.
"""

import base64
import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bakehouse.catalog.project import Project
from bakehouse.errors import PublishError
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.registry import destination
from bakehouse.registry.ecr_endpoints import is_ecr
from bakehouse.registry.registry import Credentials
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

_CONFIG = "config.json"


@contextlib.contextmanager
def docker_logins(
    hosts: Collection[str],
    login: Callable[[str], Credentials | None],
    *,
    state: Path,
    report: Reporter,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[dict[str, str]]:
    """The variables with which buildx is logged in to registries; none where there is nothing to add.

    A helper of docker's that somebody has set up for a host is left to it; where no login can be had, the
    user's own are.
    """
    own = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
    config = _read(own / _CONFIG)
    found = {}
    for host in sorted(set(hosts) - set(config.get("credHelpers") or {})):
        try:
            found[host] = login(host)
        except PublishError as error:
            told = error.diagnostics[0]
            reasons = "".join(f"; {reason.text}" for reason in told.reasons)
            report(f"no login to `{host}`, where a base lies: {told.message}{reasons}")
    given = {host: credentials for host, credentials in found.items() if credentials}
    if not given:
        yield {}
        return
    with private_directory(state) as folder:
        # Contexts, builders and plugins lie beside it.
        for beside in own.iterdir() if own.is_dir() else ():
            if beside.name != _CONFIG:
                (folder / beside.name).symlink_to(beside.absolute())
        file = folder / _CONFIG
        file.touch(mode=0o600)
        file.write_text(json.dumps(_with(config, given)))
        builders = environment.get("BUILDX_CONFIG") or str(own.absolute() / "buildx")
        yield {"DOCKER_CONFIG": str(folder.absolute()), "BUILDX_CONFIG": builders}


@contextlib.contextmanager
def base_logins(references: Iterable[str], project: Project, report: Reporter) -> Iterator[dict[str, str]]:
    """As `logins`, for what bases lie in Amazon ECR, with whatever the settings say of that."""
    hosts = {host for reference in references if is_ecr(host := reference.partition("/")[0])}

    def login(host: str) -> Credentials | None:
        with destination.registry(project, host, report) as registry:
            return registry.credentials()

    with docker_logins(hosts, login, state=project.state, report=report) as variables:
        yield variables


def pulled_bases(images: Iterable[Image]) -> Iterator[str]:
    """The references of the bases that images are built from and that are pulled."""
    for image in images:
        if isinstance(image.base, RegistryBase):
            yield image.base.reference
        if image.build_base:
            yield image.build_base


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _with(config: Mapping[str, Any], given: Mapping[str, Credentials]) -> dict[str, Any]:
    auths, helpers = dict(config.get("auths") or {}), dict(config.get("credHelpers") or {})
    for host, credentials in given.items():
        login = f"{credentials.username}:{credentials.password}".encode()
        auths[host] = {"auth": base64.b64encode(login).decode()}
        if config.get("credsStore"):
            # A store is asked for every host that has no helper; an empty one means this very file.
            helpers[host] = ""
    return {**config, "auths": auths, **({"credHelpers": helpers} if helpers else {})}
