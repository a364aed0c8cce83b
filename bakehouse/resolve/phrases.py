"""The words for candidates, demands and refusals, shared by all that explains a choice or a conflict."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bakehouse.catalog.component import DRIVER, INSTANCE, Requirement
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location, Reason
from bakehouse.resolve.candidate import Candidate, Demand, Refusal

_MOST_VERSIONS = 3
_MOST_VARIANTS = 3
_UNKNOWN = "as it is"
_PLURALS = {
    "brings": "bring",
    "does": "do",
    "is": "are",
    "keeps": "keep",
    "leaves": "leave",
    "locks": "lock",
    "needs": "need",
}


def version_range(requirement: Requirement) -> str:
    """A range as one writes it: `==3.11.*` is what a bare `3.11` became."""
    text = requirement.specifier
    return text[2:].removesuffix(".*") if text.startswith("==") and "," not in text else text


def requirement_text(requirement: Requirement) -> str:
    """A name with its range: `torch >=2.9`, `any torch`."""
    return (
        f"{requirement.name} {version_range(requirement)}"
        if requirement.specifier
        else f"any {requirement.name}"
    )


def candidate_text(candidate: Candidate) -> str:
    """A part with its version and variant; an instance type by its name."""
    if candidate.name == INSTANCE:
        return candidate.variant.name
    return f"the host's driver {candidate.release.version}" if candidate.name == DRIVER else str(candidate)


def requester_text(demand: Demand) -> str:
    """Who asks: a part, the image, or who typed the command."""
    if demand.required_by:
        return str(demand.required_by)
    return "the image" if demand.requirement.location.line else "you"


def demand_reason(demand: Demand) -> Reason:
    """`smp 1.7.0 needs cuda 11.3`, with its place."""
    return Reason(
        f"{requester_text(demand)} {demand_verb(demand)} {requirement_text(demand.requirement)}",
        demand.requirement.location,
    )


def demand_verb(demand: Demand) -> str:
    """The verb of a demand: only what goes with something in the image doesn't bring it in."""
    if demand.required_by:
        return "needs" if demand.brings else "goes with"
    return "asks for" if demand.requirement.location.line else "ask for"


def location_text(location: Location) -> str:
    """File and line, from the current folder where it lies below."""
    path = location.path
    if path.is_relative_to(here := Path.cwd()):
        path = path.relative_to(here)
    return f"{path}:{location.line}" if location.line else str(path)


def grouped(refusals: Iterable[Refusal]) -> list[list[Refusal]]:
    """Refusals that say the same of several candidates, together."""
    found: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        found.setdefault(predicate(refusal), []).append(refusal)
    return list(found.values())


def variants_by_version(group: Iterable[Refusal]) -> dict[str, list[str]]:
    """The refused variants of each version, newest version first."""
    found: dict[str, list[str]] = {}
    for refusal in group:
        found.setdefault(refusal.candidate.release.version, []).append(refusal.candidate.variant.name)
    return found


def subject_text(group: list[Refusal]) -> str:
    """Whom a group of refusals is about: `torch 2.9.0 (cpu-py311)`, `torch 2.9.0, 2.8.0 and 12 older`."""
    found = variants_by_version(group)
    if len(found) == 1:
        [(version, variants)] = found.items()
        is_all = len(variants) == len(group[0].candidate.release.variants) > 1
        return f"{group[0].candidate.name} {version}{'' if is_all else variant_list(variants)}"
    return f"{group[0].candidate.name} {first_versions(found)}"


def first_versions(found: Iterable[str]) -> str:
    """The first versions of many: `2.9.0, 2.8.0 and 12 older`."""
    texts = list(found)
    if len(texts) <= _MOST_VERSIONS + 1:
        return ", ".join(texts)
    return f"{', '.join(texts[:_MOST_VERSIONS])} and {len(texts) - _MOST_VERSIONS} older"


def variant_list(variants: list[str]) -> str:
    """Names of variants, few of them."""
    if not any(variants):
        return ""
    rest = len(variants) - _MOST_VARIANTS
    if rest <= 1:
        return f" ({', '.join(variants)})"
    return f" ({', '.join(variants[:_MOST_VARIANTS])} and {rest} more)"


def group_text(group: list[Refusal]) -> str:
    """Return subject and predicate of a group: `torch 2.9.0 (cpu-py311) needs python 3.11, not 3.12`."""
    return f"{subject_text(group)} {group_predicate(group)}"


def group_predicate(group: list[Refusal]) -> str:
    """Return the predicate that the refusals of a group share, in the group's number."""
    return predicate(group[0], is_plural=len(variants_by_version(group)) > 1)


def predicate(refusal: Refusal, *, is_plural: bool = False) -> str:
    """Why a candidate can't be in the image: `needs python 3.11, not 3.12`."""
    verb, rest = _verb_and_rest(refusal)
    return f"{_PLURALS[verb] if is_plural else verb} {rest}"


def _verb_and_rest(refusal: Refusal) -> tuple[str, str]:
    name, candidate, other, demand = refusal.name, refusal.candidate, refusal.other, refusal.demand
    if refusal.then:
        if own := _own(refusal):
            is_tried = refusal.then.refusals
            return (
                "needs",
                f"{requirement_text(own)}, {'and none fits' if is_tried else 'which nothing here brings'}",
            )
        return "leaves", f"no {name} that fits"
    if refusal.packages:
        line = refusal.packages[0]
        return _verb(line), f"{name} {line.version or _UNKNOWN}"
    if refusal.known:
        return "does", f"not work with {' and '.join(map(candidate_text, refusal.others))}"
    if demand is None:
        return "brings", f"{name} {candidate.provided[name]}"
    if demand.required_by != candidate:
        if name == candidate.name:
            return "is", f"not {version_range(demand.requirement)}"
        return "brings", f"{name} {candidate.provided[name]}, not {version_range(demand.requirement)}"
    needed = requirement_text(demand.requirement)
    if other == candidate:
        return (
            "needs",
            f"{needed}, and itself brings {candidate.provided[name]}",
        )
    return (
        "needs",
        f"{needed}{f', not {other.provided[name]}' if other else ''}",
    )


def _verb(line: Package) -> str:
    """What a base keeps stands in no lock, so no file is known of it."""
    return "locks" if line.file else "keeps"


def opposing_reasons(refusal: Refusal) -> Iterator[Reason]:
    """What a refused candidate does not go with, or who says so; each fact with its place."""
    demand, other, known = refusal.demand, refusal.other, refusal.known
    if refusal.packages:
        line = refusal.packages[1]
        fact = f"{other or 'the image'} {_verb(line)} {line.name} {line.version or _UNKNOWN}"
        yield Reason(fact, line.location)
    elif known:
        owner = next(
            (one for one in refusal.others if known in one.spec.conflicts),
            refusal.candidate,
        )
        yield Reason(f"{candidate_text(owner)}: {known.reason}", known.location)
        yield Reason(f"the source of that is {known.source}")
    elif demand and demand.required_by != refusal.candidate:
        yield demand_reason(demand)
    elif other and other != refusal.candidate and other.name != refusal.name:
        verb = "has" if other.name == INSTANCE else "brings"
        there = other.variant.location
        yield Reason(f"{candidate_text(other)} {verb} {refusal.name} {other.provided[refusal.name]}", there)


def _own(refusal: Refusal) -> Requirement | None:
    """What a candidate asks of the name that nothing fits for once it is chosen."""
    spec = refusal.candidate.spec
    return next((one for one in (*spec.requires, *spec.recommends) if one.name == refusal.name), None)


def reason_location(refusal: Refusal) -> Location:
    """Where the fact stands that keeps a candidate out."""
    if refusal.packages:
        return refusal.packages[0].location
    if refusal.then and (own := _own(refusal)):
        return own.location
    if refusal.demand and refusal.demand.required_by == refusal.candidate:
        return refusal.demand.requirement.location
    return refusal.candidate.variant.location


def is_version_excluded(refusal: Refusal) -> bool:
    """Whether the version itself is out of a demanded range."""
    is_own_demand = refusal.demand and refusal.demand.required_by == refusal.candidate
    return refusal.demand is not None and not is_own_demand and refusal.name == refusal.candidate.name
