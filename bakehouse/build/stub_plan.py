"""Turns a Plan into its rehearsal: the same stages and steps, with stand-ins for what can't be had here.

Only checksums, bases and labels differ from the real plan. A rehearsal has keys, tags and bases of its own:
no step of it is ever a step of a real build.
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
from bakehouse.plan.model import BootstrappedBase, Image, ImageKey, Part, RegistryBase, Stage, StageKey
from bakehouse.util.oci import Sha256

REHEARSED = "rehearsed, not built"
LABEL = "org.bakehouse.rehearsed"
REPOSITORY = "bakehouse/rehearsal"
BASES = "bakehouse/rehearsal-base"
OUTPUT = "type=image,compression=zstd,compression-level=1"
"""Nobody keeps a rehearsed image for long: what is fastest."""
MOST_BYTES = 20_000_000
"""A larger wheel gets a stand-in: a rehearsal tries steps, not downloads."""
HEAVY_STAGE, MOST_BYTES_OF_HEAVY = 200_000_000, 2_000_000
"""Of a stage that weighs more, such as a framework with CUDA, wheels from that size on get one."""

_FINISH = re.compile(r"(?<![\w/-])finish-layer +(?P<words>[^&\n]*)")
_APT = re.compile(r"\bapt-get install (?P<words>.*)")
_COPIES = re.compile(r"^COPY --from=(\S+)", re.MULTILINE)
_OWN_PYTHON = "3.11"
"""Of the Debian that all stand-ins of bases are made of."""


@dataclass(frozen=True, slots=True)
class StubFile:
    """One file that has to have a stand-in."""

    kind: Literal["wheel", "sdist", "artifact"]
    part: Part
    """Whose stage wants it."""
    folder: Path
    """The component's folder, which may say what its stand-ins are like."""
    name: str
    """The artifact's name, or the package's."""
    version: str
    file: str
    facts: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    """Patterns of which the stage drops what it installed: something has to be there."""

    @property
    def text(self) -> str:
        return f"{self.part.component} {self.part.version}: {self.file}"


@dataclass(frozen=True, slots=True)
class StubBase:
    """One base that has to have a stand-in."""

    part: Part
    bootstrapped: BootstrappedBase | None
    """The real base, where it can be made here: it only gets a mark."""
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
    """The stand-ins that were made: checksums of files, references of bases."""

    files: Mapping[StubFile, Sha256]
    bases: Mapping[StubBase, str]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """An image with stand-ins in it, and the image that it stands for."""

    real: Image
    image: Image
    files: tuple[tuple[StubFile, Sha256], ...]
    bases: tuple[tuple[StubBase, str], ...]

    @property
    def reference(self) -> str:
        """The name of the rehearsed image on this machine."""
        return f"{REPOSITORY}/{self.real.name}:{self.image.key[:8]}"

    @property
    def stubs(self) -> tuple[str, ...]:
        """The components that are not the real ones, in the order of the image."""
        base = [self.real.base_part.component] if isinstance(self.real.base, RegistryBase) else []
        return tuple(dict.fromkeys([*base, *(need.part.component for need, _ in self.files)]))

    def is_real(self, name: str) -> bool:
        """Whether an answer about a part, or about what one provides, proves anything: all of it is real."""
        is_away = isinstance(self.real.base, RegistryBase) or "python" in self.stubs
        brought_by = {part.component for part in self.real.all_parts if name in dict(part.provides)}
        return not is_away and not {name, *brought_by} & {*self.stubs}


def required_bases(image: Image) -> tuple[StubBase, ...]:
    """The bases of an image: every one gets a stand-in, or a mark, so that no step is a real build's."""
    made = image.base if isinstance(image.base, BootstrappedBase) else None
    facts = tuple(sorted(image.base_facts.items()))
    base = StubBase(image.base_part, made, facts=facts)
    return (base, replace(base, is_build_base=True)) if image.build_base else (base,)


def required_files(
    image: Image, stage_texts: Mapping[str, str], *, real: bool = False
) -> dict[str, list[StubFile]]:
    """The files of each stage that have to have stand-ins; `real` keeps every package of a lock."""
    native = _interpreter_is_real(image)
    found: dict[str, list[StubFile]] = {}
    for stage in image.stages:
        patterns = dropped(stage_texts.get(stage.name, ""))
        needs = [_artifact_need(stage, one, patterns) for one in stage.artifacts.values() if _is_away(one)]
        if not real:
            packages = [*stage.wheels, *stage.sdists]
            is_heavy = sum(one.bytes for one in packages) > HEAVY_STAGE
            most = MOST_BYTES_OF_HEAVY if is_heavy else MOST_BYTES
            packages = [one for one in packages if one.bytes > most or _is_foreign(one, native)]
            # What is compiled against a stand-in is one too, and what needs the library of a newer Python
            below = _COPIES.findall(stage_texts.get(stage.name, ""))
            if any(map(found.get, below)) or _is_ahead(image):
                packages += [one for one in stage.sdists if one not in packages]
            needs += [_package_need(stage, one, patterns) for one in packages]
        # What the stage drops has to come from one of them, and one is enough.
        first = next((need for need in needs if need.file.endswith(".whl")), None)
        found[stage.name] = [need if need is first else replace(need, dropped=()) for need in needs]
    return found


def rehearse(image: Image, needs: Mapping[str, list[StubFile]], made: Stubs) -> Rehearsal:
    """The image with the checksums and bases of the stand-ins that were made for it."""
    bases = [(need, made.bases[need]) for need in required_bases(image)]
    files = [(need, made.files[need]) for stage in image.stages for need in needs[stage.name]]
    stages = tuple(_stage(stage, needs[stage.name], made, bases) for stage in image.stages)
    key = ImageKey(_key(image.key, [reference for _, reference in bases], [stage.key for stage in stages]))
    reference = bases[0][1]
    if isinstance(image.base, BootstrappedBase):
        on_base = replace(image, base=replace(image.base, reference=reference))
    else:
        # What is locked fits the real base alone: on its stand-in steps take what the mirrors have
        stages = tuple(replace(stage, debs=()) for stage in stages)
        on_base = replace(image, base=RegistryBase(reference, None), apt_debs=(), toolchain_debs=())
    rehearsed = replace(
        on_base,
        key=key,
        summary=f"{REHEARSED}: {image.summary}",
        build_base=bases[1][1] if image.build_base else "",
        stages=stages,
        labels={**image.labels, "org.bakehouse.key": key, LABEL: REHEARSED},
    )
    return Rehearsal(image, rehearsed, tuple(files), tuple(bases))


def dropped(stage_text: str) -> tuple[str, ...]:
    """The patterns of which `finish` drops what a stage has installed."""
    matches = _FINISH.finditer(stage_text.replace("\\\n", " "))
    commands = [shlex.split(match["words"], comments=True) for match in matches]
    named = (pattern.removeprefix("!") for _, *patterns in commands for pattern in patterns)
    return tuple(pattern for pattern in named if not pattern.startswith("**/"))


def apt_names(dockerfile: str) -> frozenset[str]:
    """The distribution's packages that a Dockerfile asks for, pinned ones with their versions."""
    names: set[str] = set()
    for found in _APT.finditer(dockerfile.replace("\\\n", " ")):
        words = shlex.split(found["words"].partition("&&")[0].partition(";")[0], comments=True)
        names.update(word for word in words if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+(=\S+)?", word))
    return frozenset(names)


def stage_texts(dockerfile: str) -> dict[str, str]:
    """The text of each stage, by the stage's name."""
    pieces = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    found = (re.match(r"FROM \S+ AS (\S+)", piece) for piece in pieces)
    return {match[1]: piece for match, piece in zip(found, pieces, strict=True) if match}


def lock_text(rehearsal: Rehearsal) -> str:
    """What stands for what in an image, by checksum: the rehearsal lock."""
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
    """The Python that a base's `python3` is, or would be once its distribution's package is installed."""
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
"""What `python3` is in releases of Ubuntu and Debian."""


def _interpreter_is_real(image: Image) -> bool:
    """Whether the base's own Python runs what the locks were made for."""
    if not isinstance(image.base, BootstrappedBase):
        return False
    wanted = [part.version for part in image.parts if part.component == "python"]
    fetched = any(_is_away(one) for stage in image.stages for one in _of_python(stage))
    return not fetched and wanted in ([], [_PYTHONS.get(image.base.suite)])


def _is_ahead(image: Image) -> bool:
    """Whether its Python is newer than the one that stands in: build tools ask for what that doesn't have."""
    wanted = [part.version for part in image.parts if part.component == "python"]
    wanted = wanted or [python_of(dict(image.base_part.provides))]
    own = _PYTHONS.get(image.base.suite, "") if isinstance(image.base, BootstrappedBase) else ""
    return _minor(wanted[0]) > _minor(own or _OWN_PYTHON)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _of_python(stage: Stage) -> Iterable[Artifact]:
    return stage.artifacts.values() if stage.name == "python" else ()


def _is_away(artifact: Artifact) -> bool:
    """Whether a file can't be had wherever packages of Python and Debian can be had."""
    return artifact.kind == "url"


def _is_foreign(package: Package, native: bool) -> bool:
    """What is compiled for a Python that isn't here: nothing could import it."""
    tags = package.file.removesuffix(".whl").split("-")[-3:]
    is_compiled = not package.is_sdist and tags[-1] != "any" and "abi3" not in tags and tags[0] != "py3"
    return is_compiled and not native


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
    stage: Stage, needs: Iterable[StubFile], made: Stubs, bases: Iterable[tuple[StubBase, str]]
) -> Stage:
    artifacts = {need.name: made.files[need] for need in needs if need.kind == "artifact"}
    packages = {need.file: made.files[need] for need in needs if need.kind != "artifact"}

    def exchanged(one: Package) -> Package:
        return replace(one, sha256=packages[one.file]) if one.file in packages else one

    return replace(
        stage,
        key=StageKey(_key(stage.key, artifacts, packages, [reference for _, reference in bases])),
        artifacts={
            name: replace(one, sha256=artifacts[name]) if name in artifacts else one
            for name, one in stage.artifacts.items()
        },
        wheels=tuple(map(exchanged, stage.wheels)),
        sdists=tuple(map(exchanged, stage.sdists)),
    )


def _key(*inputs: object) -> str:
    return sha256(json.dumps(["rehearsal", *inputs], sort_keys=True).encode()).hexdigest()
