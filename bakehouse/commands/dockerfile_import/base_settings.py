"""Settings of a base image, as its configuration in the engine or in a registry states them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.open_engine import open_engine
from bakehouse.errors import BakehouseError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import split_reference
from bakehouse.util.terminal import Reporter

ROOT = ("", "root", "0", "0:0", "root:root")


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """Settings in the configuration of a base image."""

    directory: str = "/"
    user: str = ""
    """Empty for root."""
    shell: tuple[str, ...] = ()
    """Empty for /bin/sh."""
    variables: Mapping[str, str] = field(default_factory=dict)
    start: tuple[str, ...] = ()
    """Words of ENTRYPOINT and CMD."""

    def __str__(self) -> str:
        parts = [f"WORKDIR {self.directory}", f"USER {self.user or 'root'}"]
        parts += [f"SHELL {' '.join(self.shell)}"] if self.shell else []
        parts += [f"starts `{' '.join(self.start)}`"] if self.start else []
        return f"{', '.join(parts)}, {len(self.variables)} variables"


def read_settings(configuration: bytes) -> BaseSettings:
    """Return the settings in the configuration of an image."""
    config = parse_json(configuration).get("config") or {}
    shell = tuple(config.get("Shell") or ())
    return BaseSettings(
        config.get("WorkingDir") or "/",
        "" if config.get("User", "") in ROOT else config["User"],
        () if shell == ("/bin/sh", "-c") else shell,
        dict(pair.partition("=")[::2] for pair in config.get("Env") or ()),
        (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())),
    )


def ask(reference: str, project: ProjectSettings, report: Reporter) -> BaseSettings | None:
    """Return the settings of an image of the engine, or of its registry; None if neither answers."""
    report(f"reading the settings of {reference}")
    try:
        with open_engine(report) as engine:
            return read_settings(engine.read_config(reference))
    except BakehouseError:
        pass
    image, _, digest = reference.partition("@")
    host, name, tag = split_reference(image)
    try:
        with destination.registry(project, host, report) as registry:
            repository = Repository(registry, name, RetryPolicy(attempts=3), report)
            manifest = repository.manifest(digest or tag)
            if manifest and manifest.image and manifest.image != manifest.digest:
                manifest = repository.manifest(manifest.image)
            return (
                read_settings(repository.blob(manifest.config.digest))
                if manifest and manifest.config
                else None
            )
    except (BakehouseError, RegistryError):
        return None
