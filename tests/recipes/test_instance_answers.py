"""Answers about instance types use the accelerators that these have, over the real catalogue."""

import re
from dataclasses import replace

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.run_steps import RunStep
from bakehouse.cli import tables
from bakehouse.errors import ConflictError
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.resolve import what_if
from bakehouse.resolve.phrases import warnings_text
from bakehouse.resolve.resolver import Resolution
from tests.support.errors import error_text, raised

CATALOG = open_workspace().catalog


def one_of_each_kind(catalog: Catalog) -> list[Instance]:
    """Return an instance type for each architecture of GPUs and NeuronCores, and one without either."""
    kinds = {
        (instance.gpu_architecture, instance.neuron_architecture): instance
        for instance in instances(catalog).values()
        if instance.gpus is not None and not instance.name.startswith("ml.p6e-")
    }
    return list(kinds.values())


def uses(resolution: Resolution) -> tuple[bool, bool]:
    """Return whether an image uses GPUs and NeuronCores."""
    specs = [choice.spec for choice in resolution.all_choices]
    return any(spec.gpu for spec in specs), any("neuron-sdk" in spec.provides for spec in specs)


@pytest.mark.parametrize("instance", one_of_each_kind(CATALOG), ids=lambda instance: instance.name)
def test_an_answer_without_an_image_uses_what_the_instance_has(instance: Instance) -> None:
    for words in ([], ["pytorch"]):
        assumptions = what_if.parse_assumptions([f"instance={instance.name}", *words], CATALOG)
        fits = what_if.resolve_on_bases(assumptions, CATALOG)

        wanted = bool(instance.gpus), bool(instance.neuron_architecture)
        assert {uses(resolution) for resolution in fits.resolutions} == {wanted}


def test_an_image_for_trainium_does_not_fit_gpus() -> None:
    assert "the Neuron SDK compiles for NeuronCores and uses no GPUs" in refusal(
        "pytorch-2.7-neuron2.25-py310-extended", "ml.p4d.24xlarge"
    )


@pytest.mark.parametrize("name", ["pytorch-cu130", "pytorch-cpu", "tensorflow-cpu"])
def test_an_image_without_the_neuron_sdk_does_not_fit_trainium(name: str) -> None:
    assert "ml.trn1.32xlarge needs any neuron-sdk" in refusal(name, "ml.trn1.32xlarge")


def test_an_image_for_cpus_on_an_instance_with_gpus_is_a_warning() -> None:
    workspace = open_workspace()
    [recipe] = select(workspace, ["pytorch-cpu"]).recipes
    assumptions = what_if.parse_assumptions(["instance=ml.g5.12xlarge"], CATALOG)
    resolution = what_if.resolve_assuming(recipe, assumptions, CATALOG)

    warning = "warning: pytorch-cpu: nothing in the image uses the GPUs of ml.g5.12xlarge\n"
    assert tables.fit(assumptions, [resolution]).endswith(warning)
    [recipe] = select(workspace, ["pytorch-cu130"]).recipes
    resolution = what_if.resolve_assuming(recipe, assumptions, CATALOG)
    assert "uses the GPUs" not in tables.fit(assumptions, [resolution])


def test_a_step_of_the_recipe_may_install_efa() -> None:
    [recipe] = select(open_workspace(), ["pytorch-cu130"]).recipes
    assumptions = what_if.parse_assumptions(["instance=ml.p4d.24xlarge"], CATALOG)
    content = replace(recipe.content, run=(RunStep("/opt/aws-efa-installer/efa_installer.sh -y"),))
    resolution = what_if.resolve_assuming(replace(recipe, content=content), assumptions, CATALOG)

    assert (
        "the image is not known to have efa, without which NCCL uses TCP between hosts of ml.p4d.24xlarge\n"
    ) in warnings_text([resolution])


def refusal(name: str, instance: str) -> str:
    [recipe] = select(open_workspace(), [name]).recipes
    assumptions = what_if.parse_assumptions([f"instance={instance}"], CATALOG)
    return error_text(raised(ConflictError, what_if.resolve_assuming, recipe, assumptions, CATALOG))


@pytest.mark.parametrize("words", [["driver=535"], ["instance=ml.p4d.24xlarge"]])
def test_no_answer_for_gpus_is_an_image_for_cpus_or_neuron(words: list[str]) -> None:
    """PyTorch 2.9 is in an image with the Neuron SDK, and fits images for CPUs."""
    assumptions = what_if.parse_assumptions(["pytorch=2.9", *words], CATALOG)

    assert {uses(found) for found in what_if.fitting(assumptions, CATALOG).resolutions} == {(True, False)}


def test_no_close_combination_for_gpus_is_an_image_for_cpus_or_neuron() -> None:
    assumptions = what_if.parse_assumptions(["pytorch=2.13", "driver=470"], CATALOG)
    report = error_text(raised(ConflictError, what_if.resolve_on_bases, assumptions, CATALOG))

    assert "1 change  with cuda-compat 12.6  nvidia-cuda 12.6.3 " in report
    assert not re.search(r"cpu-|neuron|  base ", report)


@pytest.mark.parametrize("pytorch", ["2.10", "2.11"])
def test_nccl_with_a_plugin_of_which_nothing_is_known_is_said(pytorch: str) -> None:
    """EFA 1.46.0 brings the plugin 1.17.2, PyTorch's wheels for CUDA 13 bring NCCL 2.28.9."""
    assumptions = what_if.parse_assumptions([f"pytorch={pytorch}", "cuda=13.0", "efa=1.46.0"], CATALOG)
    [resolution, *_] = what_if.fitting(assumptions, CATALOG).resolutions

    assert resolution.version_of("nccl") == "2.28.9"
    assert "it is not known whether the plugin it brings, aws-ofi-nccl 1.17.2, works with NCCL 2.28.9" in (
        warnings_text([resolution])
    )
