"""Turns what was chosen for an image into the stages that it is made of, with their keys.

A key covers inputs, not results: facts, templates, the keys of the stages below. Two images that use a
component in the same way have the same stage, with the same key and the same text.
"""

from collections.abc import Iterable, Mapping

from bakehouse.catalog import trim
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.plan.apt_packages import AptSteps
from bakehouse.plan.model import Part, Stage, StageKey, packages_below
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.hashing import key_of, list_of, text_json

REQUIREMENTS_TEMPLATE = "requirements.j2"
"""The template of the recipe's own Python packages: no key but theirs needs it."""


def stages_of(
    resolution: Resolution,
    parts: Iterable[Part],
    foundation: str,
    locked: AptSteps,
    templates: Mapping[str, str],
) -> tuple[Stage, ...]:
    """The stages of an image, each behind all that it takes files of; `parts` are those of the choices.

    `foundation` covers what all of them stand on: the base, and the templates that stages share.
    """
    stages: tuple[Stage, ...] = ()
    for choice, part in zip(resolution.choices, parts, strict=True):
        if choice.candidate.component.template:
            names = _below(choice.candidate.component.template, choice.candidate.component.builds_on, stages)
            below = [stage.key for stage in stages if stage.name in names]
            debs = locked.stages.get(choice.name, ())
            stages = (*stages, _stage(choice, part, resolution, foundation, below, debs))
    if resolution.user_packages:
        template = templates[REQUIREMENTS_TEMPLATE]
        names = _below(template, (), stages)
        below = [stage.key for stage in stages if stage.name in names]
        stages = (*stages, _user_stage(resolution, foundation, below, template))
    return stages


def _below(template: str, builds_on: Iterable[str], stages: Iterable[Stage]) -> set[str]:
    """The stages that one starts from or takes files of; packages are installed into `python`'s."""
    names = {*builds_on, "python"} if "package_stage" in template else {*builds_on}
    return names | {*packages_below(stages)} if "packages_below" in template else names


def _stage(
    choice: Choice,
    part: Part,
    resolution: Resolution,
    foundation: str,
    below: list[StageKey],
    debs: tuple[Deb, ...],
) -> Stage:
    component, spec = choice.candidate.component, choice.spec
    packages = resolution.owners[choice.name]
    wanted = resolution.recipe.trim
    trims = trim.choices(spec.trims.values(), wanted, gpu=spec.gpu)
    dropped = trim.patterns(trims, wanted)
    artifacts = {artifact.name: artifact for artifact in spec.artifacts}
    sdists = tuple(package for package in packages if package.is_sdist)
    first, behind, last = choice.candidate.key_inputs
    key = key_of(
        foundation,
        first,
        list_of(package.key_input for package in packages),
        behind,
        [deb.sha256 for deb in debs],
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
        build_apt=spec.build_apt,
        facts=spec.facts,
        files=component.files,
        debs=debs,
        trims=trims,
        dropped=dropped,
        layer=component.layer_order,
    )


def _user_stage(resolution: Resolution, foundation: str, below: list[StageKey], template: str) -> Stage:
    """The user's own requirements: installed as any component's packages are."""
    recipe, packages = resolution.recipe, resolution.user_packages
    part = Part(REQUIREMENTS, "0", "")
    dropped = trim.patterns((), recipe.trim)
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
