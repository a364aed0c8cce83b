"""Fields of a new release entry: values that its wheels and archives state replace the previous values."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from bakehouse.catalog import spec_reader
from bakehouse.catalog.catalog import Catalog, read_directory
from bakehouse.catalog.component import Component, Release, Variant
from bakehouse.catalog.python_lock import Package, locked_sums, normal_name
from bakehouse.commands.update import release_entry
from bakehouse.commands.update.new_releases import (
    UpstreamError,
    UpstreamRelease,
    WheelMetadata,
    installable,
    new_releases,
    read_metadata,
)
from bakehouse.commands.update.release_entry import Entry
from bakehouse.errors import BakehouseError, Location, Problems, RecipeError
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.simple_index import IndexFile
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import python as pylock
from bakehouse.lock.drift import locked_packages, python_of
from bakehouse.util.files import read_text, write_whole
from bakehouse.util.yaml_reader import Scalar

FILE = "component.yaml"
_DRAFT_LOCATION = Location(Path(FILE), 1, 1)
_MAX_ARCHIVE_BYTES = 512 * 10**6
_MAX_CONCURRENT_LOCKS = 4
_PYTHON = "3.11"
"""Python version of locks that are for any Python."""
_LEGACY_GLIBC = {"manylinux2014": "2.17", "manylinux2010": "2.12", "manylinux1": "2.5"}
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_CARRIED = ("constraints", "facts", "environment")
"""Keys whose values no package index states."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A value of a new entry, and its source."""

    field: str
    value: str
    source: str


@dataclass
class Draft:
    """A draft of an entry, with its evidence and the values to check by hand."""

    entry: Entry
    evidence: list[Evidence] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    def add(self, name: str, value: str, source: str) -> None:
        evidence = Evidence(name, value, source)
        if evidence not in self.evidence:
            self.evidence.append(evidence)

    def check(self, text: str) -> None:
        if text not in self.checks:
            self.checks.append(text)


def read_copy(directory: Path, *, may_lack_locks: bool = False) -> Component:
    """Read a component without the rest of its catalogue. Raises RecipeError."""
    problems = Problems()
    component = read_directory(directory, problems)
    if not may_lack_locks:
        problems.raise_as(RecipeError)
    return component


class ReleaseDrafter:
    """Makes the entry and the locks of one release in a copy of its component."""

    def __init__(
        self, component: Component, release: UpstreamRelease, catalog: Catalog, downloads: DownloadConfig
    ) -> None:
        assert component.upstream
        self._component, self._upstream, self._release = component, component.upstream, release
        self._catalog, self._downloads = catalog, downloads
        self._template = _newest_before(component, release.version)
        self._text = read_text(component.directory / FILE)
        self._draft = Draft(release_entry.read_entry(self._text, self._template))
        self._metadata: dict[str, WheelMetadata] = {}
        self._shared: dict[str, str] = {}
        """Versions in the `provides` of the release, which its variants share."""
        self._replaced: dict[str, tuple[str, str]] = {}
        """Versions in `provides` before and now, by name."""

    @property
    def before(self) -> str:
        """The release whose entry the new one is made from."""
        return self._template.version

    def write(self, index: pylock.Index) -> tuple[Draft, str, str]:
        """Write the entry and its locks; return the draft and the text of the file before and after.

        Raises SourceError and BakehouseError.
        """
        entry = self._draft.entry
        self._drop_prose()
        release_entry.with_version(entry, self._release.version)
        if source := entry.fields.get("source"):
            self._draft.check(f"source {source} was not opened")
        cells = self._cells()
        if self._upstream.kind == "pypi":
            cells = self._without_missing(cells)
            self._read_metadata(cells)
            self._set_requirements()
            self._lock(cells, index)
        else:
            self._set_stated()
            self._hash_artifacts()
            self._forget_digests()
        self._set_same()
        self._set_conflicts()
        self._set_recommendations()
        self._note_carried()
        changed = release_entry.insert(self._text, self._component, entry)
        write_whole(self._component.directory / FILE, changed)
        return self._draft, self._text, changed

    def _fail(self, reason: str) -> NoReturn:
        raise UpstreamError(self._component.name, f"{self._release.version}: {reason}")

    def _drop_prose(self) -> None:
        """Remove text that was written by hand about the release before."""
        for level in self._draft.entry.levels:
            if notes := level.pop("notes", None):
                self._draft.check(f"notes of {self.before} were left out: {' '.join(notes.split())}")
            level.pop("confidence", None)

    def _set_conflicts(self) -> None:
        """Leave out known conflicts with what the release no longer provides."""
        conflicts = self._draft.entry.fields.get("conflicts") or []
        provided: dict[str, dict[str, None]] = {}
        for provides in release_entry.mappings(self._draft.entry, "provides"):
            for name, version in provides.items():
                provided.setdefault(name, {})[version] = None
        for conflict in [*conflicts]:
            parts = conflict["with"]
            text = " and ".join(f"{name} {range_text}" for name, range_text in parts.items())
            gone = [
                f"{name} {' and '.join(provided[name])}"
                for name in parts
                if name in provided and not any(_allows(parts[name], version) for version in provided[name])
            ]
            if gone:
                conflicts[:] = [other for other in conflicts if other is not conflict]
                self._draft.check(f"conflict with {text} no longer applies: it provides {', '.join(gone)}")
            else:
                about = [
                    f"{name} {old}, and {new} is in this release"
                    for name, (old, new) in self._replaced.items()
                    if f"{name} {old}" in conflict["reason"]
                ]
                note = f"; it is about {' and '.join(about)}" if about else ""
                self._draft.check(f"conflict with {text} is taken over from {self.before}{note}")
        if "conflicts" in self._draft.entry.fields and not conflicts:
            del self._draft.entry.fields["conflicts"]

    def _set_recommendations(self) -> None:
        """Leave out recommended components without a known or new release that fits."""
        for level in self._draft.entry.levels:
            for name in [*(level.get("recommends") or ())]:
                other = self._catalog.components.get(name)
                if other is None or self._has_fitting(other):
                    continue
                del level["recommends"][name]
                if not level["recommends"]:
                    del level["recommends"]
                self._draft.check(f"recommendation of {name} was left out: none of its releases fits")

    def _has_fitting(self, other: Component) -> bool:
        """Return whether a known release of another component fits, or a new one may."""
        requirements = (
            [part for part in spec.requires if part.name == self._component.name] for spec in other.specs
        )
        if any(all(part.allows(self._release.version) for part in own) for own in requirements):
            return True
        try:
            return bool(other.upstream and new_releases(other, self._downloads).releases)
        except BakehouseError:
            self._draft.check(f"recommendation of {other.name} was kept, but its new releases are unknown")
            return True

    def _cells(self) -> list[tuple[Any, list[Variant]]]:
        """Return each variant as written, with the variants of the release before that it stands for."""
        groups: dict[Location, list[Variant]] = {}
        for variant in self._template.variants:
            groups.setdefault(variant.location, []).append(variant)
        return list(zip(self._draft.entry.variants, groups.values(), strict=True))

    def _projects(self, variant: Variant) -> tuple[str, ...]:
        """Return the projects of the upstream that a variant locks."""
        locked = variant.spec.packages_by_name
        return tuple(
            project
            for project in self._upstream.projects
            if (package := locked.get(normal_name(project)))
            and Version(package.version) == Version(self._template.version)
        )

    def _files(self, project: str, variant: Variant) -> tuple[IndexFile, ...]:
        """Return the files of the release that a variant can install, only wheels if it had one before."""
        before = variant.spec.packages_by_name[normal_name(project)]
        links = installable(self._release.files.get(project, ()), python_of(variant.spec) or _PYTHON)
        return tuple(link for link in links if before.is_sdist or link.file.endswith(".whl"))

    def _without_missing(self, cells: list[tuple[Any, list[Variant]]]) -> list[tuple[Any, list[Variant]]]:
        """Remove variants and Pythons for which upstream has no files."""
        kept = []
        for raw, group in cells:
            if own := [
                artifact.file for artifact in group[0].spec.artifacts if artifact.file.endswith(".whl")
            ]:
                self._remove(raw, f"its wheel, as {own[0]}, is not on the package index")
                continue
            if any(not self._projects(variant) for variant in group):
                names = ", ".join(f"`{name}`" for name in self._upstream.projects)
                self._fail(f"the locks of {self.before} contain none of {names}; write its entry by hand")
            lacking = {
                python_of(variant.spec)
                for variant in group
                for project in self._projects(variant)
                if not self._files(project, variant)
            }
            left = [variant for variant in group if python_of(variant.spec) not in lacking]
            pythons = raw.get("matrix", {}).get("python")
            for python in sorted(filter(None, lacking)):
                self._draft.add(
                    raw.get("name", "python"), f"without Python {python}", "it has no wheels for it"
                )
            if not left:
                self._remove(raw, "its projects have no file")
                continue
            if len(left) < len(group):
                if not isinstance(pythons, list) or any(python not in pythons for python in lacking):
                    names = ", ".join(sorted(filter(None, lacking)))
                    self._fail(f"it has no wheels for Python {names}; write its entry by hand")
                for missing in lacking:
                    pythons.remove(missing)
            kept.append((raw, left))
        if not kept:
            self._fail("no variant can be made from the package index")
        self._note_new_pythons(kept)
        return kept

    def _remove(self, raw: Any, reason: str) -> None:
        variants = self._draft.entry.fields.get("variants")
        if variants is None:
            self._fail(reason)
        variants[:] = [variant for variant in variants if variant is not raw]
        self._draft.check(f"variant {raw['name']} was left out: {reason}")

    def _note_new_pythons(self, cells: Iterable[tuple[Any, list[Variant]]]) -> None:
        known = {release.version for release in self._component_releases("python")}
        used = {python_of(variant.spec) for _, group in cells for variant in group}
        links = self._release.files.get(self._upstream.projects[0], ())
        wheels = [link for link in links if link.file.endswith(".whl") and "-none-" not in link.file]
        more = [python for python in known - used if None not in used and installable(wheels, python)]
        if more:
            names = ", ".join(sorted(more, key=Version))
            self._draft.check(f"it also has wheels for Python {names}, which {self.before} leaves out")

    def _component_releases(self, name: str) -> tuple[Release, ...]:
        component = self._catalog.components.get(name)
        return component.releases if component else ()

    def _read_metadata(self, cells: Sequence[tuple[Any, list[Variant]]]) -> None:
        read = []
        for _, group in cells:
            for project in self._projects(group[0]):
                python = python_of(group[0].spec) or _PYTHON
                links = installable(self._release.files[project], python)
                wheels = [link for link in links if link.file.endswith(".whl")]
                if wheels and project not in self._metadata:
                    self._metadata[project] = read_metadata(
                        wheels[0], project, self._release.version, python, self._downloads
                    )
                    read.append(wheels[0])
                elif not wheels:
                    self._draft.check(f"`requires` of {project} was not compared: it has no wheel")
        self._set_glibc(read)

    def _set_glibc(self, links: Iterable[IndexFile]) -> None:
        """Set `glibc` of the release to the highest that one of its wheels needs."""
        needed = [(version, link.file) for link in links if (version := _glibc(link))]
        requires = self._draft.entry.fields.get("requires") or {}
        if needed and "glibc" in requires:
            version, file = max(needed, key=lambda item: Version(item[0]))
            release_entry.set_text(requires, "glibc", f">={version}")
            self._draft.add("requires.glibc", f">={version}", file)

    def _set_requirements(self) -> None:
        """Set the components, and the Python, that the wheels require."""
        by_project = {
            normal_name(project): component
            for component in self._catalog.components.values()
            if component.upstream and component is not self._component
            for project in component.upstream.projects
        }
        for metadata in self._metadata.values():
            required = {
                by_project[name].name: requirement
                for name, requirement in metadata.requires.items()
                if name in by_project and by_project[name].name != self._component.name
            }
            for requires in release_entry.mappings(self._draft.entry, "requires"):
                for name in list(requires):
                    if name == "python" and ">" in requires[name] and metadata.requires_python:
                        lowest = _lower_bound(metadata.requires_python)
                        self._set(requires, name, lowest, f"{metadata.file}: Requires-Python")
                    elif name in required:
                        text = self._bounded(name, str(required[name].specifier), requires[name])
                        source = f"{metadata.file}: Requires-Dist: {required[name]}"
                        self._set(requires, name, text, source)
                    elif (
                        name in {requirement.name for requirement in by_project.values()}
                        and "==" in requires[name]
                    ):
                        self._fail(
                            f"its metadata no longer names the {name} that it needs; write its entry by hand"
                        )

    def _set(self, mapping: Any, name: str, text: str, source: str) -> None:
        if text:
            release_entry.set_text(mapping, name, text)
            self._draft.add(f"requires.{name}", text, source)

    def _bounded(self, name: str, stated: str, before: str) -> str:
        """Return a range of versions. If `before` is bounded, end it after the newest known release."""
        parts = [_short(part) for part in stated.split(",") if part]
        if not parts:
            return ""
        if len(parts) == 1 and parts[0].startswith(">") and ("<" in before or "==" in before):
            known = [
                Version(release.version)
                for release in self._component_releases(name)
                if SpecifierSet(stated).contains(release.version)
            ]
            if not known:
                self._fail(f"it needs {name} {stated}, and the catalogue has none")
            newest = max(known)
            parts.append(f"<{newest.major}.{newest.minor + 1}")
            self._draft.check(f"{name} is limited to the known {newest}; upstream states {stated}")
        return ",".join(sorted(parts, key=lambda part: not part.startswith(">")))

    def _lock(self, cells: Sequence[tuple[Any, list[Variant]]], index: pylock.Index) -> None:
        """Make the locks, and set what they provide."""
        directory, entry = self._component.directory, self._draft.entry
        write_whole(directory / FILE, release_entry.insert(self._text, self._component, entry))
        copy = read_copy(directory, may_lack_locks=True)
        [release] = [release for release in copy.releases if release.version == self._release.version]
        before_each = [variant for _, group in cells for variant in group]
        pairs = list(zip(before_each, release.variants, strict=True))
        used = {lock.path for spec in self._component.specs if (lock := spec.lock)}
        if taken := [
            lock.path.name for _, variant in pairs if (lock := variant.spec.lock) and lock.path in used
        ]:
            self._fail(f"its lock would replace `{taken[0]}`; add the version to the name of the lock")
        pythons = {python for _, variant in pairs if (python := python_of(variant.spec))}
        preferred = {python: locked_packages(self._catalog, python) for python in pythons}
        with ThreadPoolExecutor(_MAX_CONCURRENT_LOCKS) as pool:
            locked = iter([*pool.map(lambda pair: self._locked(pair[0], pair[1], index, preferred), pairs)])
        texts = dict[Path, str]()
        for raw, group in cells:
            provided: dict[str, set[str]] = {}
            for before in group:
                path, text, files = next(locked)
                if path:
                    texts[path] = text
                for name, pattern in self._upstream.provides.items():
                    if name in before.spec.provides:
                        version = _provided(pattern, files)
                        provided.setdefault(name, set()).add(_as_precise(version, before.spec.provides[name]))
            self._set_provided(raw, group, provided, texts)
        for path, text in texts.items():
            write_whole(path, text)

    def _locked(
        self,
        before: Variant,
        variant: Variant,
        index: pylock.Index,
        preferred: Mapping[str, tuple[Package, ...]],
    ) -> tuple[Path | None, str, tuple[Package, ...]]:
        """Return the path, the text and the files of the lock of a variant.

        `preferred` has the packages that other components lock, by Python version.
        """
        lock = variant.spec.lock
        if lock is None:
            return None, "", ()
        python = python_of(variant.spec)
        projects = self._projects(before)
        requirements = lock.requirements or [f"{project}=={self._release.version}" for project in projects]
        locked = locked_sums(before.spec.lock.path) if before.spec.lock else frozenset[str]()
        for_python = replace(index, python_version=python or _PYTHON, locked=locked)
        # A local build such as 2.0+cpu of another index would satisfy `==2.0`
        constraints = [f"{project}==={self._release.version}" for project in projects]
        files = pylock.resolve(
            requirements,
            constraints,
            for_python,
            without=(*self._upstream.without, *self._installed_by_others(variant)),
            preferred=preferred[python] if python else (),
        )
        self._compare(files)
        heading = f"{lock.heading(python or _PYTHON)}\n" if lock.requirements else ""
        return lock.path, heading + "".join(f"{file.line}\n" for file in files), files

    def _installed_by_others(self, variant: Variant) -> Iterator[str]:
        """Yield the projects of the package index that required components install."""
        for required in variant.spec.requires:
            component = self._catalog.components.get(required.name)
            if component and component.upstream:
                yield from component.upstream.projects

    def _compare(self, files: Iterable[Package]) -> None:
        """Raise if a locked file is not the one of the page that was read first."""
        listed = {link.file: link.sha256 for links in self._release.files.values() for link in links}
        for file in files:
            if listed.get(file.file) and listed[file.file] != file.sha256:
                self._fail(f"the package index states two checksums of `{file.file}`")

    def _set_provided(
        self, raw: Any, group: Sequence[Variant], provided: Mapping[str, set[str]], texts: dict[Path, str]
    ) -> None:
        for name, versions in provided.items():
            if len(versions) > 1:
                self._fail(f"its Pythons differ in {name}: {', '.join(sorted(versions))}")
            [version] = versions
            old = group[0].spec.provides[name]
            shared = self._draft.entry.fields.get("provides") or {}
            provides = raw.get("provides") or {}
            if name not in provides:
                provides = shared
            if provides is shared and self._shared.setdefault(name, version) != version:
                self._fail(f"its variants differ in {name}: {self._shared[name]} and {version}")
            if name in provides:
                release_entry.set_text(provides, name, version)
            elif version != old:
                self._fail(f"it has {name} {version}, but its entry does not set that; write it by hand")
            if version != old:
                self._replaced[name] = (old, version)
            pattern = self._upstream.provides[name]
            self._draft.add(
                f"provides.{name}",
                version if version == old else f"{version} (was {old})",
                f"{pattern} in the lock",
            )
            if name == "cuda" and version != old:
                self._rename_cuda(raw, old, version, texts)
                self._draft.check(f"driver and gpu-architecture of CUDA {version} are those of CUDA {old}")

    def _rename_cuda(self, raw: Any, old: str, new: str, texts: dict[Path, str]) -> None:
        """Replace the tag of a CUDA version, such as `cu130`, in the name and the lock of a variant."""
        before, after = (f"cu{version.replace('.', '')}" for version in (old, new))
        pattern = re.compile(rf"\b{before}\b")
        old_lock = str(raw.get("lock", ""))
        for key in ("name", "lock"):
            if key in raw:
                raw[key] = pattern.sub(after, raw[key])
        if old_lock != raw.get("lock", ""):
            stem = pattern.search(old_lock)
            assert stem
            prefix = old_lock[: stem.end()].rpartition("/")[2]
            for path in [path for path in texts if path.name.startswith(prefix)]:
                texts[path.with_name(pattern.sub(after, path.name))] = texts.pop(path)

    def _set_same(self) -> None:
        """Set requirements on what another component provides, such as the CUDA of its wheels."""
        for name, other in self._upstream.same.items():
            for requires in release_entry.mappings(self._draft.entry, "requires"):
                if name not in requires:
                    continue
                allowed = self._allowed(other)
                provided = {
                    variant.spec.provides[name]
                    for release in self._component_releases(other)
                    if _allows(allowed, release.version)
                    for variant in release.variants
                    if name in variant.spec.provides and not variant.spec.artifacts
                }
                if not provided:
                    self._fail(f"no known release of {other} that it fits provides {name}")
                [first, *rest] = sorted(provided, key=Version)
                if len({Version(version).major for version in provided}) > 1:
                    versions = ", ".join([first, *rest])
                    self._fail(f"{other} {allowed} provides {name} {versions}; write its entry by hand")
                text = f"=={Version(first).major}.*" if rest else f"=={first}.*"
                source = f"{name} of {other} {allowed} on the package index"
                self._set(requires, name, text, source)

    def _allowed(self, name: str) -> str:
        """Return the range of versions of another component that the entry requires."""
        texts = (
            mapping[name]
            for mapping in release_entry.mappings(self._draft.entry, "requires")
            if name in mapping
        )
        return next(texts, "*")

    def _set_stated(self) -> None:
        """Set the versions that the page of the release states."""
        for name in self._upstream.provides:
            mappings = [
                mapping
                for mapping in release_entry.mappings(self._draft.entry, "provides")
                if name in mapping
            ]
            stated = self._release.provides.get(name)
            if stated is None:
                self._draft.check(f"{name} is as in {self.before}: upstream states none for this release")
                continue
            # One of several versions, such as those of two major versions of Open MPI, has the next one
            is_one = len({mapping[name] for mapping in mappings}) == 1
            changed = [mapping for mapping in mappings if is_one or _major(mapping[name]) == _major(stated)]
            if not changed:
                self._draft.check(f"upstream states {name} {stated}, which its entry does not provide")
            for provides in changed:
                old = str(provides[name])
                release_entry.set_text(provides, name, stated)
                if stated != old:
                    self._replaced[name] = (old, stated)
                value = stated if stated == old else f"{stated} (was {old})"
                self._draft.add(f"provides.{name}", value, self._upstream.address)

    def _forget_digests(self) -> None:
        """Set the digests of images of the release before to `unknown`."""
        if release_entry.replace_values(self._draft.entry, _DIGEST, "unknown"):
            self._draft.check("digests of its images are unknown; `bake lock` records them")
        if any(level.get("base", {}).get("image") for level in self._draft.entry.levels):
            self._draft.check("its images were not looked up in their registry")

    def _hash_artifacts(self) -> None:
        """Set the checksums of archives, which are downloaded unless upstream states them."""
        entries = [*release_entry.mappings(self._draft.entry, "artifacts")]
        # The page gives one checksum and does not name the archive
        stated = self._release.sha256 if sum(map(len, entries)) == 1 else ""
        for artifacts in entries:
            for name, artifact in artifacts.items():
                artifact.pop("notes", None)
                artifact.pop("confidence", None)
                artifact.pop("bytes", None)
                url = artifact.get("url", "")
                if self._release.version not in url:
                    self._fail(f"the URL of its artifact `{name}` does not contain the version")
                if not stated and self._upstream.checksums:
                    artifact["sha256"] = "unknown"
                    page = self._upstream.checksums.address
                    self._draft.check(f"the checksum of `{name}` is unknown: `{page}` does not state it")
                    continue
                sha256 = stated or self._hash(url)
                origin = self._origin if stated else "the downloaded file"
                artifact["sha256"] = sha256
                self._draft.add(f"artifacts.{name}", f"sha256 {sha256[:12]}…", origin)

    @property
    def _origin(self) -> str:
        """The page that states checksums."""
        checksums = self._upstream.checksums
        return checksums.address if checksums else self._upstream.address

    def _hash(self, url: str) -> str:
        try:
            return self._downloads.sha256(url, _MAX_ARCHIVE_BYTES)
        except SourceError as error:
            self._fail(f"`{url}`: {error.reason}")

    def _note_carried(self) -> None:
        """Add the values that were taken over without evidence."""
        names = [
            f"{key}.{name}"
            for key in _CARRIED
            for mapping in release_entry.mappings(self._draft.entry, key)
            for name in mapping
        ]
        known = {evidence.field for evidence in self._draft.evidence}
        names += [
            f"requires.{name}"
            for requires in release_entry.mappings(self._draft.entry, "requires")
            for name in requires
            if name != "python" and f"requires.{name}" not in known
        ]
        if names:
            self._draft.check(f"as in {self.before}: {', '.join(dict.fromkeys(names))}")


def _allows(text: str, version: str) -> bool:
    """Return whether a range as written in a component allows a version."""
    requirement = spec_reader.requirement(
        Scalar("", _DRAFT_LOCATION), Scalar(text, _DRAFT_LOCATION), Problems()
    )
    return requirement is None or requirement.allows(version)


def _newest_before(component: Component, version: str) -> Release:
    older = (release for release in component.releases if Version(release.version) < Version(version))
    return max(older, key=lambda release: Version(release.version))


def _glibc(link: IndexFile) -> str:
    """Return the lowest glibc that the tags of a wheel allow; empty if none says so."""
    versions = []
    for tag in parse_wheel_filename(link.file)[3]:
        name = tag.platform.removesuffix("_x86_64")
        if match := re.fullmatch(r"manylinux_(\d+)_(\d+)", name):
            versions.append(f"{match[1]}.{match[2]}")
        elif name in _LEGACY_GLIBC:
            versions.append(_LEGACY_GLIBC[name])
    return min(versions, key=Version, default="")


def _lower_bound(text: str) -> str:
    """Return the lowest version that a range of Pythons allows, as a range."""
    lower = [specifier for specifier in SpecifierSet(text) if specifier.operator == ">="]
    return f">={max((specifier.version for specifier in lower), key=Version)}" if lower else ""


def _short(part: str) -> str:
    """Return `>=2.14` for `>=2.14.0`; other operators keep their version."""
    match = re.fullmatch(r"(>=?)\s*(\d+\.\d+)\.0", part.strip())
    return f"{match[1]}{match[2]}" if match else part.strip()


def _provided(pattern: str, files: Iterable[Package]) -> str:
    versions = {file.version for file in files if fnmatchcase(canonicalize_name(file.name), pattern)}
    if not versions:
        reason = f"leaves out `{pattern}`, by which its contents are known"
        raise SourceError(reason)
    if len(versions) > 1:
        reason = f"has several versions of `{pattern}`: {', '.join(sorted(versions, key=Version))}"
        raise SourceError(reason)
    return versions.pop()


def _major(version: Any) -> str:
    return str(version).partition(".")[0]


def _as_precise(version: str, before: str) -> str:
    """Return a version with as many parts as another one has."""
    return ".".join(version.split(".")[: len(before.split("."))])
