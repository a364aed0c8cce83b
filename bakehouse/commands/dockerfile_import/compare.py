"""`init --compare`: builds a Dockerfile and the recipe that replaces it, and lists how the images differ."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.commands.dockerfile_import.shell import has_variables
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild
from bakehouse.engine import buildx
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError, EngineError, UsageError
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import Selection
from bakehouse.util.dockerfile_reader import instructions
from bakehouse.util.files import read_text, write_whole
from bakehouse.util.oci import PLATFORM
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

_FIND = "find / -xdev ! -regex '/\\(dev\\|proc\\|sys\\|run\\|tmp\\|var/\\(cache\\|log\\|tmp\\)\\)/.*'"
_LISTING = rf"""
{_FIND} -printf 'path %p\t%y %m %U:%G %l\n'
{_FIND} -type f -exec sha256sum '{{}}' + | sed -E 's/^\\?([0-9a-f]+) ./sum \1\t/'
dpkg-query -W -f 'package ${{Package}}\t${{Version}}\n' || rpm -qa --qf 'package %{{NAME}}\t%{{EVR}}\n'
{_FIND} -path '*-packages/*.dist-info/METADATA' |
  sed -E 's#.*/(.*)-(.*)\.dist-info/METADATA#distribution \1\t\2#'
true
"""
"""Lists paths with mode, owner and link, checksums, and packages of the distribution and of Python."""
_IGNORED = re.compile(
    r"/|/var/lib/(?:apt/lists|dpkg/[^/]*-old).*|/root/\.cache.*|.*/__pycache__.*|.*\.pyc"
    r"|/\.dockerenv|/etc/(?:hostname|hosts|resolv\.conf|ld\.so\.cache|mtab|[^/]*-)"
)
"""Caches, and files that the engine writes."""
_SETTINGS = ("Cmd", "Entrypoint", "Shell", "StopSignal", "User", "Volumes", "WorkingDir")
_SECONDS, _MAX_PATHS = 1800.0, 200
Content = dict[str, dict[str, str]]
"""Values by name of an image, by kind: `path`, `package`, `distribution`, `variable` and `setting`."""


def require_allowed(dockerfile: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError without a Dockerfile, and in pipelines of pull requests, whose authors are unknown."""
    if not dockerfile:
        raise UsageError("`--compare` needs a Dockerfile", hint="name it with `--from-dockerfile`")
    for name, pattern in names("pull_requests").items():
        if re.fullmatch(pattern, environment.get(name, "")):
            raise UsageError(
                f"a pipeline of a pull request builds no Dockerfile of strangers, and {name} is set",
                hint="read the Dockerfile, and run `bake init --compare` on your machine",
            )


def compare(selection: Selection, original: DockerfileBuild, report: Reporter) -> list[str]:
    """Build a Dockerfile and the selected recipe; return their differences. Raises BuildError."""
    [built] = build(selection, report)
    state, tag = selection.workspace.project.state, f"bakehouse/{built.image.name}:original"
    target: dict[str, object] = {"target": original.target} if original.target else {}
    target |= {"context": str(original.context.resolve()), "dockerfile": str(original.path.resolve())}
    target |= {"args": dict(original.arguments), "tags": [tag], "output": ["type=docker"]}
    target |= {"platforms": [PLATFORM], "attest": []}
    lines: list[str] = []
    with open_engine(report, *BUILD_FEATURES) as engine, private_directory(state) as directory:
        bake_file = directory / "original.json"
        write_whole(bake_file, json.dumps({"target": {"original": target}}))
        options = buildx.BakeOptions(directory, state, lambda event: None)
        report(f"building {original.path.name}")
        try:
            buildx.bake([buildx.Target(tag, "original", bake_file)], options)
        except BuildError as error:
            reference = built.image.base.reference
            lines = [f"built on {reference} instead of its own base: {error.diagnostics[0].message}"]
            steps = instructions(read_text(original.path, errors="replace"))
            bases = [step.text.split()[0] for step in steps if step.keyword == "FROM"]
            contexts = {base: f"docker-image://{reference}" for base in bases if not has_variables(base)}
            buildx.bake([buildx.Target(tag, "original", bake_file, contexts=contexts)], options)
        try:
            contents = [read_content(engine, image, directory / "list.log") for image in (tag, built.stored)]
        finally:
            engine.remove_image(tag)
    return [*lines, *differences(*contents)]


def read_content(engine: Engine, image: str, log: Path) -> Content:
    """Return the content of an image of the engine, listed in a container without network."""
    with engine.container(ContainerSpec(image, ("sh", "-c", _LISTING))) as container:
        container.start(log)
        status = container.wait(_SECONDS)
        container.stop(grace=0)
        rows = re.findall(r"(?m)^(\w+) ([^\t\n]*)\t(.*)$", container.stdout())
    if status is None or status.exit_code or not rows:
        raise EngineError(f"the files of `{image}` are not known: its shell cannot list them")
    content: Content = {"path": {}, "package": {}, "distribution": {}}
    for kind, name, value in rows:
        if kind == "sum":
            content["path"][value] = f"{content['path'].get(value, '')} {name[:12]}"
        elif kind != "path" or not _IGNORED.fullmatch(name):
            content[kind][name] = value.rstrip()
    content["path"] = {path: text for path, text in content["path"].items() if not _IGNORED.fullmatch(path)}
    config = json.loads(engine.read_config(image)).get("config") or {}
    content["variable"] = dict(pair.partition("=")[::2] for pair in config.get("Env") or ())
    content["setting"] = {name: json.dumps(config[name]) for name in _SETTINGS if config.get(name)}
    return content


def differences(first: Content, second: Content) -> list[str]:
    """Return a line for each difference between the image of a Dockerfile and that of its recipe."""
    paths = [*_differences("path", first["path"], second["path"])]
    more = [f"and {len(paths) - _MAX_PATHS:,} paths more"] if len(paths) > _MAX_PATHS else []
    same = sum(second["path"].get(path) == text for path, text in first["path"].items())
    others = [
        line for kind in first if kind != "path" for line in _differences(kind, first[kind], second[kind])
    ]
    return [*others, *paths[:_MAX_PATHS], *more, f"{same:,} paths are the same, {len(paths):,} differ"]


def _differences(kind: str, first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield f"{kind} {name}: {first.get(name, 'none')}, in the recipe {second.get(name, 'none')}"
