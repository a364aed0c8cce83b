"""Turns Resolutions into a Plan: stages addressed by what goes into them, images made of stages.

A key covers inputs, not results: facts, templates, the keys of the stages below. Two images that use a
component in the same way have the same stage, with the same key and the same text.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NewType

from bakehouse import trimming
from bakehouse.aptlock import Deb
from bakehouse.aptsteps import AptSteps, apt_of, apt_steps
from bakehouse.baselock import AptLocks
from bakehouse.budgets import OWN, REQUIREMENTS, Budget
from bakehouse.component import Artifact, BaseSource
from bakehouse.errors import Diagnostic, Problems, Reason, RecipeError
from bakehouse.keys import json_of, key_of, list_of, text_json, texts_json
from bakehouse.lockfile import Package
from bakehouse.ownfiles import CODE_FOLDER
from bakehouse.recipe import FORMATS, GPU_CHECKS, Content, Recipe
from bakehouse.resolution import Choice, Resolution
from bakehouse.trimming import Choice as TrimChoice
from bakehouse.yamlfile import suggestion

StageKey = NewType("StageKey", str)
"""64 hex digits over everything that goes into a stage."""
ImageKey = NewType("ImageKey", str)
"""64 hex digits over everything that goes into an image."""
Sha256 = NewType("Sha256", str)
"""64 hex digits over the bytes of a file."""
Digest = NewType("Digest", str)
"""`sha256:` and 64 hex digits: an OCI object's address."""

PLATFORM = "linux/amd64"
MAX_LAYERS = 100
COMPRESSION_LEVEL = 3
"""Of gzip: half the time of its default, for 5 % more bytes (700 MB of torch)."""
_LABEL = "org.bakehouse"
_REQUIREMENTS = "requirements.j2"
"""The template of the recipe's own Python packages: no key but theirs needs it."""


@dataclass(frozen=True, slots=True)
class BootstrappedBase:
    """A base made on this machine with mmdebstrap."""

    reference: str
    """`bakehouse/debian:12-<key8>`: what FROM names."""
    suite: str
    packages: tuple[str, ...]
    debs: tuple[Deb, ...] = ()
    """All that it is made of; empty where nothing of the suite is locked, and its mirrors decide."""


@dataclass(frozen=True, slots=True)
class RegistryBase:
    """A base pulled from an image registry."""

    reference: str
    digest: Digest | None
    """None where nobody knows it yet: refused by `push`."""
    locks_apt: bool = False
    """Whether all that steps add to it of the distribution are known files."""

    @property
    def pinned(self) -> str:
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True, slots=True)
class Part:
    """One component as it is in an image."""

    component: str
    version: str
    variant: str
    smoke: Path | None = None
    """The component's smoke.py, on this machine."""
    provides: tuple[tuple[str, str], ...] = ()
    """What it brings under other names, such as `nccl`, with the versions declared."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One component's build, ending in a tree under /out that the image receives as one layer."""

    name: str
    key: StageKey
    part: Part
    source: Path
    """The component's folder: where a failing line comes from."""
    template: str
    artifacts: Mapping[str, Artifact]
    wheels: tuple[Package, ...]
    sdists: tuple[Package, ...]
    build_apt: tuple[str, ...]
    facts: Mapping[str, str]
    files: Mapping[str, bytes]
    debs: tuple[Deb, ...] = ()
    """What `build_apt` adds to the toolchain, where it is locked."""
    trims: tuple[TrimChoice, ...] = ()
    """What it can go without."""
    dropped: tuple[str, ...] = ()
    """What `finish` is told to drop, and with `!` to keep."""
    layer: int = 0
    """Smaller numbers lie lower in an image."""

    @property
    def packages(self) -> str:
        """The name of the stage that has those files; empty where there are none."""
        return f"{self.name}-packages" if self.debs else ""

    @property
    def finish(self) -> str:
        """The command that makes a layer of what was installed."""
        return shlex.join(["finish", self.name, *self.dropped])


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be built, resolved and addressed."""

    name: str
    key: ImageKey
    summary: str
    base: BootstrappedBase | RegistryBase
    parts: tuple[Part, ...]
    gpu: bool
    launchers: tuple[str, ...]
    """Which of `torchrun`, `mpirun` the image carries."""
    training_module: str | None
    """What SAGEMAKER_TRAINING_MODULE names; None is the plain toolkit."""
    entry_point: str | None = None
    """Training code baked at /opt/ml/code, as its own file name there."""
    environment: Mapping[str, str] | None = None
    stages: tuple[Stage, ...] = ()
    apt: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    content: Content = field(default_factory=Content)
    base_part: Part = Part("", "", "")
    base_facts: Mapping[str, str] = field(default_factory=dict)
    build_base: str = ""
    """What build stages start from, where it is not the base itself."""
    frozen: tuple[str, ...] = ()
    """Names and globs of the Python packages that the base has to keep."""
    toolchain: tuple[str, ...] = ()
    """The distribution's packages that build stages share."""
    gpu_architecture: str = ""
    """The GPUs that its parts have code for, as in `>=7.5,<10`; empty where they don't say."""
    required: tuple[str, ...] = ()
    """The smoke checks that have to have passed before it is released."""
    budgets: tuple[Budget, ...] = ()
    """What its parts may weigh; no part of its key."""
    format: str = FORMATS[0]
    """In what form it is stored and pushed."""
    unpinned: tuple[Artifact, ...] = ()
    """Artifacts whose sha256 nobody knows yet: built with a warning, refused by `push`."""
    apt_debs: tuple[Deb, ...] = ()
    """What `apt` adds to the base, where it is locked."""
    toolchain_debs: tuple[Deb, ...] = ()
    """What `toolchain` adds to the base, where it is locked."""

    @property
    def locks_apt(self) -> bool:
        """Whether each of the distribution's packages in it is a file that is known by its sha256."""
        return bool(self.base.debs) if isinstance(self.base, BootstrappedBase) else self.base.locks_apt

    @property
    def installs_apt(self) -> bool:
        """Whether it has a layer of the distribution's packages."""
        return bool(self.apt_debs) if self.locks_apt else bool(self.apt)

    @property
    def debs(self) -> tuple[Deb, ...]:
        """All of the distribution's packages that a build needs, each once."""
        base = self.base.debs if isinstance(self.base, BootstrappedBase) else ()
        stages = (deb for stage in self.stages for deb in stage.debs)
        return tuple(dict.fromkeys((*base, *self.toolchain_debs, *stages, *self.apt_debs)))

    @property
    def reference(self) -> str:
        """The name of the built image on this machine."""
        return f"bakehouse/{self.name}:{self.key[:8]}"

    @property
    def layers(self) -> tuple[Stage, ...]:
        """The stages in the order of their layers, lowest first."""
        return in_layers(self.stages)

    @property
    def names(self) -> tuple[str, str]:
        """All names that a build gives it, the one with its key first."""
        return self.reference, f"bakehouse/{self.name}:latest"

    @property
    def target(self) -> str:
        """Its name in a bake file, which takes no dots."""
        return self.name.replace(".", "_")

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The base and what was put on it."""
        return (self.base_part, *self.parts) if self.base_part.component else self.parts

    @property
    def wheel_bytes(self) -> int:
        """Bytes of all Python packages as downloaded: a floor for what the image will weigh."""
        return sum(one.bytes for stage in self.stages for one in (*stage.wheels, *stage.sdists))


@dataclass(frozen=True, slots=True)
class Plan:
    images: tuple[Image, ...]

    @property
    def stages(self) -> dict[StageKey, Stage]:
        """Every stage once, however many images use it."""
        return {stage.key: stage for image in self.images for stage in image.stages}


def make_plan(
    resolutions: Iterable[Resolution],
    templates: Mapping[str, str],
    region: str | None = None,
    locks: AptLocks | None = None,
) -> Plan:
    """The stages and keys of images; `templates` are the shared template texts, which enter the keys.

    `region` is where bases are pulled from that have a registry in each; `locks` are those of the packages
    of distributions. Raises RecipeError where a base is not there, a package is not locked, or an
    image would get more layers than engines take.
    """
    problems = Problems()
    images = []
    for resolution in resolutions:
        host = registry_host(resolution, region, problems)
        images.append(_image(resolution, templates, host, locks or AptLocks({}, {}), problems))
        _check_layers(images[-1], resolution.recipe, problems)
        _check_apt(images[-1], resolution, problems)
        _check_budgets(images[-1], problems)
    problems.raise_as(RecipeError)
    return Plan(tuple(images))


def registry_host(resolution: Resolution, region: str | None, problems: Problems) -> str:
    """The registry of a base that is named without one, and the slash behind it."""
    base = resolution.base.candidate.component
    if base.registries is None:
        return ""
    hosts = base.registries.hosts
    if region is not None and region not in hosts:
        message = f"there is no `{base.name}` in region `{region}`"
        label = f"the base of image `{resolution.recipe.name}`"
        reasons = (Reason(f"`registries` of `{base.name}` has no such region", base.registries.location),)
        hint = suggestion(region, hosts) or "set `region` in [tool.bakehouse] to one that has it"
        problems.add(Diagnostic(message, resolution.recipe.base.location, label, reasons, hint=hint))
    return f"{hosts.get(region or '') or next(iter(hosts.values()))}/"


def _image(
    resolution: Resolution,
    templates: Mapping[str, str],
    host: str,
    locks: AptLocks,
    problems: Problems,
) -> Image:
    recipe, choices = resolution.recipe, (resolution.base, *resolution.choices)
    faces = [choice.face for choice in choices]
    source = resolution.base.face.base
    assert source is not None
    apt = apt_of(resolution)
    locked = apt_steps(resolution, locks, problems)
    base = _base(resolution.base, source, host, locked)
    shared = texts_json(tuple(one for one in templates.items() if one[0] != _REQUIREMENTS))
    build_reference = source.build_reference and host + source.build_reference
    frozen = tuple(one.pattern for one in resolution.base.candidate.component.frozen)
    face = resolution.base.face
    toolchain = tuple(_sums(locked.toolchain))
    foundation = _foundation(
        _base_key(base), build_reference, face.build_apt, toolchain, json_of(face.facts), frozen, shared
    )
    stages: tuple[Stage, ...] = ()
    parts = tuple(_part(choice) for choice in resolution.choices)
    for choice, part in zip(resolution.choices, parts, strict=True):
        if choice.candidate.component.template:
            names = _below(choice.candidate.component.template, choice.candidate.component.builds_on, stages)
            below = [stage.key for stage in stages if stage.name in names]
            debs = locked.stages.get(choice.name, ())
            stages = (*stages, _stage(choice, part, resolution, foundation, below, debs))
    if resolution.user_packages:
        names = _below(templates[_REQUIREMENTS], (), stages)
        below = [stage.key for stage in stages if stage.name in names]
        stages = (*stages, _user_stage(resolution, foundation, below, templates))
    environment = _environment(choices, recipe)
    base_part = _part(resolution.base)
    path = [folder for face in faces for folder in face.path]
    library_path = [folder for face in faces for folder in face.library_path]
    entrypoints = [face.entrypoint for face in faces if face.entrypoint]
    entrypoint = entrypoints[-1] if entrypoints else ()
    gpu = any(face.gpu for face in faces)
    launchers = {name for choice in choices for name in choice.candidate.component.launchers}
    key = ImageKey(
        key_of(
            recipe.name,
            recipe.summary,
            foundation,
            COMPRESSION_LEVEL,
            [stage.key for stage in in_layers(stages)],
            apt,
            _sums(locked.image),
            environment,
            path,
            library_path,
            entrypoint,
            parts_text((base_part, *parts)),
            _plain(recipe.content),
            *([] if recipe.format == FORMATS[0] else [recipe.format]),
        )
    )
    return Image(
        name=recipe.name,
        key=key,
        summary=recipe.summary,
        base=base,
        parts=parts,
        gpu=gpu,
        launchers=tuple(sorted(launchers)),
        training_module=environment.get("SAGEMAKER_TRAINING_MODULE"),
        entry_point=recipe.content.entry_point,
        environment=environment,
        stages=stages,
        apt=apt,
        path=tuple(dict.fromkeys(path)),
        library_path=tuple(dict.fromkeys(library_path)),
        entrypoint=entrypoint,
        labels=_labels(recipe, key, (base_part, *parts)),
        content=recipe.content,
        base_part=base_part,
        base_facts=resolution.base.face.facts,
        build_base=build_reference,
        frozen=frozen,
        toolchain=resolution.base.face.build_apt,
        gpu_architecture=_asked_of(choices, "gpu-architecture"),
        required=_required(recipe, gpu=gpu, launchers=launchers),
        budgets=recipe.budgets,
        format=recipe.format,
        unpinned=tuple(artifact for face in faces for artifact in face.artifacts if artifact.sha256 is None),
        apt_debs=locked.image,
        toolchain_debs=locked.toolchain if stages else (),
    )


@lru_cache(256)
def _foundation(*inputs: object) -> str:
    """What all stages of an image stand on, which most images on one base have in common."""
    return key_of(*inputs)


def _base_key(base: BootstrappedBase | RegistryBase) -> tuple[str, ...]:
    """What tells a base from every other: a bootstrapped one has all it is made of in its name."""
    if isinstance(base, BootstrappedBase):
        return base.reference, _key_of_bootstrapped(base.suite, base.packages, base.debs)
    return base.reference, base.digest or "", *(["locked"] if base.locks_apt else [])


def _sums(debs: tuple[Deb, ...]) -> list[str]:
    return [deb.sha256 for deb in debs]


def _required(recipe: Recipe, *, gpu: bool, launchers: Collection[str]) -> tuple[str, ...]:
    """What its recipe requires; else an image for GPUs, where there are checks, has to be seen on some."""
    if recipe.required is not None:
        return recipe.required
    return GPU_CHECKS if gpu and "torchrun" in launchers else ()


def _asked_of(choices: Iterable[Choice], name: str) -> str:
    """All that the parts ask of what an image runs on, as one range."""
    asked = (one for choice in choices for one in choice.face.constraints if one.name == name)
    ranges = (text for one in asked for text in one.specifier.split(",") if text)
    return ",".join(dict.fromkeys(ranges))


def in_layers(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Stages in the order of their layers; what users install is on top, as it may replace anything."""
    return tuple(sorted(stages, key=lambda stage: (stage.name == REQUIREMENTS, stage.layer)))


def _below(template: str, builds_on: Iterable[str], stages: Iterable[Stage]) -> set[str]:
    """The stages that one starts from or takes files of; packages are installed into `python`'s."""
    names = {*builds_on, "python"} if "package_stage" in template else {*builds_on}
    return names | {*packages_below(stages)} if "packages_below" in template else names


def packages_below(stages: Iterable[Stage]) -> tuple[str, ...]:
    """The stages that end in Python packages: what is compiled against some of them needs them all."""
    return tuple(
        stage.name
        for stage in stages
        if "packages(" in stage.template and (stage.wheels or stage.sdists or stage.artifacts)
    )


def _base(choice: Choice, source: BaseSource, host: str, locked: AptSteps) -> BootstrappedBase | RegistryBase:
    if source.suite:
        return bootstrapped(choice.name, choice.version, source, locked.base)
    digest = Digest(source.digest) if source.digest else None
    return RegistryBase(host + source.reference, digest, locked.on_pulled)


def bootstrapped(name: str, version: str, source: BaseSource, debs: tuple[Deb, ...]) -> BootstrappedBase:
    """A base that is made here, under the name that all images on it have for it."""
    key = _key_of_bootstrapped(source.suite, source.packages, debs)
    return BootstrappedBase(f"bakehouse/{name}:{version}-{key[:8]}", source.suite, source.packages, debs)


@lru_cache(64)
def _key_of_bootstrapped(suite: str, packages: tuple[str, ...], debs: tuple[Deb, ...]) -> str:
    return key_of(suite, packages, _sums(debs))


def _part(choice: Choice) -> Part:
    variant = choice.candidate.variant.name
    smoke = choice.candidate.component.smoke
    return Part(choice.name, choice.version, variant, smoke, tuple(sorted(choice.face.provides.items())))


def _stage(
    choice: Choice,
    part: Part,
    resolution: Resolution,
    foundation: str,
    below: list[StageKey],
    debs: tuple[Deb, ...],
) -> Stage:
    component, face = choice.candidate.component, choice.face
    packages = resolution.owners[choice.name]
    wanted = resolution.recipe.trim
    trims = trimming.choices(face.trims.values(), wanted, gpu=face.gpu)
    dropped = trimming.patterns(trims, wanted)
    artifacts = {artifact.name: artifact for artifact in face.artifacts}
    sdists = tuple(package for package in packages if package.is_sdist)
    first, behind, last = choice.candidate.key_inputs
    key = key_of(
        foundation,
        first,
        list_of(package.key_input for package in packages),
        behind,
        _sums(debs),
        last,
        *([dropped] if dropped else []),
        *below,
    )
    return Stage(
        name=component.name,
        key=StageKey(key),
        part=part,
        source=component.folder,
        template=component.template,
        artifacts=artifacts,
        wheels=tuple(one for one in packages if not one.is_sdist) if sdists else packages,
        sdists=sdists,
        build_apt=face.build_apt,
        facts=face.facts,
        files=component.files,
        debs=debs,
        trims=trims,
        dropped=dropped,
        layer=component.layer,
    )


def _user_stage(
    resolution: Resolution, foundation: str, below: list[StageKey], templates: Mapping[str, str]
) -> Stage:
    """The user's own requirements: installed as any component's packages are."""
    recipe, packages = resolution.recipe, resolution.user_packages
    part = Part(REQUIREMENTS, "0", "")
    template = templates[_REQUIREMENTS]
    dropped = trimming.patterns((), recipe.trim)
    return Stage(
        name=REQUIREMENTS,
        key=StageKey(
            key_of(
                foundation,
                text_json(template),
                list_of(package.key_input for package in packages),
                *([dropped] if dropped else []),
                *below,
            )
        ),
        part=part,
        source=recipe.location.path.parent,
        template=template,
        artifacts={},
        wheels=tuple(package for package in packages if not package.is_sdist),
        sdists=tuple(package for package in packages if package.is_sdist),
        build_apt=(),
        facts={},
        files={},
        dropped=dropped,
    )


def _environment(choices: tuple[Choice, ...], recipe: Recipe) -> dict[str, str]:
    """Later parts win over earlier ones, and the recipe's own words over all."""
    merged: dict[str, str] = {"SAGEMAKER_SUBMIT_DIRECTORY": CODE_FOLDER}
    if any(choice.face.gpu for choice in choices):
        merged |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    for choice in choices:
        merged |= choice.face.environment
    if recipe.content.entry_point:
        merged["SAGEMAKER_PROGRAM"] = recipe.content.entry_point
    return merged | dict(recipe.content.environment)


def _labels(recipe: Recipe, key: ImageKey, parts: tuple[Part, ...]) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.summary,
        f"{_LABEL}.key": key,
        **{f"{_LABEL}.component.{part.component}": _version_text(part) for part in parts},
    }


def parts_text(parts: Iterable[Part]) -> list[str]:
    """`name version (variant)` of each part."""
    return [f"{part.component} {_version_text(part)}" for part in parts]


def _version_text(part: Part) -> str:
    return f"{part.version} ({part.variant})" if part.variant else part.version


def _check_apt(image: Image, resolution: Resolution, problems: Problems) -> None:
    if (image.apt or image.toolchain) and resolution.base.face.provides.get("amazon-linux"):
        message = f"apt packages can't be installed in image `{image.name}`: {', '.join(image.apt)}"
        label = "Amazon Linux, whose packages come with dnf"
        hint = "leave them out, or start from an image on Ubuntu"
        problems.add(Diagnostic(message, resolution.recipe.base.location, label, hint=hint))


def _check_layers(image: Image, recipe: Recipe, problems: Problems) -> None:
    # The base's own layers are not known before it is pulled; no base in the catalogue has more than 20.
    layers = 22 + len(image.stages) + len(image.content.run)
    if layers > MAX_LAYERS:
        message = f"image `{image.name}` would have {layers} layers; {MAX_LAYERS} are allowed"
        hint = "put several steps of `run` into one"
        problems.add(Diagnostic(message, recipe.location, hint=hint))


def _check_budgets(image: Image, problems: Problems) -> None:
    parts = {part.component for part in image.all_parts}
    weighed = [image.base_part.component, *(stage.name for stage in image.stages)]
    names = [name for name in weighed if name in parts]
    for budget in image.budgets:
        if budget.name in parts and budget.name not in names:
            message = f"`{budget.name}` of image `{image.name}` has no layer of its own to have a budget"
            hint = "`apt` is what all parts bring of the distribution"
            problems.add(Diagnostic(message, budget.location, hint=hint))
        elif budget.name not in (*names, *OWN):
            message = f"image `{image.name}` has no `{budget.name}` to have a budget"
            problems.add(Diagnostic(message, budget.location, hint=suggestion(budget.name, names)))


def _plain(value: object) -> object:
    """Dataclass fields, bytes as their sha256, places left out: a key must not move with a line number."""
    if isinstance(value, bytes):
        return sha256(value).hexdigest()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if is_dataclass(value):
        names = (one.name for one in fields(value) if one.name != "location")
        return {name: _plain(getattr(value, name)) for name in names}
    return value
