"""Builders of buildx by name: their drivers, nodes and BuildKit workers."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine.daemon_info import ProgramResult, run_program
from bakehouse.errors import EngineError, UsageError
from bakehouse.util.suggest import suggestion

DOCKER = "docker"
"""Driver that uses the BuildKit of a docker engine; each docker context is such a builder."""
REMOTE = "remote"
"""Driver that connects to a BuildKit daemon."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FIELD = re.compile(r"^(?P<name>[A-Z][A-Za-z ]*):\s+(?P<value>.+)$")


@dataclass(frozen=True, slots=True)
class BuilderNode:
    """One BuildKit daemon of a builder."""

    name: str
    endpoint: str
    """`tcp://HOST:PORT`, `unix://PATH`, or the name of a docker context."""
    options: Mapping[str, str]
    """Driver options, such as the paths of certificates."""


@dataclass(frozen=True, slots=True)
class Builder:
    """A builder that `docker buildx create` or a docker context defines."""

    name: str
    driver: str
    nodes: tuple[BuilderNode, ...]


@dataclass(frozen=True, slots=True)
class Worker:
    """Description of a node's BuildKit, as `docker buildx inspect` prints it."""

    status: str
    version: str
    platforms: tuple[str, ...]
    cache_limit: str
    """Limit of the build cache, which BuildKit can exceed for a short time; empty without a limit."""
    error: str


Program = Callable[..., ProgramResult]
"""Runs a program that returns information."""


def find_builder(
    name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program
) -> Builder:
    """Return a builder by name, without connecting to it. Raises UsageError for an unknown name."""
    directory = _directory(environment) / "instances"
    contexts = run("docker", "context", "ls", "--format", "{{.Name}}")
    if contexts.code == 127:
        raise EngineError("the `docker` command is not installed", hint="run `bake doctor`")
    known = [path.name for path in directory.glob("*")] if directory.is_dir() else []
    known += contexts.out.split()
    if name not in known or not _NAME.fullmatch(name):
        raise UsageError(
            f"unknown builder `{name}`", hint=suggestion(name, known) or "`docker buildx ls` lists builders"
        )
    path = directory / name
    if not path.is_file():
        return Builder(name, DOCKER, (BuilderNode(name, name, {}),))
    try:
        definition = json.loads(path.read_text())
        nodes = tuple(
            BuilderNode(str(node["Name"]), str(node["Endpoint"]), dict(node.get("DriverOpts") or {}))
            for node in definition["Nodes"]
        )
        return Builder(name, str(definition["Driver"]), nodes)
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"the definition of builder `{name}` is damaged",
            hint=f"run `docker buildx rm {name}` and create it again",
        ) from error


def variables_of(
    name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program
) -> dict[str, str]:
    """Return the variables that select a builder. Raises UsageError for an unknown name."""
    # buildx builds on the engine of a docker context only if that context is the current one
    is_context = find_builder(name, environment, run).driver == DOCKER
    return {"BUILDX_BUILDER": name, **({"DOCKER_CONTEXT": name} if is_context else {})}


def _directory(environment: Mapping[str, str]) -> Path:
    """Return the directory in which buildx keeps its builders."""
    if own := environment.get("BUILDX_CONFIG"):
        return Path(own)
    home = Path(environment.get("HOME") or Path.home())
    return Path(environment.get("DOCKER_CONFIG") or home / ".docker", "buildx")


def read_workers(text: str) -> tuple[Worker, ...]:
    """Return the workers of the nodes from the output of `docker buildx inspect`."""
    nodes: list[dict[str, str]] = []
    for line in text.partition("\nNodes:\n")[2].splitlines():
        # Indented lines are labels and the rules of the cache; the last rule is the absolute limit.
        if match := re.match(r"\s+Keep Bytes:\s+(.+)$", line):
            nodes[-1]["Keep Bytes"] = match[1]
        elif match := _FIELD.match(line):
            if match["name"] == "Name":
                nodes.append({})
            if nodes:
                nodes[-1][match["name"]] = match["value"].strip()
    return tuple(
        Worker(
            status=node.get("Status", ""),
            version=node.get("BuildKit version", ""),
            platforms=tuple(filter(None, node.get("Platforms", "").replace("*", "").split(", "))),
            cache_limit=node.get("Keep Bytes", ""),
            error=node.get("Error", ""),
        )
        for node in nodes
    )
