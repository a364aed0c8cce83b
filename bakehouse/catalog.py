"""Reads component folders into a Catalog: what parts exist, in which versions, needing what.

Everything here is as written, with its place; `resolution` chooses from it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.yamlfile import Fields, Node, Scalar, load, suggestion

UNKNOWN = "unknown"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOCK_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<file>[A-Za-z0-9._+-]+) (?P<bytes>[0-9]+)"
)
_CONFIDENCES = ("high", "medium", "low")

ArtifactKind = Literal["url", "pypi", "debian"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """That a component, or what another one provides, has to be of certain versions."""

    name: str
    specifier: str
    location: Location

    def allows(self, version: str) -> bool:
        return SpecifierSet(self.specifier).contains(version, prereleases=True)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file identified by its sha256: any mirror that holds those bytes may serve it."""

    name: str
    kind: ArtifactKind
    source: str
    """A URL, `name==version` for pip, or `package=version` for apt-get source."""
    file: str
    sha256: str | None
    """None where nobody knows it yet."""
    location: Location
    """Where the sha256 stands."""

    @property
    def address(self) -> str:
        """What the build's `fetch` takes: a URL, or `debian:package=version`."""
        return self.source if self.kind == "url" else f"{self.kind}:{self.source}"


@dataclass(frozen=True, slots=True)
class Package:
    """One line of a Python lock: a package as the one file that is installed."""

    name: str
    version: str
    sha256: str
    file: str
    bytes: int
    location: Location

    @property
    def is_sdist(self) -> bool:
        return not self.file.endswith(".whl")

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Where a base image comes from."""

    suite: str = ""
    """A Debian suite to bootstrap; empty when the base is pulled."""
    packages: tuple[str, ...] = ()
    reference: str = ""
    digest: str | None = None
    build_reference: str = ""
    """The base of build stages, where it is another one (CUDA's devel image)."""


@dataclass(frozen=True, slots=True)
class Face:
    """What a component brings and asks; stated for the component, a release or a variant, and merged downwards."""

    requires: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    """Holds only if the named part is in the image; never brings it in."""
    recommends: tuple[Requirement, ...] = ()
    """Brought in like `requires`, unless the recipe says `without`."""
    provides: Mapping[str, str] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    packages: tuple[Package, ...] = ()
    """The closure of Python packages, from the lock."""
    apt: tuple[str, ...] = ()
    """Packages of the distribution that the image needs to run."""
    build_apt: tuple[str, ...] = ()
    """Packages of the distribution that only the component's build stage needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further values the component's own template uses."""
    gpu: bool = False
    base: BaseSource | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of a release, such as `cu130-py311`; the empty name is the only one."""

    name: str
    face: Face
    location: Location


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    variants: tuple[Variant, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Component:
    """A part of an image: its facts, how to install it and how to check it."""

    name: str
    summary: str
    order: int
    """Smaller numbers come first: their layers lie lower and they own shared Python packages."""
    folder: Path
    launchers: tuple[str, ...]
    releases: tuple[Release, ...]
    """Newest first."""
    template: str
    """The text of install.j2; empty where apt packages and settings are all."""
    smoke: Path | None
    files: Mapping[str, bytes]
    """What lies under the component's `files/`, for its template to place."""
    location: Location

    @property
    def is_base(self) -> bool:
        return any(variant.face.base for release in self.releases for variant in release.variants)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All components, by name."""

    components: Mapping[str, Component]

    def provided_names(self) -> frozenset[str]:
        """Every name a requirement can be about: components and what they provide."""
        names = set(self.components)
        for component in self.components.values():
            for release in component.releases:
                for variant in release.variants:
                    names.update(variant.face.provides)
        return frozenset(names)


def load_catalog(roots: Iterable[Path]) -> Catalog:
    """The components of all recipe folders; a later folder's component replaces an earlier one's whole.

    Raises RecipeError with every mistake found in any of them.
    """
    problems = Problems()
    components: dict[str, Component] = {}
    for root in roots:
        for path in sorted((root / "components").glob("*/component.yaml")):
            component = _load_component(path, problems)
            if component:
                components[component.name] = component
    catalog = Catalog(components)
    _check_names(catalog, problems)
    problems.raise_as(RecipeError)
    return catalog


def requirement(name: Scalar, specifier: Scalar, problems: Problems) -> Requirement | None:
    """`name: specifier` as a Requirement; `*` and a bare version mean any and exactly that one."""
    text = specifier.text.strip()
    if text == "*":
        text = ""
    elif re.fullmatch(r"[0-9][0-9A-Za-z.+]*", text):
        text = f"=={text}" if text.count(".") > 1 else f"=={text}.*"
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        hint = 'write versions as ">=2.9,<3" or "2.9.1"; "*" is any'
        problems.add(Diagnostic(f"`{specifier.text}` is no version range", specifier.location, hint=hint))
        return None
    return Requirement(name.text, text, specifier.location)


def _load_component(path: Path, problems: Problems) -> Component | None:
    try:
        root = load(path)
    except RecipeError as error:
        problems.extend(error.diagnostics)
        return None
    folder = path.parent
    fields = Fields(root, f"component `{folder.name}`", problems)
    if not _NAME.fullmatch(folder.name):
        fields.report(f"`{folder.name}` is no component name", fields.location, "small letters, digits, single hyphens")
    summary = fields.text("summary", required=True)
    order = fields.number("order", 50)
    launchers = fields.texts("launchers")
    for launcher in launchers:
        if launcher not in ("mpirun", "torchrun"):
            fields.report(f"`{launcher}` is no launcher", fields.place("launchers"), "`mpirun` or `torchrun`")
    common = _face(fields, folder, Face())
    releases = [_release(child, folder, common) for child in fields.children("releases", "a release")]
    if not releases:
        fields.report(f"component `{folder.name}` has no releases", fields.place("releases"))
    fields.finish()
    template = folder / "install.j2"
    smoke = folder / "smoke.py"
    return Component(
        name=folder.name,
        summary=summary,
        order=order,
        folder=folder,
        launchers=launchers,
        releases=tuple(sorted(releases, key=lambda release: Version(release.version), reverse=True)),
        template=template.read_text() if template.is_file() else "",
        smoke=smoke if smoke.is_file() else None,
        files={
            str(file.relative_to(folder / "files")): file.read_bytes()
            for file in sorted((folder / "files").rglob("*"))
            if file.is_file() and "__pycache__" not in file.parts
        },
        location=fields.location,
    )


def _release(fields: Fields, folder: Path, common: Face) -> Release:
    version = _version(fields, "version")
    fields.what = f"release {version} of `{folder.name}`"
    _evidence(fields)
    face = _face(fields, folder, common)
    variants = [_variant(child, folder, face) for child in fields.children("variants", "a variant")]
    fields.finish()
    if not variants:
        variants = [Variant("", face, fields.place("version"))]
    return Release(version, tuple(variants), fields.place("version"))


def _variant(fields: Fields, folder: Path, common: Face) -> Variant:
    name = fields.text("name", required=True)
    fields.what = f"variant `{name}` of `{folder.name}`"
    _evidence(fields)
    face = _face(fields, folder, common)
    fields.finish()
    return Variant(name, face, fields.place("name"))


def _version(fields: Fields, key: str) -> str:
    text = fields.text(key, required=True)
    try:
        Version(text)
    except InvalidVersion:
        if text:
            fields.report(f"`{text}` is no version", fields.place(key))
        return "0"
    return text


def _evidence(fields: Fields) -> None:
    """Where a fact comes from and how sure it is: for readers, checked and not used."""
    fields.text("source")
    fields.text("notes")
    fields.choice("confidence", _CONFIDENCES, "high")


def _face(fields: Fields, folder: Path, above: Face) -> Face:
    problems = fields.problems
    face = Face(
        requires=(*above.requires, *_requirements(fields, "requires")),
        constraints=(*above.constraints, *_requirements(fields, "constraints")),
        recommends=(*above.recommends, *_requirements(fields, "recommends")),
        provides={**above.provides, **_provides(fields)},
        artifacts=(*above.artifacts, *_artifacts(fields)),
        packages=above.packages,
        apt=(*above.apt, *fields.texts("apt")),
        build_apt=(*above.build_apt, *fields.texts("build_apt")),
        environment={**above.environment, **_texts(fields, "environment")},
        path=(*above.path, *fields.texts("path")),
        library_path=(*above.library_path, *fields.texts("library_path")),
        entrypoint=fields.texts("entrypoint") or above.entrypoint,
        facts={**above.facts, **_texts(fields, "facts")},
        gpu=fields.flag("gpu", default=above.gpu),
        base=_base(fields) or above.base,
    )
    if fields.has("lock"):
        lock = folder / fields.text("lock")
        face = replace(face, packages=load_lock(lock, fields.place("lock"), problems))
    return face


def _texts(fields: Fields, key: str) -> dict[str, str]:
    return {name.text: value.text for name, value in fields.text_pairs(key)}


def _requirements(fields: Fields, key: str) -> tuple[Requirement, ...]:
    found = (requirement(name, value, fields.problems) for name, value in fields.text_pairs(key))
    return tuple(one for one in found if one)


def _provides(fields: Fields) -> dict[str, str]:
    provided = {}
    for name, value in fields.text_pairs("provides"):
        try:
            Version(value.text)
            provided[name.text] = value.text
        except InvalidVersion:
            fields.report(f"`{value.text}` is no version", value.location)
    return provided


def _artifacts(fields: Fields) -> tuple[Artifact, ...]:
    artifacts = []
    for name, node in fields.pairs("artifacts"):
        artifact = _artifact(name.text, node, fields)
        if artifact:
            artifacts.append(artifact)
    return tuple(artifacts)


def _artifact(name: str, node: Node, owner: Fields) -> Artifact | None:
    fields = Fields(node, f"artifact `{name}`", owner.problems)
    _evidence(fields)
    kinds: tuple[ArtifactKind, ...] = ("url", "pypi", "debian")
    given = [kind for kind in kinds if fields.has(kind)]
    if len(given) != 1:
        fields.report(f"artifact `{name}` needs one of `url`, `pypi`, `debian`", node.location)
        return None
    kind = given[0]
    source = fields.text(kind)
    if kind == "url" and urlsplit(source).scheme not in ("http", "https"):
        fields.report(f"`{source}` is no http(s) address", fields.place(kind))
    file = fields.text("file", unquote(urlsplit(source).path.rsplit("/", 1)[-1]) if kind == "url" else "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", file):
        fields.report(f"artifact `{name}` needs a plain file name in `file`", fields.place("file"))
    sha256 = _sha256(fields, name, owner)
    fields.finish()
    return Artifact(name, kind, source, file, sha256, fields.place("sha256"))


def _sha256(fields: Fields, name: str, owner: Fields) -> str | None:
    if not fields.has("sha256"):
        place = fields.place("url") if fields.has("url") else fields.location
        hint = "write `sha256: unknown`, run `./bake pin`, compare with the publisher's, then commit it"
        message = f"artifact `{name}` of {owner.what} has no `sha256`"
        fields.report(message, place, "every artifact is pinned by content", hint)
        return None
    text = fields.text("sha256")
    if text == UNKNOWN:
        return None
    if not _SHA256.fullmatch(text):
        fields.report(f"`{text}` is no sha256: 64 hex digits, or `unknown`", fields.place("sha256"))
    return text


def _base(fields: Fields) -> BaseSource | None:
    child = fields.child("base", "`base`")
    if child is None:
        return None
    suite, reference = child.text("bootstrap"), child.text("image")
    if bool(suite) == bool(reference):
        child.report("`base` needs one of `bootstrap` and `image`", child.location)
    digest = child.text("digest", UNKNOWN)
    if digest != UNKNOWN and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        child.report(f"`{digest}` is no digest: `sha256:` and 64 hex digits, or `unknown`", child.place("digest"))
    source = BaseSource(
        suite=suite,
        packages=child.texts("packages"),
        reference=reference,
        digest=None if digest == UNKNOWN else digest,
        build_reference=child.text("build_image"),
    )
    child.finish()
    return source


def load_lock(path: Path, named_at: Location, problems: Problems) -> tuple[Package, ...]:
    """The packages of a lock: one line each, `name==version --hash=sha256:…  # file bytes`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        problems.add(Diagnostic(f"there is no lock `{path.name}`", named_at, hint="make it with `./bake pin`"))
        return ()
    packages = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        spot = Location(path, number, 1, len(line), line)
        match = _LOCK_LINE.fullmatch(line)
        if match is None:
            expected = "name==version --hash=sha256:…  # file bytes"
            problems.add(Diagnostic("this is no line of a lock", spot, expected, hint="make it again with `./bake pin`"))
            continue
        packages.append(
            Package(match["name"], match["version"], match["sha256"], match["file"], int(match["bytes"]), spot)
        )
    return tuple(packages)


def _check_names(catalog: Catalog, problems: Problems) -> None:
    """Requirements have to be about something that exists: a misspelt one would never hold or never matter."""
    known = catalog.provided_names()
    seen = set()
    for component in catalog.components.values():
        for release in component.releases:
            for face in (variant.face for variant in release.variants):
                for one in (*face.requires, *face.recommends, *face.constraints):
                    if one.name not in known and one.location not in seen:
                        seen.add(one.location)
                        hint = suggestion(one.name, known)
                        message = f"`{component.name}` requires unknown component `{one.name}`"
                        problems.add(Diagnostic(message, one.location, hint=hint))
