"""Plan of a rehearsal: the same stages and steps, with stubs for unavailable files.

Only checksums, bases and labels differ from the real plan. A rehearsal has its own keys, tags and bases, so
that its steps are never reused by a real build.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.python_lock import Package
from bakehouse.plan.model import (
    BootstrappedBase,
    Image,
    ImageKey,
    InstalledComponent,
    RegistryBase,
    Stage,
    StageKey,
)
from bakehouse.util.oci import Sha256

REHEARSED = "rehearsed, not built"
LABEL = "org.bakehouse.rehearsed"
REPOSITORY = "bakehouse/rehearsal"
BASES = "bakehouse/rehearsal-base"
OUTPUT = "type=image,compression=zstd,compression-level=1"
"""The fastest compression, because rehearsed images are short-lived."""
MAX_BYTES = 20_000_000
"""Larger wheels become stubs: a rehearsal tests steps, not downloads."""
HEAVY_STAGE, MAX_BYTES_OF_HEAVY = 200_000_000, 2_000_000
"""In stages larger than the first number, such as CUDA frameworks, wheels above the second become stubs."""

_FINISH = re.compile(
    r"(?:(?<![\w/-])finish-layer +\S+|bin/python /usr/local/bin/layout-wheels)(?P<words>[^&\n]*)"
)
_APT = re.compile(r"\bapt-get install (?P<words>.*)")
_COPIES = re.compile(r"^COPY --from=(\S+?)(?:-packages)? ", re.MULTILINE)
_OWN_PYTHON = "3.11"
"""Python of the Debian release of all base stubs."""


@dataclass(frozen=True, slots=True)
class StubFile:
    """File that needs a stub."""

    kind: Literal["wheel", "sdist", "artifact"]
    part: InstalledComponent
    """Component of the stage that installs the file."""
    directory: Path
    """Directory of the component, which may define its stubs."""
    name: str
    """Name of the artifact or package."""
    version: str
    file: str
    facts: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    """Patterns of installed files that the stage removes; the stub needs a file for each."""

    @property
    def text(self) -> str:
        return f"{self.part.component} {self.part.version}: {self.file}"


@dataclass(frozen=True, slots=True)
class StubBase:
    """Base that needs a stub."""

    part: InstalledComponent
    bootstrapped: BootstrappedBase | None
    """Real base if it can be bootstrapped; the stub only adds a mark to it."""
    is_build_base: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        name = f"{self.part.component} {self.part.version}"
        name = f"{name} ({self.part.variant})" if self.part.variant else name
        return f"{name}, for build stages" if self.is_build_base else name


@dataclass(frozen=True, slots=True)
class Stubs:
    """Created stubs: checksums of files, references of bases."""

    files: Mapping[StubFile, Sha256]
    bases: Mapping[StubBase, str]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Image with stubs, and the real image."""

    real: Image
    image: Image
    files: tuple[tuple[StubFile, Sha256], ...]
    bases: tuple[tuple[StubBase, str], ...]

    @property
    def reference(self) -> str:
        """Name of the rehearsed image on this machine."""
        return f"{REPOSITORY}/{self.real.name}:{self.image.key[:8]}"

    @property
    def stubs(self) -> tuple[str, ...]:
        """Components that are stubs, in the order of the image."""
        base = [self.real.base_part.component] if isinstance(self.real.base, RegistryBase) else []
        return tuple(dict.fromkeys([*base, *(need.part.component for need, _ in self.files)]))

    def is_real(self, name: str) -> bool:
        """Return whether a component, or the provider of a name, is entirely real."""
        has_stub_base = isinstance(self.real.base, RegistryBase) or "python" in self.stubs
        providers = {part.component for part in self.real.all_parts if name in dict(part.provides)}
        return not has_stub_base and not {name, *providers} & {*self.stubs}


def required_bases(image: Image) -> tuple[StubBase, ...]:
    """Return the bases of an image; each gets a stub or a mark, so that steps differ from a real build."""
    bootstrapped = image.base if isinstance(image.base, BootstrappedBase) else None
    facts = tuple(sorted(image.base_facts.items()))
    base = StubBase(image.base_part, bootstrapped, facts=facts)
    return (base, replace(base, is_build_base=True)) if image.build_base else (base,)


def required_files(
    image: Image, stage_texts: Mapping[str, str], *, real: bool = False
) -> dict[str, list[StubFile]]:
    """Return the files of each stage that need stubs; `real` keeps all locked packages."""
    is_native = _has_real_python(image)
    stubs: dict[str, list[StubFile]] = {}
    for stage in image.stages:
        patterns = dropped(stage_texts.get(stage.name, ""))
        # Packages cannot be compiled against stubs, or for a newer Python than that of the stub.
        below = _COPIES.findall(stage_texts.get(stage.name, ""))
        cannot_compile = not real and (any(map(stubs.get, below)) or _has_newer_python(image))
        needs = [
            _artifact_need(stage, artifact, patterns)
            for artifact in stage.artifacts.values()
            if _is_unavailable(artifact) or (cannot_compile and _is_sdist(artifact))
        ]
        if not real:
            packages = [*stage.wheels, *stage.sdists]
            is_heavy = sum(package.bytes for package in packages) > HEAVY_STAGE
            limit = MAX_BYTES_OF_HEAVY if is_heavy else MAX_BYTES
            packages = [
                package
                for package in packages
                if package.bytes > limit or _is_foreign(package, is_native=is_native)
            ]
            if cannot_compile:
                packages += [sdist for sdist in stage.sdists if sdist not in packages]
            needs += [_package_need(stage, package, patterns) for package in packages]
        # One of the stubs must contain the files that the stage removes.
        first = next((need for need in needs if need.file.endswith(".whl")), None)
        stubs[stage.name] = [need if need is first else replace(need, dropped=()) for need in needs]
    return stubs


def rehearse(image: Image, needs: Mapping[str, list[StubFile]], stubs: Stubs) -> Rehearsal:
    """Return the image with the checksums and bases of its stubs."""
    bases = [(need, stubs.bases[need]) for need in required_bases(image)]
    files = [(need, stubs.files[need]) for stage in image.stages for need in needs[stage.name]]
    stages = tuple(_stage(stage, needs[stage.name], stubs, bases) for stage in image.stages)
    key = ImageKey(_key(image.key, [reference for _, reference in bases], [stage.key for stage in stages]))
    reference = bases[0][1]
    rehearsed = replace(
        image,
        summary=f"{REHEARSED}: {image.summary}",
        build_base=bases[1][1] if image.build_base else "",
        stages=stages,
        key=key,
        rendered=None,
        labels={**image.labels, LABEL: REHEARSED},
    )
    if isinstance(image.base, BootstrappedBase):
        rehearsed = replace(rehearsed, base=replace(image.base, reference=reference))
    else:
        # The apt lock fits only the real base; on its stub, steps install the packages of the mirrors.
        rehearsed = replace(
            rehearsed,
            base=RegistryBase(reference, None),
            stages=tuple(replace(stage, debs=()) for stage in stages),
            toolchain_debs=(),
            apt_debs=(),
        )
    return Rehearsal(image, rehearsed, tuple(files), tuple(bases))


def dropped(stage_text: str) -> tuple[str, ...]:
    """Return the patterns of the installed files that `finish` removes in a stage."""
    matches = _FINISH.finditer(stage_text.replace("\\\n", " "))
    commands = [shlex.split(match["words"], comments=True) for match in matches]
    named = (pattern.removeprefix("!") for patterns in commands for pattern in patterns)
    return tuple(pattern for pattern in named if not pattern.startswith("**/"))


def apt_names(dockerfile: str) -> frozenset[str]:
    """Return the Debian packages that a Dockerfile installs, with the versions of pinned ones."""
    names: set[str] = set()
    for match in _APT.finditer(dockerfile.replace("\\\n", " ")):
        words = shlex.split(match["words"].partition("&&")[0].partition(";")[0], comments=True)
        names.update(word for word in words if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+(=\S+)?", word))
    return frozenset(names)


def stage_texts(dockerfile: str) -> dict[str, str]:
    """Return the text of each stage by name."""
    pieces = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    matches = (re.match(r"FROM \S+ AS (\S+)", piece) for piece in pieces)
    return {match[1]: piece for match, piece in zip(matches, pieces, strict=True) if match}


def lock_text(rehearsal: Rehearsal) -> str:
    """Return the lock of a rehearsal: checksums of stubs, and the files and bases that they replace."""
    rows = [
        {"component": need.part.component, "file": need.file, "stub": digest, "for": need.text}
        for need, digest in rehearsal.files
    ]
    bases = [
        {"component": need.part.component, "stub": reference, "for": need.text}
        for need, reference in rehearsal.bases
    ]
    whole = {"image": rehearsal.real.name, "key": rehearsal.real.key, "status": REHEARSED}
    return json.dumps({**whole, "bases": bases, "files": rows}, indent=2) + "\n"


def python_of(provides: Mapping[str, str]) -> str:
    """Return the Python version of a base's `python3`, or of its package if it is not installed."""
    if "python" in provides:
        return ".".join(provides["python"].split(".")[:2])
    return _PYTHONS.get(provides.get("ubuntu", "")) or _OWN_PYTHON


_PYTHONS = {
    "16.04": "3.5",
    "18.04": "3.6",
    "20.04": "3.8",
    "22.04": "3.10",
    "24.04": "3.12",
    "26.04": "3.14",
    "bookworm": "3.11",
    "trixie": "3.13",
}
"""Version of `python3` in releases of Ubuntu and Debian."""


def _has_real_python(image: Image) -> bool:
    """Return whether the base has the Python version of the locks."""
    if not isinstance(image.base, BootstrappedBase):
        return False
    versions = [part.version for part in image.parts if part.component == "python"]
    has_stub = any(
        _is_unavailable(artifact) for stage in image.stages for artifact in _python_artifacts(stage)
    )
    return not has_stub and versions in ([], [_PYTHONS.get(image.base.suite)])


def _has_newer_python(image: Image) -> bool:
    """Return whether the image's Python is newer than the stub's, so that build tools may lack modules."""
    versions = [part.version for part in image.parts if part.component == "python"]
    versions = versions or [python_of(dict(image.base_part.provides))]
    own = _PYTHONS.get(image.base.suite, "") if isinstance(image.base, BootstrappedBase) else ""
    return _minor(versions[0]) > _minor(own or _OWN_PYTHON)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _python_artifacts(stage: Stage) -> Iterable[Artifact]:
    return stage.artifacts.values() if stage.name == "python" else ()


def _is_unavailable(artifact: Artifact) -> bool:
    """Return whether a file comes from neither a Python index nor a Debian mirror."""
    return artifact.kind == "url"


def _is_sdist(artifact: Artifact) -> bool:
    return artifact.kind == "pypi" and not artifact.file.endswith(".whl")


def _is_foreign(package: Package, *, is_native: bool) -> bool:
    """Return whether a package is compiled for another Python, which cannot import it."""
    tags = package.file.removesuffix(".whl").split("-")[-3:]
    is_compiled = not package.is_sdist and tags[-1] != "any" and "abi3" not in tags and tags[0] != "py3"
    return is_compiled and not is_native


def _artifact_need(stage: Stage, artifact: Artifact, patterns: tuple[str, ...]) -> StubFile:
    facts = tuple(sorted(stage.facts.items()))
    version = stage.part.version
    return StubFile(
        "artifact", stage.part, stage.source, artifact.name, version, artifact.file, facts, patterns
    )


def _package_need(stage: Stage, package: Package, patterns: tuple[str, ...]) -> StubFile:
    kind: Literal["wheel", "sdist"] = "sdist" if package.is_sdist else "wheel"
    name, version = package.name, package.version
    return StubFile(kind, stage.part, stage.source, name, version, package.file, dropped=patterns)


def _stage(
    stage: Stage, needs: Iterable[StubFile], stubs: Stubs, bases: Iterable[tuple[StubBase, str]]
) -> Stage:
    artifacts = {need.name: stubs.files[need] for need in needs if need.kind == "artifact"}
    packages = {need.file: stubs.files[need] for need in needs if need.kind != "artifact"}

    def stubbed(package: Package) -> Package:
        return replace(package, sha256=packages[package.file]) if package.file in packages else package

    return replace(
        stage,
        artifacts={
            name: replace(artifact, sha256=artifacts[name]) if name in artifacts else artifact
            for name, artifact in stage.artifacts.items()
        },
        locked=tuple(map(stubbed, stage.locked)),
        key=StageKey(_key(stage.key, artifacts, packages, [reference for _, reference in bases])),
    )


def _key(*inputs: object) -> str:
    return sha256(json.dumps(["rehearsal", *inputs], sort_keys=True).encode()).hexdigest()
