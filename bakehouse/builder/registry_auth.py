"""Registry logins for BuildKit, so that it can pull private bases without `docker login`.

buildx reads credentials from docker's configuration. It gets a copy of the user's configuration with added
logins, in a private directory that exists until the build ends. No credentials are on a command line.
"""

import base64
import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import PublishError
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.registry import destination
from bakehouse.registry.ecr_endpoints import is_ecr
from bakehouse.registry.registry import Credentials
from bakehouse.util.files import read_bytes
from bakehouse.util.json_reader import parse_json
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
    """Yield environment variables that log buildx in to registries; none if there is nothing to add.

    A credential helper that the user configured for a host stays in use. If no login is available, the user's
    own login is used.
    """
    own = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
    config = _read(own / _CONFIG)
    logins = {}
    for host in sorted(set(hosts) - set(config.get("credHelpers") or {})):
        try:
            logins[host] = login(host)
        except PublishError as error:
            problem = error.diagnostics[0]
            reasons = "".join(f"; {reason.text}" for reason in problem.reasons)
            report(f"no login to the registry `{host}`: {problem.message}{reasons}")
    added = {host: credentials for host, credentials in logins.items() if credentials}
    if not added:
        yield {}
        return
    with private_directory(state) as directory:
        # The directory also contains contexts, builders and plugins.
        for path in own.iterdir() if own.is_dir() else ():
            if path.name != _CONFIG:
                (directory / path.name).symlink_to(path.absolute())
        file = directory / _CONFIG
        file.touch(mode=0o600)
        file.write_text(json.dumps(_merged_logins(config, added)))
        builders = environment.get("BUILDX_CONFIG") or str(own.absolute() / "buildx")
        yield {"DOCKER_CONFIG": str(directory.absolute()), "BUILDX_CONFIG": builders}


@contextlib.contextmanager
def ecr_logins(
    references: Iterable[str], project: ProjectSettings, report: Reporter
) -> Iterator[dict[str, str]]:
    """Log in to Amazon ECR for the references that are there, with the settings of the project."""
    hosts = {host for reference in references if is_ecr(host := reference.partition("/")[0])}

    def login(host: str) -> Credentials | None:
        with destination.registry(project, host, report) as registry:
            return registry.credentials()

    with docker_logins(hosts, login, state=project.state, report=report) as variables:
        yield variables


def pulled_bases(images: Iterable[Image]) -> Iterator[str]:
    """Yield the references of the vendor bases of images."""
    for image in images:
        if isinstance(image.base, RegistryBase):
            yield image.base.reference
        if image.build_base:
            yield image.build_base


def _read(path: Path) -> dict[str, Any]:
    try:
        config = parse_json(read_bytes(path))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _merged_logins(config: Mapping[str, Any], logins: Mapping[str, Credentials]) -> dict[str, Any]:
    auths, helpers = dict(config.get("auths") or {}), dict(config.get("credHelpers") or {})
    for host, credentials in logins.items():
        auth = f"{credentials.username}:{credentials.password}".encode()
        auths[host] = {"auth": base64.b64encode(auth).decode()}
        if config.get("credsStore"):
            # docker queries the store for hosts without a helper; an empty helper selects this file.
            helpers[host] = ""
    return {**config, "auths": auths, **({"credHelpers": helpers} if helpers else {})}
