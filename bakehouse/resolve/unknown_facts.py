"""Facts that an answer depends on, but the catalogue does not state. A missing fact satisfies nothing."""

from collections.abc import Iterator, Sequence

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import INSTANCE, Incompatibility
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.resolve.candidate import Candidate

NEURON_SDK = "neuron-sdk"
_COUNTS = {"gpu-architecture": "gpus", "neuron-architecture": "neuron-cores"}
"""Facts about accelerators, and the number of these. Without accelerators, the fact does not apply."""


def unknown_facts(
    chosen: Sequence[Candidate], targets: Sequence[Candidate], catalog: Catalog
) -> tuple[str, ...]:
    """Return the missing facts without which it is not known whether components fit, each as a phrase."""
    facts = [*_of_neuron(chosen), *_untested(chosen)]
    instances = [target for target in targets if target.name == INSTANCE]
    known = _facts_of_instances(catalog) if instances else frozenset()
    for instance in instances:
        missing = {name for name in known - instance.provided.keys() if _applies(name, instance)}
        for candidate in chosen if missing else ():
            names = _needed(candidate) & missing
            for incompatibility in candidate.spec.conflicts:
                names |= _undecided(incompatibility, missing, (*chosen, instance))
            facts += [
                f"{name} of {instance.variant.name}, which {candidate} depends on" for name in sorted(names)
            ]
    return tuple(facts)


def _facts_of_instances(catalog: Catalog) -> frozenset[str]:
    facts: frozenset[str] | None = catalog.cache.get("facts of instances")
    if facts is None:
        releases = catalog.components[INSTANCE].releases
        facts = frozenset(
            name for release in releases for variant in release.variants for name in variant.spec.provides
        )
        catalog.cache["facts of instances"] = facts
    return facts


def _applies(name: str, instance: Candidate) -> bool:
    """Return whether an instance type may have what a missing fact describes."""
    count = _COUNTS.get(name)
    if count is None:
        return name not in _COUNTS.values() or not _has_accelerators(instance)
    if count in instance.provided:
        return instance.provided[count] != "0"
    return not _has_accelerators(instance) and "gpus" not in instance.provided


def _has_accelerators(instance: Candidate) -> bool:
    """Return whether accelerators of one kind are known, so that those of others are not missing."""
    return any(name in instance.provided for name in _COUNTS)


def _needed(candidate: Candidate) -> set[str]:
    spec = candidate.spec
    names = {requirement.name for requirement in (*spec.requires, *spec.constraints)}
    names |= {"gpus"} if spec.gpu else set()
    return names | ({"neuron-cores"} if NEURON_SDK in spec.provides else set())


def _undecided(incompatibility: Incompatibility, missing: set[str], pool: Sequence[Candidate]) -> set[str]:
    """Return the missing facts with which an incompatibility might apply."""
    names = {part.name for part in incompatibility.parts} & missing
    applies = all(
        part.name in names
        or any(part.name in other.provided and part.allows(other.provided[part.name]) for other in pool)
        for part in incompatibility.parts
    )
    return names if applies else set()


def _untested(chosen: Sequence[Candidate]) -> Iterator[str]:
    """Yield the components with versions next to them that are not known to have been tried."""
    versions = {name: version for other in chosen for name, version in other.provided.items()}
    for candidate in chosen:
        for item in candidate.spec.tested:
            if item.name in versions and not item.allows(versions[item.name]):
                yield f"whether {candidate} works with {item.name} {versions[item.name]}"


def _of_neuron(chosen: Sequence[Candidate]) -> Iterator[str]:
    """Yield the components that need a framework, but state nothing about one that runs on NeuronCores."""
    base = chosen[0]
    frameworks = frozenset(FRAMEWORKS) & base.provided.keys() if NEURON_SDK in base.provided else frozenset()
    for candidate in chosen[1:]:
        spec = candidate.spec
        requirements = (*spec.requires, *spec.constraints)
        if frameworks.intersection(item.name for item in spec.requires) and not any(
            item.name == NEURON_SDK for item in requirements
        ):
            yield f"whether {candidate} supports {NEURON_SDK}"
