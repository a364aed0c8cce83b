"""Make the stages of an image, with their keys, from its resolution.

A key covers inputs, not results: facts, templates and the keys of lower stages. Images that use a component
in the same way share the stage, its key and its text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.catalog.trim import drop_patterns, trim_choices
from bakehouse.plan.apt_packages import AptSteps
from bakehouse.plan.model import InstalledComponent, Stage, StageKey, packages_below, ships
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.hashing import Json, key_of, list_of, text_json, text_key

REQUIREMENTS_TEMPLATE = "requirements.j2"
"""Template of the Python packages of a recipe; only their stage depends on it."""
_MOUNTED = re.compile(r'"bin/([a-z-]+)"')


def stages_of(
    resolution: Resolution,
    parts: Iterable[InstalledComponent],
    foundation: str,
    locked: AptSteps,
    templates: Mapping[str, str],
    base: InstalledComponent,
) -> tuple[Stage, ...]:
    """Return the stages of an image in build order; `parts` are the components of the choices.

    The key of a stage covers `foundation`, which is the key of the base and the shared templates, and the
    scripts that its steps mount.
    """
    is_frozen = bool(resolution.base.candidate.component.frozen)
    stages: tuple[Stage, ...] = ()
    for choice, part in zip(resolution.choices, parts, strict=True):
        if choice.candidate.component.template:
            stage = _stage(choice, part, resolution, locked.stages.get(choice.name, ()), base)
            if "packages(" in stage.template and not (stage.wheels or stage.sdists or stage.artifacts):
                # Layers of other components contain all its packages
                continue
            names = _below(choice.candidate.component.template, choice.candidate.component.builds_on, stages)
            below = [stage.key for stage in stages if stage.name in names]
            scripts = _script_keys(stage, templates, is_frozen=is_frozen)
            stage = replace(stage, key=_key(choice, resolution, stage, foundation, scripts, below))
            stages = (*stages, stage)
    if resolution.user_packages:
        template = templates[REQUIREMENTS_TEMPLATE]
        names = _below(template, (), stages)
        below = [stage.key for stage in stages if stage.name in names]
        stage = _user_stage(resolution, template)
        scripts = _script_keys(stage, templates, is_frozen=is_frozen)
        packages = list_of(package.key_input for package in resolution.user_packages)
        dropped = [stage.dropped] if stage.dropped else []
        key = key_of(foundation, text_json(template), packages, scripts, *dropped, *below)
        stages = (*stages, replace(stage, key=StageKey(key)))
    return stages


def scripts_of(stage: Stage, *, is_frozen: bool) -> frozenset[str]:
    """Return the names of the scripts that the steps of a stage mount."""
    return frozenset(_scripts(stage, is_frozen))


@lru_cache(1024)
def _mounted(template: str) -> tuple[str, ...]:
    return tuple(_MOUNTED.findall(template))


def _scripts(stage: Stage, is_frozen: bool) -> Iterator[str]:
    yield from _mounted(stage.template)
    if "packages(" in stage.template and (stage.wheels or stage.sdists or stage.artifacts):
        yield "finish-layer"
    downloads = "packages(" in stage.template or "download(" in stage.template
    if downloads and any(artifact.kind != "pypi" for artifact in stage.artifacts.values()):
        yield "download"
    if stage.debs:
        yield "download-debs"
    if is_frozen and ships(stage.template, stage.name):
        yield "keep-frozen"


def _script_keys(stage: Stage, templates: Mapping[str, str], *, is_frozen: bool) -> Json:
    scripts = sorted(scripts_of(stage, is_frozen=is_frozen))
    return list_of(text_key(templates[f"bin/{name}"]) for name in scripts if f"bin/{name}" in templates)


def _below(template: str, builds_on: Iterable[str], stages: Iterable[Stage]) -> set[str]:
    """Return the stages that a stage starts from or copies from; packages are installed into `python`."""
    names = {*builds_on, "python"} if "package_stage" in template else {*builds_on}
    return names | {*packages_below(stages)} if "packages_below" in template else names


def _key(
    choice: Choice,
    resolution: Resolution,
    stage: Stage,
    foundation: str,
    scripts: Json,
    below: list[StageKey],
) -> StageKey:
    first, after, last = choice.candidate.key_inputs
    key = key_of(
        foundation,
        first,
        list_of(package.key_input for package in resolution.owners[choice.name]),
        after,
        [deb.sha256 for deb in stage.debs],
        last,
        scripts,
        *([stage.dropped] if stage.dropped else []),
        *below,
    )
    return StageKey(key)


def _stage(
    choice: Choice,
    part: InstalledComponent,
    resolution: Resolution,
    debs: tuple[Deb, ...],
    base: InstalledComponent,
) -> Stage:
    """Return a stage without its key."""
    component, spec = choice.candidate.component, choice.spec
    packages = resolution.owners[choice.name]
    trim = resolution.recipe.trim
    trims = trim_choices(spec.trims.values(), trim, gpu=spec.gpu)
    dropped = drop_patterns(trims, trim)
    artifacts = {artifact.name: artifact for artifact in spec.artifacts}
    sdists = tuple(package for package in packages if package.is_sdist)
    return Stage(
        name=component.name,
        key=StageKey(""),
        part=part,
        source=component.folder,
        template=component.template,
        artifacts=artifacts,
        wheels=tuple(package for package in packages if not package.is_sdist) if sdists else packages,
        sdists=sdists,
        build_apt=spec.build_apt,
        facts=spec.facts,
        files=component.files,
        debs=debs,
        debs_list=f"debs/{base.label}/{part.label}.txt" if debs else "",
        trims=trims,
        dropped=dropped,
        layer=component.layer_order,
    )


def _user_stage(resolution: Resolution, template: str) -> Stage:
    """Return the stage of the Python packages of a recipe, without its key."""
    recipe, packages = resolution.recipe, resolution.user_packages
    part = InstalledComponent(REQUIREMENTS, "0", "")
    dropped = drop_patterns((), recipe.trim)
    return Stage(
        name=REQUIREMENTS,
        key=StageKey(""),
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
