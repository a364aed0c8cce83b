"""Build backends of source distributions, run in a container without network to learn the metadata."""

import contextlib
import json
import re
import threading
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from bakehouse.builder.build_inputs import BuildInputs
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.python_lock import Package, normal_name
from bakehouse.engine import daemon_info
from bakehouse.engine.buildkit_events import Event
from bakehouse.engine.step_output import telling_lines
from bakehouse.errors import BuildError, ConflictError, Diagnostic, Reason
from bakehouse.fetch.cache import METADATA
from bakehouse.fetch.downloader import Fetcher, MissingError, StoppedError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import FileKind, RequiredFile
from bakehouse.lock import locked_base, sdist_metadata
from bakehouse.lock import python as pylock
from bakehouse.lock.base_step import BuildSettings, run_step
from bakehouse.lock.interpreter import MAX_LINES
from bakehouse.lock.python import Index, Metadata
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import Workspace
from bakehouse.util.files import read_bytes, read_text, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.oci import PLATFORM, Sha256
from bakehouse.util.terminal import Reporter

_BASES = {"3.13": "debian-13", "3.11": "debian-12"}
"""The bases by the version of their Python; the last one replaces those of other versions."""
_DEFAULT_REQUIRES = ("setuptools>=40.8.0", "wheel")
"""Build requirements of projects that state none (PEP 518)."""
_LINUX = {"os_name": "posix", "platform_system": "Linux", "sys_platform": "linux"}
_MAX_STEPS = 5
_MISSING = re.compile(r"No matching distribution found for (.+)")
_UNDECLARED = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_DOCKERFILE = """\
FROM {{ base }} AS base
COPY wheels/ /wheels/
COPY sdist/ /sdist/
RUN --network=none python3 -m zipfile -e /wheels/pip-*.whl /pip && mkdir /output && \\
    PYTHONPATH=/pip python3 -m pip install --dry-run --ignore-installed --no-deps --use-pep517 \\
        --no-index --find-links /wheels --report /output/report.json /sdist/* > /output/log 2>&1 || true

FROM scratch
COPY --from=base /output/ /
"""


@dataclass(frozen=True)
class Backends:
    """Runs build backends, each once per source distribution; `run` is the `run_backend` of an index."""

    workspace: Workspace
    report: Reporter
    on_event: Callable[[Event], None]
    known: dict[str, Metadata] = field(default_factory=dict)
    """Metadata by the sha256 of the source distribution."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, requirement: str, file: Package, index: Index) -> Metadata:
        """Return the metadata that a build backend states. Raises BuildError."""
        with self.lock:
            if file.sha256 not in self.known:
                self.known[file.sha256] = self._run(requirement, file, index)
            return self.known[file.sha256]

    def _run(self, requirement: str, file: Package, index: Index) -> Metadata:
        project = self.workspace.project
        with contextlib.ExitStack() as stack:
            fetcher = stack.enter_context(open_fetcher(project, self.report))
            sdist = _path(file, fetcher)
            requires = ["pip>=23", *_build_requires(sdist)]
            framework = _framework(requires, self.workspace.catalog)
            stated = sdist_metadata.recorded(sdist) if framework else None
            if stated and stated.requires:
                # The index's newest build may take gigabytes, and is not the one of the image
                reason = f"{requirement} is built with {framework}"
                self.report(f"{reason}: its backend does not run, and the metadata in its archive is taken")
                return replace(stated, build_requires=tuple(requires[1:]))
            version = index.python_version if index.python_version in _BASES else [*_BASES][-1]
            kept = project.cache / METADATA / f"{file.sha256}-{key_of(_DOCKERFILE, version)[:16]}.json"
            with contextlib.suppress(OSError, ValueError):
                return decode(parse_json(read_text(kept)), Metadata)
            base = bootstrapped_bases(self.workspace.catalog, self.workspace.apt_locks)[_BASES[version]]
            locked_base.ensure_with(fetcher, self.workspace, base, self.report)
            self.report(f"running the build backend of {requirement} in a container without network")
            settings = BuildSettings(project.state, BuildInputs(), self.on_event)
            on_base = replace(index, python_version=version, platform=PLATFORM)
            for _ in range(_MAX_STEPS):
                files: dict[str, str | bytes] = {f"sdist/{file.file}": read_bytes(sdist)}
                for wheel in _wheels(requirement, requires, on_base):
                    files[f"wheels/{wheel.file}"] = read_bytes(_path(wheel, fetcher))
                output = run_step(requirement, filled(_DOCKERFILE, base=base.reference), settings, files)
                if "report.json" in output:
                    metadata = _metadata(requirement, output["report.json"])
                    metadata = replace(metadata, build_requires=tuple(requires[1:]))
                    write_whole(kept, json.dumps(asdict(metadata)))
                    return metadata
                # The backend itself may ask for more
                missing = _missing(output.get("log", ""))
                if not missing or missing in requires:
                    break
                requires.append(missing)
        log = output.get("log", "")
        undeclared = _UNDECLARED.search(log)
        if undeclared and (recorded := sdist_metadata.recorded(sdist)):
            message = (
                f"`{requirement}` imports `{undeclared[1]}` to state its metadata, and does not declare it"
            )
            self.report(f"{message}; the metadata in its archive is taken")
            return replace(recorded, build_requires=tuple(requires[1:]))
        lines = log.splitlines()
        raise BuildError(
            f"the build backend of `{requirement}` failed in a container without network",
            reasons=tuple(map(Reason, telling_lines(lines))),
            tail=tuple(lines[-MAX_LINES:]),
            hint="name a wheel, or a version that has one",
        )


def index_with_backends(
    index: Index, workspace: Workspace, report: Reporter, on_event: Callable[[Event], None]
) -> Index:
    """Return an index that runs build backends in containers.

    With `build_on_host`, uv runs them on this machine to learn the metadata.
    """
    backends = Backends(workspace, report, on_event)

    def run(requirement: str, file: Package, index: Index) -> Metadata:
        if not isinstance(daemon_info.probe(), daemon_info.Daemon):
            return pylock.no_engine(requirement, file, index)
        return backends.run(requirement, file, index)

    def run_for_build(requirement: str, file: Package, index: Index) -> Metadata | None:
        if not isinstance(daemon_info.probe(), daemon_info.Daemon):
            report(f"the build requirements of {requirement} are not locked: no container engine answers")
            return None
        return backends.run(requirement, file, index)

    project = workspace.project
    if "build_on_host" in project.unconfirmed:
        report("`build_on_host` needs your consent: build backends run in containers")
    return replace(index, run_backend=None if project.build_on_host else run, run_for_build=run_for_build)


def _wheels(requirement: str, requires: Sequence[str], index: Index) -> tuple[Package, ...]:
    """Return the wheels of build requirements. Raises BuildError if they have no wheels."""
    try:
        return pylock.resolve(requires, (), index, only_wheels=True)
    except (BuildError, ConflictError) as error:
        raise _no_wheels(requirement, requires, error.diagnostics[0]) from error


def _no_wheels(requirement: str, requires: Sequence[str], cause: Diagnostic) -> BuildError:
    message = f"the build requirements of `{requirement}` have no wheels: {', '.join(requires)}"
    return BuildError(message, tail=cause.tail, hint="name a wheel, or a version that has one")


def _path(file: Package, fetcher: Fetcher) -> Path:
    """Return the path of a file that was downloaded and verified."""
    kind: FileKind = "wheel" if file.file.endswith(".whl") else "sdist"
    source = urlsplit(file.origin)
    if source.scheme == "file":
        return Path(unquote(source.path))
    name = f"{file.name}=={file.version}"
    required = RequiredFile(kind, file.file, Sha256(file.sha256), file.bytes, name, file.origin)
    try:
        return fetcher.get(required)
    except (MissingError, StoppedError, OSError) as error:
        raise BuildError(f"cannot download `{file.file}`: {error}") from error


def _build_requires(sdist: Path) -> tuple[str, ...]:
    """Return the build requirements that a source distribution states in pyproject.toml."""
    text = sdist_metadata.read(sdist, "pyproject.toml")
    try:
        requires = tomllib.loads(text)["build-system"]["requires"]
        return tuple(filter(None, map(_by_name, requires)))
    except (ValueError, KeyError, TypeError, RecursionError):
        # Without a valid table, pip reports it
        return _DEFAULT_REQUIRES


def _framework(requires: Sequence[str], catalog: Catalog) -> str | None:
    """Return the first build requirement on Linux that the component of a framework installs."""
    components = [catalog.components[name] for name in FRAMEWORKS if name in catalog.components]
    upstreams = [component.upstream for component in components if component.upstream]
    projects = {normal_name(project) for upstream in upstreams for project in upstream.projects}
    parsed = map(Requirement, requires)
    names = (normal_name(item.name) for item in parsed if not item.marker or item.marker.evaluate(_LINUX))
    return next((name for name in names if name in projects), None)


def _missing(log: str) -> str:
    """Return the requirement that pip's log calls missing; empty without a valid one.

    The package's code can change the log: a line with an option or a URL must not reach uv.
    """
    match = _MISSING.search(log)
    return _by_name(match[1].strip()) if match else ""


def _by_name(text: str) -> str:
    """Return a requirement that names a project of an index, in normal form; else empty."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return ""
    return "" if requirement.url else str(requirement)


def _metadata(requirement: str, report: str) -> Metadata:
    """Read the metadata from pip's report, which the package's code can change. Raises BuildError."""
    try:
        [package] = json.loads(report)["install"]
        metadata = package["metadata"]
        requires = tuple(str(Requirement(text)) for text in metadata.get("requires_dist", ()))
        python = str(SpecifierSet(metadata.get("requires_python", "")))
        return Metadata(
            canonicalize_name(metadata["name"]), str(Version(metadata["version"])), requires, python
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidRequirement) as error:
        raise BuildError(
            f"the build backend of `{requirement}` states invalid metadata",
            reasons=(Reason(str(error).partition("\n")[0]),),
        ) from error
