"""Phrases for candidates, demands and refusals, shared by all explanations of choices and conflicts."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from bakehouse.catalog.component import DRIVER, INSTANCE, Incompatibility, Requirement
from bakehouse.catalog.efa import EFA, efa_gap, is_all_listed
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location, Reason
from bakehouse.resolve.candidate import Candidate, Conflict, Demand, Refusal
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.files import display_path
from bakehouse.util.format import format_names

_MAX_VERSIONS = 3
_MAX_VARIANTS = 3
_MAX_NAMED_IMAGES = 4
_UNKNOWN = "as it is"
_OF_INSTANCES = ("gpu-architecture", "efa-interfaces")
"""Names that instance types provide."""
_GPU_FACTS = ("gpu", "lacks")
BUILD_AXES = ("cuda", "python")
"""Names for which releases have one build per version; a missing build is a gap in the catalogue."""
_MODULE = re.compile("python3-(?!(?:dev|dbg|full|minimal|venv|pip|distutils|lib2to3|apt-pkg)$).+")
"""Packages of a distribution that contain Python modules."""
_PLURALS = {
    "does": "do",
    "has": "have",
    "is": "are",
    "installs": "install",
    "keeps": "keep",
    "leaves": "leave",
    "locks": "lock",
    "needs": "need",
    "provides": "provide",
}


def version_range(requirement: Requirement) -> str:
    """Return a range as recipes write it: `3.11` for `==3.11.*`."""
    text = requirement.specifier
    return text[2:].removesuffix(".*") if text.startswith("==") and "," not in text else text


def requirement_text(requirement: Requirement) -> str:
    """Return a name with its range: `torch >=2.9`, `any torch`."""
    name = requirement.name
    return f"{name} {version_range(requirement)}" if requirement.specifier else f"any {name}"


def candidate_text(candidate: Candidate) -> str:
    """Return a component with its version and variant; of an instance type only its name."""
    if candidate.name == INSTANCE:
        return candidate.variant.name
    return f"the host's driver {candidate.release.version}" if candidate.name == DRIVER else str(candidate)


def part_text(part: Requirement, targets: Iterable[Candidate]) -> str:
    """Return a part of an incompatibility: the instance types with it, or a name with its range."""
    instances = (target for target in targets if target.name == INSTANCE)
    names = [
        candidate_text(instance)
        for instance in instances
        if part.name in instance.provided and part.allows(instance.provided[part.name])
    ]
    return ", ".join(names) or requirement_text(part)


def owner_text(candidate: Candidate, incompatibility: Incompatibility) -> str:
    """Return the component that has an incompatibility; of a base also the content that has it."""
    content = f" with its {incompatibility.content}" if incompatibility.content else ""
    return f"{candidate_text(candidate)}{content}"


def warning_text(candidate: Candidate, incompatibility: Incompatibility, targets: Iterable[Candidate]) -> str:
    """Return an incompatibility of a component in an image that is not refused."""
    others = " and ".join(part_text(part, targets) for part in incompatibility.parts)
    joint = "and" if incompatibility.content else "with"
    report = "reported, but not confirmed: " if incompatibility.is_unconfirmed else ""
    return f"{owner_text(candidate, incompatibility)} {joint} {others}: {report}{incompatibility.reason}"


def absent_parts(candidate: Candidate, incompatibility: Incompatibility, resolution: Resolution) -> list[str]:
    """Return the absent components that would complete an incompatibility in any version.

    A question about a component may not name the components that it fails with.
    """
    if (candidate, incompatibility) in resolution.warnings:
        return []
    pool = [*(choice.candidate for choice in resolution.all_choices), *resolution.targets]
    absent = [
        part for part in incompatibility.parts if not any(part.name in other.provided for other in pool)
    ]
    present = [part for part in incompatibility.parts if part not in absent]
    applies = all(
        any(part.name in other.provided and part.allows(other.provided[part.name]) for other in pool)
        for part in present
    )
    is_any = not any(part.specifier or part.name in _OF_INSTANCES for part in absent)
    return [part.name for part in absent] if applies and is_any else []


def absent_warnings(
    resolution: Resolution, names: Collection[str]
) -> Iterator[tuple[Candidate, Incompatibility, list[str]]]:
    """Yield the incompatibilities of named components that apply once an absent component is added."""
    for choice in resolution.all_choices:
        for problem in choice.spec.conflicts:
            owner = problem.content.partition(" ")[0] or choice.name
            if owner in names and (absent := absent_parts(choice.candidate, problem, resolution)):
                yield choice.candidate, problem, absent


def target_warnings(resolution: Resolution) -> list[str]:
    """Return warnings about parts that the image does not use, and unknown facts."""
    unknown = [f"it is not known whether the components fit: {fact}" for fact in resolution.unknown]
    unused = (_idle_gpus(resolution), _without_efa(resolution), _foreign_modules(resolution))
    return [text for text in (*unused, *unknown) if text]


def _foreign_modules(resolution: Resolution) -> str:
    """Return a warning about modules of the distribution's Python in an image with a Python of its own."""
    names = [name for name in resolution.recipe.content.system_packages.apt or () if _MODULE.fullmatch(name)]
    if not names or all(choice.name != "python" for choice in resolution.choices):
        return ""
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    return f"{format_names(names)} {verb} for Debian's Python: the image's own Python cannot import {them}"


def _idle_gpus(resolution: Resolution) -> str:
    if any(choice.spec.gpu for choice in resolution.all_choices):
        return ""
    types = (target for target in resolution.targets if target.provided.get("gpus", "0") != "0")
    names = ", ".join(target.variant.name for target in types)
    return f"nothing in the image uses the GPUs of {names}" if names else ""


def _without_efa(resolution: Resolution) -> str:
    if not any(choice.spec.gpu for choice in resolution.all_choices):
        return ""
    names = {name for choice in resolution.all_choices for name in choice.candidate.provided}
    is_complete = is_all_listed([choice.name for choice in resolution.all_choices], resolution.recipe.content)
    gap = efa_gap(names, is_complete=is_complete)
    types = ", ".join(
        target.variant.name
        for target in resolution.targets
        if target.provided.get("gpus", "0") != "0" and target.provided.get("efa-interfaces", "0") != "0"
    )
    if not types or gap is None or (gap.missing != EFA and not gap.is_certain):
        return ""
    has_none = f"has no {gap.missing}" if gap.is_certain else f"is not known to have {gap.missing}"
    return f"the image {has_none}, without which NCCL uses TCP between hosts of {types}"


def warnings_text(
    resolutions: Iterable[Resolution], name: str = "", asked: Collection[str] = frozenset()
) -> str:
    """Format combinations that have a known problem but are not refused: each once, with its images.

    `name` limits them to one component. For `asked` components, warnings that apply once an absent component
    is added are included.
    """
    images: dict[str, list[str]] = {}
    for resolution in resolutions:
        for candidate, problem in resolution.warnings:
            parts = (part.name for part in problem.parts)
            if name not in ("", candidate.name, problem.content.partition(" ")[0], *parts):
                continue
            text = warning_text(candidate, problem, resolution.targets)
            source = f"  source: {problem.source}   {location_text(problem.location)}\n"
            images.setdefault(f"{text}\n{source}", []).append(resolution.recipe.name)
        for candidate, problem, absent in absent_warnings(resolution, asked):
            text = f"{owner_text(candidate, problem)}, once {' and '.join(absent)} is added: {problem.reason}"
            source = f"  source: {problem.source}   {location_text(problem.location)}\n"
            images.setdefault(f"{text}\n{source}", []).append(resolution.recipe.name)
        for text in () if name else target_warnings(resolution):
            images.setdefault(f"{text}\n", []).append(resolution.recipe.name)
    return "".join(f"warning: {_image_list(names)}{text}" for text, names in images.items())


def _image_list(names: Sequence[str]) -> str:
    """Return the first images of a warning; a combination without an image has no name."""
    named = [name for name in names if name]
    rest = f" and {len(named) - _MAX_NAMED_IMAGES} more" if len(named) > _MAX_NAMED_IMAGES else ""
    return f"{', '.join(named[:_MAX_NAMED_IMAGES])}{rest}: " if named else ""


def requester_text(demand: Demand) -> str:
    """Return the source of a demand: a component, the image, or `you` for the command line."""
    if demand.required_by:
        return candidate_text(demand.required_by)
    return "the image" if demand.requirement.location.line else "you"


def demand_reason(demand: Demand) -> Reason:
    """Return `smp 1.7.0 needs cuda 11.3`, with its location."""
    text = f"{requester_text(demand)} {demand_verb(demand)} {requirement_text(demand.requirement)}"
    return Reason(text, demand.requirement.location)


def demand_verb(demand: Demand) -> str:
    """Return the verb of a demand; a constraint alone does not add a component to an image.

    A package that is built for one version does not need it: the catalogue may lack its other builds.
    """
    if demand.required_by:
        if not demand.is_required:
            return "works with"
        return "is built for" if _is_of_build(demand.required_by, demand.requirement) else "needs"
    return "requests" if demand.requirement.location.line else "requested"


def location_text(location: Location) -> str:
    """Return file and line, relative to the current directory where possible."""
    path = display_path(location.path)
    return f"{path}:{location.line}" if location.line else path


def grouped(refusals: Iterable[Refusal]) -> list[list[Refusal]]:
    """Group refusals with the same reason."""
    groups: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(predicate(refusal), []).append(refusal)
    return list(groups.values())


def nearest_refusals(conflict: Conflict) -> list[Refusal]:
    """Return the most informative refusals of a conflict: those because of a target, else the first.

    Refusals of candidates outside the requested versions are the least informative.
    """
    groups = grouped(conflict.refusals)
    groups.sort(key=lambda group: (not is_because_of_target(group[0]), is_version_excluded(group[0])))
    return groups[0] if groups else []


def is_because_of_target(refusal: Refusal) -> bool:
    """Return whether a candidate, or one that it leads to, does not fit an instance type or the driver."""
    if refusal.then:
        return any(map(is_because_of_target, refusal.then.refusals))
    return refusal.other is not None and refusal.other.name in (INSTANCE, DRIVER)


def variants_by_version(group: Iterable[Refusal]) -> dict[str, list[str]]:
    """Return the refused variants of each version, newest version first."""
    variants: dict[str, list[str]] = {}
    for refusal in group:
        variants.setdefault(refusal.candidate.release.version, []).append(refusal.candidate.variant.name)
    return variants


def subject_text(group: list[Refusal]) -> str:
    """Return the candidates of a group: `torch 2.9.0 (cpu-py311)`, `torch 2.9.0, 2.8.0 and 12 older`."""
    by_version = variants_by_version(group)
    if len(by_version) == 1:
        [(version, variants)] = by_version.items()
        is_all = len(variants) == len(group[0].candidate.release.variants) > 1
        return f"{group[0].candidate.name} {version}{'' if is_all else variant_list(variants)}"
    return f"{group[0].candidate.name} {first_versions(by_version)}"


def first_versions(versions: Iterable[str]) -> str:
    """Return the first of many versions: `2.9.0, 2.8.0 and 12 older`."""
    texts = list(versions)
    if len(texts) <= _MAX_VERSIONS + 1:
        return ", ".join(texts)
    return f"{', '.join(texts[:_MAX_VERSIONS])} and {len(texts) - _MAX_VERSIONS} older"


def variant_list(variants: list[str]) -> str:
    """Return the first names of variants in parentheses."""
    if not any(variants):
        return ""
    rest = len(variants) - _MAX_VARIANTS
    if rest <= 1:
        return f" ({', '.join(variants)})"
    return f" ({', '.join(variants[:_MAX_VARIANTS])} and {rest} more)"


def group_text(group: list[Refusal]) -> str:
    """Return subject and predicate: `torch 2.9.0 (cpu-py311) is built for python 3.11, not 3.12`."""
    return f"{subject_text(group)} {group_predicate(group)}"


def group_predicate(group: list[Refusal]) -> str:
    """Return the predicate that the refusals of a group share, in the group's number."""
    return predicate(group[0], is_plural=len(variants_by_version(group)) > 1)


def predicate(refusal: Refusal, *, is_plural: bool = False) -> str:
    """Return why a candidate cannot be in the image: `needs python 3.11, not 3.12`."""
    verb, rest = _verb_and_rest(refusal)
    return f"{_PLURALS[verb] if is_plural else verb} {rest}"


def _verb_and_rest(refusal: Refusal) -> tuple[str, str]:
    name, candidate, other, demand = refusal.name, refusal.candidate, refusal.other, refusal.demand
    if refusal.then:
        if requirement := _requirement_on(refusal):
            return "needs", f"{requirement_text(requirement)}, but {_why_unmet(refusal.then)}"
        return "leaves", f"no compatible {name}"
    if refusal.platform:
        return "has", f"no build for {refusal.platform}"
    if refusal.packages:
        line = refusal.packages[0]
        return _verb(line), f"{name} {line.version or _UNKNOWN}"
    if refusal.incompatibility:
        # Assumed names such as `cuda` have no component.
        parts = refusal.others or refusal.incompatibility.parts
        texts = (requirement_text(p) if isinstance(p, Requirement) else candidate_text(p) for p in parts)
        return "does", f"not work with {' and '.join(texts)}"
    if demand is None:
        return "provides", f"{name} {candidate.provided[name]}"
    if demand.required_by != candidate:
        if name == candidate.name:
            return "does", f"not match {version_range(demand.requirement)}"
        return "provides", f"{name} {candidate.provided[name]}, not {version_range(demand.requirement)}"
    needed = requirement_text(demand.requirement)
    if other == candidate:
        return "needs", f"{needed}, but itself provides {candidate.provided[name]}"
    verb, rest = (
        ("is", f"built for {needed}") if _is_of_build(candidate, demand.requirement) else ("needs", needed)
    )
    return verb, f"{rest}, not {other.provided[name]}" if other else rest


def _why_unmet(conflict: Conflict) -> str:
    """Return why a name that a candidate needs has no version in the image."""
    group = nearest_refusals(conflict)
    if not group:
        return "nothing in the image provides it"
    if all(map(is_version_excluded, conflict.refusals)):
        return f"the catalogue has only {subject_text(list(conflict.refusals))}"
    return group_text(group)


def _is_of_build(candidate: Candidate, requirement: Requirement) -> bool:
    """Return whether a requirement is the one version that a named build is for."""
    is_exact = version_range(requirement) != requirement.specifier
    return bool(candidate.variant.name) and requirement.name in BUILD_AXES and is_exact


def _verb(line: Package) -> str:
    """Return the verb for a package: a base keeps it, a component installs its wheel, or a lock has it."""
    is_lock_line = line.location.path.suffix != ".yaml"
    if not line.file:
        return "expects" if is_lock_line else "keeps"
    return "locks" if is_lock_line else "installs"


def opposing_reasons(refusal: Refusal) -> Iterator[Reason]:
    """Yield the facts that a refused candidate contradicts, each with its location."""
    demand, other, incompatibility = refusal.demand, refusal.other, refusal.incompatibility
    if refusal.then:
        inner = nearest_refusals(refusal.then)[:1]
        yield from (
            reason for first in inner if not is_version_excluded(first) for reason in opposing_reasons(first)
        )
    elif refusal.packages:
        line = refusal.packages[1]
        fact = f"{other or 'the image'} {_verb(line)} {line.name} {line.version or _UNKNOWN}"
        yield Reason(fact, line.location)
    elif incompatibility:
        owners = (other for other in refusal.others if incompatibility in other.spec.conflicts)
        owner = next(owners, refusal.candidate)
        yield Reason(
            f"{owner_text(owner, incompatibility)}: {incompatibility.reason}", incompatibility.location
        )
        yield Reason(f"the source is {incompatibility.source}")
    elif demand and demand.required_by != refusal.candidate:
        yield demand_reason(demand)
    elif other and other != refusal.candidate and other.name != refusal.name:
        verb = "has" if other.name == INSTANCE else "provides"
        model = _gpu_model(other) if refusal.name == "gpu-architecture" else ""
        fact = f"{candidate_text(other)} {verb} {refusal.name} {other.provided[refusal.name]}{model}"
        yield Reason(fact, other.variant.location)


def _gpu_model(instance: Candidate) -> str:
    """Return the GPU of an instance type in parentheses: `V100, without bf16 and FP8`."""
    facts = instance.spec.facts
    parts = [
        facts[name] if name == "gpu" else f"without {facts[name]}" for name in _GPU_FACTS if name in facts
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _requirement_on(refusal: Refusal) -> Requirement | None:
    """Return the candidate's requirement on the name that it makes unsatisfiable."""
    spec = refusal.candidate.spec
    requirements = (*spec.requires, *spec.recommends)
    return next((requirement for requirement in requirements if requirement.name == refusal.name), None)


def reason_location(refusal: Refusal) -> Location:
    """Return the location of the fact that excludes a candidate."""
    if refusal.packages:
        return refusal.packages[0].location
    if refusal.then and (requirement := _requirement_on(refusal)):
        return requirement.location
    if refusal.demand and refusal.demand.required_by == refusal.candidate:
        return refusal.demand.requirement.location
    return refusal.candidate.variant.location


def is_version_excluded(refusal: Refusal) -> bool:
    """Return whether the version itself is outside a demanded range."""
    is_own_demand = refusal.demand and refusal.demand.required_by == refusal.candidate
    return refusal.demand is not None and not is_own_demand and refusal.name == refusal.candidate.name
