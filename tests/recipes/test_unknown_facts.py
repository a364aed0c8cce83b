"""A fact that the catalogue lacks satisfies no constraint: over all instance types and facts."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bakehouse.catalog.component import INSTANCE, Variant
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.recipe import Targets
from bakehouse.errors import UndecidedError
from bakehouse.jobs.instance_groups import instance_group
from bakehouse.jobs.job_images import find_image
from bakehouse.jobs.training_request import TrainingRequest
from bakehouse.jobs.validate import validate
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.resolve import what_if
from bakehouse.resolve.candidate import Candidate
from bakehouse.resolve.phrases import warnings_text
from bakehouse.resolve.resolver import resolve
from bakehouse.resolve.unknown_facts import unknown_facts
from bakehouse.util.yaml_reader import Scalar
from tests.support.errors import raised, refusal

WORKSPACE = open_workspace()
CATALOG = WORKSPACE.catalog
COMPONENT = CATALOG.components[INSTANCE]
[RELEASE] = COMPONENT.releases
GPU_IMAGE, NEURON_IMAGE = "pytorch-2.10-cu130-py312-efa", "pytorch-2.9-neuron2.30-py312-extended"
CHOSEN = {
    name: [choice.candidate for choice in select(WORKSPACE, [name]).resolutions[0].all_choices]
    for name in (GPU_IMAGE, NEURON_IMAGE)
}


def facts_that_are_read() -> set[str]:
    """Return the facts about instance types that any component requires, constrains or conflicts with."""
    specs = (
        variant.spec
        for component in CATALOG.components.values()
        if component.name != INSTANCE
        for release in component.releases
        for variant in release.variants
    )
    read = {
        requirement.name
        for spec in specs
        for requirement in (
            *(*spec.requires, *spec.constraints),
            *(part for conflict in spec.conflicts for part in conflict.parts),
        )
    }
    return read & {name for variant in RELEASE.variants for name in variant.spec.provides}


def without(variant: Variant, fact: str) -> Candidate:
    provides = {name: value for name, value in variant.spec.provides.items() if name != fact}
    return Candidate(COMPONENT, RELEASE, replace(variant, spec=replace(variant.spec, provides=provides)))


def cases() -> Iterator[tuple[Variant, str, str]]:
    """Yield each instance type with each of its facts that an image for it depends on."""
    read = facts_that_are_read()
    for variant in RELEASE.variants:
        provides = variant.spec.provides
        image = NEURON_IMAGE if "neuron-cores" in provides else GPU_IMAGE
        for fact in sorted(read & provides.keys()):
            yield variant, fact, image


NO_SOURCE = {"ml.p6e-gb200.36xlarge": "efa-interfaces"}
"""Facts that no source of AWS gives."""


def test_the_facts_that_components_read() -> None:
    assert facts_that_are_read() == {"gpu-architecture", "neuron-architecture", "efa-interfaces"}


def test_without_a_fact_it_is_not_known_whether_components_fit() -> None:
    for variant, fact, image in cases():
        if image == NEURON_IMAGE and fact == "efa-interfaces":
            continue  # nothing in that image states anything about EFA
        if variant.name in NO_SOURCE:
            continue
        complete = unknown_facts(CHOSEN[image], [Candidate(COMPONENT, RELEASE, variant)], CATALOG)
        missing = unknown_facts(CHOSEN[image], [without(variant, fact)], CATALOG)

        assert not complete, variant.name
        assert missing
        assert all(text.startswith(f"{fact} of {variant.name}, which ") for text in missing)


@pytest.mark.parametrize(
    "fact", ["gpus", "gpu_architecture", "neuron_architecture", "efa_interfaces", "rdma_read"]
)
def test_without_a_fact_no_job_is_called_valid(fact: str) -> None:
    images = {name: find_image(WORKSPACE, name) for name in (GPU_IMAGE, NEURON_IMAGE)}
    types = instances(CATALOG)
    seen = 0
    for name, instance in types.items():
        if not getattr(instance, fact) or instance.name.startswith("ml.p6e-"):
            continue
        seen += 1
        missing: Any = {fact: "" if fact.endswith("architecture") else None}
        unknown = replace(instance, **missing)
        image = images[NEURON_IMAGE if instance.neuron_cores else GPU_IMAGE]
        request = TrainingRequest("API", (instance_group({**types, name: unknown}, name, 2),))
        findings = [finding.message for finding in validate(request, image) if not finding.rule.is_known]
        if fact == "rdma_read" and instance.neuron_cores:
            continue  # the image is not known to have EFA, which its check names
        expected = f"it is not known whether `{name}` suits `{image.name}`: the catalogue lacks its "
        assert any(text.startswith(expected) for text in findings), name
    assert seen > 3


def test_an_answer_to_a_question_says_what_is_not_known() -> None:
    """Copies of lines once gave a type of today the GPU of another, without its architecture."""
    variants = tuple(
        without(variant, "gpu-architecture").variant if variant.name == "ml.g7.12xlarge" else variant
        for variant in RELEASE.variants
    )
    component = replace(COMPONENT, releases=(replace(RELEASE, variants=variants),))
    catalog = replace(CATALOG, components={**CATALOG.components, INSTANCE: component})
    assumptions = what_if.parse_assumptions(["pytorch=1.10", "instance=ml.g7.12xlarge"], catalog)
    text = refusal(UndecidedError, what_if.resolve_on_bases, assumptions, catalog)
    assert text.startswith("error: it is not known whether a base fits pytorch 1.10 and ml.g7.12xlarge\n")
    assert "  the catalogue lacks  gpu-architecture of ml.g7.12xlarge, which pytorch 1.10.2 " in text

    [recipe] = select(WORKSPACE, ["pytorch-cu130"]).recipes
    assumptions = what_if.parse_assumptions(["instance=ml.g7.12xlarge"], catalog)
    with pytest.raises(UndecidedError, match="it is not known whether image `pytorch-cu130` fits"):
        what_if.resolve_assuming(recipe, assumptions, catalog)
    [fit] = what_if.summarize_images([recipe], assumptions, catalog)
    assert (fit.is_decided, fit.lacking.partition(",")[0]) == (False, "gpu-architecture of ml.g7.12xlarge")

    targets = Targets((Scalar("ml.g7.12xlarge", recipe.location),), None)
    resolution = resolve(replace(recipe, targets=targets), catalog)
    warning = "pytorch-cu130: it is not known whether the components fit: gpu-architecture of ml.g7.12xlarge"
    assert warning in warnings_text([resolution])


def test_a_component_that_states_nothing_about_trainium_is_not_known_to_work_there() -> None:
    assumptions = what_if.parse_assumptions(["horovod=*", "pytorch=2.5"], CATALOG)
    error = raised(UndecidedError, what_if.resolve_on_bases, assumptions, CATALOG)
    assert error.diagnostics[0].facts[0] == ("not decided", "aws-neuron-pytorch")
    assert error.diagnostics[0].facts[-1] == (
        "the catalogue lacks",
        "whether horovod 0.28.1 (pytorch-py310) supports neuron-sdk",
    )


def test_a_framework_newer_than_those_tried_with_a_dead_project_is_not_known() -> None:
    with pytest.raises(UndecidedError) as caught:
        what_if.resolve_on_bases(
            what_if.parse_assumptions(["horovod-nccl=*", "pytorch=2.15"], CATALOG), CATALOG
        )
    assert caught.value.diagnostics[0].facts[-1] == (
        "the catalogue lacks",
        "whether horovod-nccl 0.28.1 (pytorch-py311) works with pytorch 2.15.0",
    )


@pytest.mark.parametrize("asked", ["deepspeed=*", "horovod=*", "transformer-engine=*"])
def test_a_base_with_an_unrequested_framework_or_sdk_is_not_proposed(asked: str) -> None:
    fits = what_if.fitting(what_if.parse_assumptions([asked], CATALOG), CATALOG)

    for resolution in fits.resolutions:
        names = {name for choice in resolution.all_choices for name in choice.candidate.provided}
        assert len(names & {"pytorch", "tensorflow"}) < 2
        assert "neuron-sdk" not in names
    assert "aws-neuron-pytorch" not in fits.undecided


def test_each_accelerator_type_is_described() -> None:
    """No two families share a GPU by accident: those that do are listed here."""
    families: dict[str, set[str]] = defaultdict(set)
    lacking = []
    for variant in RELEASE.variants:
        provides, gpu = variant.spec.provides, variant.spec.facts.get("gpu", "")
        kind = "neuron" if "neuron-cores" in provides else "gpu"
        names = {"gpus", "efa-interfaces", "vcpus", "memory-gib"}
        if kind == "neuron" or provides.get("gpus") != "0":
            names |= {f"{kind}-architecture", "neuron-cores" if kind == "neuron" else "gpus"}
            if kind == "gpu":
                families[str(gpu)].add(variant.name.split(".")[1])
        lacking += [(variant.name, name) for name in names if name not in provides]
    assert lacking == [*NO_SOURCE.items()]
    assert families == {
        "K80": {"p2"},
        "V100": {"p3", "p3dn"},
        "A100 40GB": {"p4d"},
        "A100 80GB": {"p4de"},
        "H100": {"p5"},
        "H200": {"p5e", "p5en"},
        "B200": {"p6-b200"},
        "B300": {"p6-b300"},
        "GB200": {"p6e-gb200"},
        "T4": {"g4dn"},
        "A10G": {"g5"},
        "L4": {"g6"},
        "L40S": {"g6e"},
        "RTX PRO 4500 Blackwell": {"g7"},
        "RTX PRO 6000 Blackwell": {"g7e"},
    }
