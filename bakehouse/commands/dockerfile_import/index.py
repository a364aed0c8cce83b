"""Reverse index of the catalogue: components by URLs, checksums, repositories and packages they replace."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Component, Release
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.commands.dockerfile_import.installs import names

_GITHUB = re.compile(
    r"(?:https?://|git\+https?://|ssh://git@|git@|git\+ssh://git@|git://)(?:[^/@]*@)?"
    r"(?:www\.)?(?:github\.com|gitlab\.com|codeload\.github\.com)[/:](?P<repository>[\w.-]+/[\w.-]+?)"
    r"(?:\.git)?(?P<rest>[/@#?].*)?"
)
_VERSION = re.compile(r"\d+(?:[._]\d+)+(?:\.post\d+|rc\d+)?")
_ARCHIVE = re.compile(r"\.(?:tar\.(?:gz|bz2|xz|zst)|tgz|tbz2?|txz|zip)$")
_ARCHIVE_PATTERN = r"\.(?:tar\.(?:gz|bz2|xz|zst)|tar|tgz|tbz2?|txz|zip)"
_VERSION_PATTERN = r"(?P<version>\d+(?:[._]\d+)*(?:rc\d+)?|latest)"
_REPOSITORIES = names("repositories")
"""Repositories of components whose upstream in the catalogue is not a repository."""
_FILES = names("installers")
"""Installers of components whose names differ from the catalogue's files."""
_APT = names("apt")
"""Packages of Debian and Ubuntu that contain a component."""
_PIP = names("pip")
_IN_REQUIREMENTS = names("in_requirements")
_UV_ADDRESS = re.compile(r"https?://(?:www\.)?(?:astral\.sh/uv|github\.com/astral-sh/uv/)\S*")
UV = "Bakehouse locks and installs Python packages with uv itself"


@dataclass(frozen=True, slots=True)
class ComponentSource:
    """A component that replaces a download or package, with the version and variant if they are known."""

    component: str
    version: str = ""
    variant: str = ""


class ReverseIndex:
    """Components by the downloads and packages of a Dockerfile that they replace."""

    def __init__(self, catalog: Catalog, excluded: Collection[str] = ()) -> None:
        """`excluded` are components that fit into no recipe for the Dockerfile."""
        self._catalog = catalog
        self._urls: dict[str, ComponentSource] = {}
        self._checksums: dict[str, ComponentSource] = {}
        self._repositories: dict[str, str] = {}
        self._files: list[tuple[re.Pattern[str], str]] = []
        self._pip: dict[str, tuple[str, ...]] = {}
        patterns: dict[str, str] = {}
        for component in catalog.components.values():
            if component.is_base or component.name in ("instance", *excluded):
                continue
            self._add_projects(component)
            for release in component.releases:
                self._add_artifacts(component, release, patterns)
        known = catalog.components.keys() - {*excluded}
        for repository, name in _REPOSITORIES.items():
            if name in known:
                self._repositories.setdefault(repository, name)
        for pattern, name in (*_FILES.items(), *patterns.items()):
            if name in known:
                self._files.append((re.compile(pattern), name))
        self._known = known
        self.apt = {package: name for package, name in _APT.items() if name in known}
        """Components by the packages of Debian and Ubuntu that contain them."""
        for project, name in _PIP.items():
            if name in known:
                self._pip.setdefault(project, (name,))

    def _add_projects(self, component: Component) -> None:
        upstream = component.upstream
        if upstream and upstream.kind == "git" and (match := _GITHUB.fullmatch(upstream.address)):
            self._repositories[match["repository"].lower()] = component.name
        if component.name in _IN_REQUIREMENTS:
            return
        for project in upstream.projects if upstream else ():
            name = str(canonicalize_name(project))
            others = self._pip.get(name, ())
            # The component of the same name first
            ordered = sorted({*others, component.name}, key=lambda other: (other != name, other))
            self._pip[name] = tuple(ordered)

    def _add_artifacts(self, component: Component, release: Release, patterns: dict[str, str]) -> None:
        texts = {release.version, release.version.replace(".", "_")}
        for variant in release.variants:
            for artifact in variant.spec.artifacts:
                source = ComponentSource(component.name, release.version, variant.name)
                if artifact.sha256:
                    self._checksums.setdefault(artifact.sha256, source)
                if artifact.kind != "url":
                    continue
                address = _normal(artifact.source)
                first = self._urls.setdefault(address, source)
                if first.variant != variant.name and first.component == component.name:
                    self._urls[address] = ComponentSource(component.name, release.version)
                name = address.rpartition("/")[2]
                if name.endswith(".whl"):
                    project = canonicalize_name(name.partition("-")[0])
                    self._pip.setdefault(str(project), (component.name,))
                match = _GITHUB.fullmatch(artifact.source)
                if match and any(text in address for text in texts):
                    self._repositories.setdefault(match["repository"].lower(), component.name)
                for text in (
                    texts
                    if _ARCHIVE.search(name) and not re.match(r"v?\d", name) and component.name != "python"
                    else ()
                ):
                    if text in name:
                        stem = re.escape(_ARCHIVE.sub("", name)).replace(re.escape(text), _VERSION_PATTERN, 1)
                        patterns[stem + _ARCHIVE_PATTERN] = component.name

    def find(self, text: str) -> ComponentSource | None:
        """Return the component that a URL, a file name, a repository or a checksum belongs to."""
        for digest in re.findall(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text):
            if source := self._checksums.get(digest):
                return source
        address = _normal(text)
        if source := self._urls.get(address):
            return source
        if "://" not in text and not text.startswith("git@"):
            return None
        name = address.removesuffix("/download").rpartition("/")[2].partition("#")[0]
        if name.endswith(".whl"):
            return self.find_wheel(name)
        for file_pattern, component in self._files:
            if match := file_pattern.fullmatch(name):
                version = (match.groupdict().get("version") or "").replace("_", ".")
                return ComponentSource(component, "" if version == "latest" else version)
        if match := _GITHUB.fullmatch(text):
            component = self._repositories.get(match["repository"].lower(), "")
            if component:
                return ComponentSource(component, version_in(match["rest"] or ""))
        return None

    def find_wheel(self, name: str) -> ComponentSource | None:
        """Return the component that a wheel contains."""
        try:
            project, version, _, _tags = parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            return None
        components = self.find_pip(project)
        if not components:
            return None
        variant = f"{version.local}-*" if version.local and re.match(r"cu\d|cpu", version.local) else ""
        return ComponentSource(components[0], version.public, variant)

    @staticmethod
    def replacement(text: str) -> str:
        """Return the reason why Bakehouse itself replaces a download; empty if it does not."""
        return UV if _UV_ADDRESS.fullmatch(text) else ""

    def find_pip(self, name: str) -> tuple[str, ...]:
        """Return the components of a Python package, the first choice first."""
        return self._pip.get(str(canonicalize_name(name)), ())

    def is_built_for_framework(self, component: str) -> bool:
        """Return whether a component requires a framework, which its package in the index may not fit."""
        requires = (item.name for spec in self._catalog.components[component].specs for item in spec.requires)
        return any(name in FRAMEWORKS for name in requires)

    def sets_variable(self, component: str, name: str) -> bool:
        """Return whether the build of a component sets an environment variable itself."""
        known = self._catalog.components[component]
        facts = (str(fact) for spec in known.specs for fact in spec.facts.values())
        return any(re.search(rf"\b{re.escape(name)}=", text) for text in (known.template, *facts))


def version_in(text: str) -> str:
    """Return the first version in the name of a tag or of a file, such as 1.1.3 in `v1.1.3-aws`."""
    match = _VERSION.search(text)
    return match[0].replace("_", ".") if match else ""


def _normal(address: str) -> str:
    """Return a URL without the parts that differ between mirrors of the same file."""
    text = unquote(address).partition("?")[0].rstrip("/")
    # Amazon S3 serves a bucket with and without the region in the host.
    return re.sub(r"^https?://([a-z0-9.-]+)\.s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com/", r"s3://\1/", text)


def nearest(versions: Iterator[str], asked: str) -> list[str]:
    """Return versions sorted by their distance from another one; the nearest first."""
    return sorted(versions, key=lambda version: distance(version, asked))


def distance(version: str, asked: str) -> tuple[int, ...]:
    """Return a key that sorts versions by their distance from another one."""
    try:
        own, other = _padded(Version(version).release), _padded(Version(asked).release)
    except InvalidVersion:
        return (0,)
    key: list[int] = []
    for number, wanted in zip(own, other, strict=True):
        is_on_way = own[: len(key)] == other[: len(key)]
        # After the first difference, smaller numbers are nearer if the version is newer.
        key.append(abs(number - wanted) if is_on_way else number if own > other else -number)
    return (*key, 0 if own > other else 1)


def _padded(release: tuple[int, ...]) -> tuple[int, ...]:
    return (*release, 0, 0, 0, 0)[:4]
