"""Which images suit an instance type."""

import pytest
from packaging.specifiers import SpecifierSet

from bakehouse.catalog.instance_gpus import FILE, InstanceGpus, find_gpus, is_within
from bakehouse.catalog.instance_types import gpus_text
from bakehouse.errors import Diagnostic, UsageError
from bakehouse.plan.workspace import open_workspace
from tests.support.errors import raised

AMPERE = InstanceGpus("ml.p4d.24xlarge", gpu=True, architecture="8.0")
TRAINIUM = InstanceGpus("ml.trn1.32xlarge", gpu=False, neuron_architecture="2")


def test_the_committed_table_is_the_catalogues(request: pytest.FixtureRequest) -> None:
    text = gpus_text(open_workspace().catalog)
    if request.config.getoption("--update-snapshots"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text


def test_what_is_known_of_a_type() -> None:
    assert find_gpus("ml.p4d.24xlarge") == AMPERE
    assert find_gpus("ml.c5.2xlarge") == InstanceGpus("ml.c5.2xlarge", gpu=False)
    assert find_gpus("ml.trn1.32xlarge") == TRAINIUM
    assert find_gpus("local") == InstanceGpus("local", gpu=False)
    assert find_gpus("local_gpu") == InstanceGpus("local_gpu", gpu=True)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("ml.p4d.24xlagre", "unknown instance type `ml.p4d.24xlagre`", "did you mean `ml.p4d.24xlarge`?"),
        *(
            (name, f"unknown instance type `{name}`", "name an image; `bake list` lists them")
            for name in ("x", "ml.nosuch.large", "ml.foo.2xlarge")
        ),
        (
            "ml.inf2.xlarge",
            "no training job runs on `ml.inf2.xlarge`: SageMaker offers it for inference only",
            "use a type with Trainium, such as `ml.trn1.32xlarge`",
        ),
    ],
)
def test_types_that_no_image_is_for(name: str, message: str, hint: str) -> None:
    assert raised(UsageError, find_gpus, name).diagnostics == (Diagnostic(message, hint=hint),)


def test_a_type_without_recorded_gpus_suits_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakehouse.catalog.instance_gpus._architectures", lambda: {"ml.q9.xlarge": "unknown"})
    with pytest.raises(UsageError, match=r"^the catalogue does not record the GPUs of `ml\.q9\.xlarge`$"):
        find_gpus("ml.q9.xlarge")


def test_an_image_is_for_the_platform_of_the_instance_type() -> None:
    graviton, grace = find_gpus("ml.c7g.xlarge"), find_gpus("ml.p6e-gb200.36xlarge")

    assert graviton == InstanceGpus("ml.c7g.xlarge", gpu=False, platform="linux/arm64")
    assert graviton.unfit(gpu=False, architecture="", platform="linux/arm64") == ""
    assert grace.unfit(gpu=True, architecture="", platform="linux/arm64") == ""
    assert graviton.unfit(gpu=False, architecture="") == (
        "is for linux/amd64, but `ml.c7g.xlarge` is linux/arm64"
    )
    assert AMPERE.unfit(gpu=True, architecture="", platform="linux/arm64") == (
        "is for linux/arm64, but `ml.p4d.24xlarge` is linux/amd64"
    )


@pytest.mark.parametrize("ranges", ["", ">=7.5", ">=5.0,<10", "==8.0.*", ">7.5,<=8.0,!=8.6"])
def test_gpus_that_an_image_has_code_for(ranges: str) -> None:
    assert AMPERE.unfit(gpu=True, architecture=ranges) == ""


@pytest.mark.parametrize("ranges", [">=8.6", ">=3.5,<8", "==7.5.*", "!=8.0", ">8.0", "<=7.5", ">=10"])
def test_gpus_that_an_image_has_no_code_for(ranges: str) -> None:
    message = f"has code for GPUs of architecture {ranges}, but `ml.p4d.24xlarge` has 8.0"
    assert AMPERE.unfit(gpu=True, architecture=ranges) == message


@pytest.mark.parametrize("sign", ["", ">", ">=", "<", "<=", "==", "!=", "~="])
def test_ranges_are_read_as_packaging_reads_them(sign: str) -> None:
    """The look-up has no time for packaging, and what is checked before a job is sent has to say the same."""
    architectures = ["3.7", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12"]
    bounds = [
        f"{sign}{architecture}"
        for architecture in architectures
        if sign and not (sign == "~=" and "." not in architecture)
    ] or [""]
    if sign in ("==", "!="):
        bounds += ["==8.*", "!=8.*", "==8.0.*", "!=8.6.*"]
    ranges = [
        *bounds,
        *(f"{bound},<10" for bound in bounds if bound),
        *(f">=7.5, {bound}" for bound in bounds if bound),
    ]
    differing = [
        (has, specifier)
        for has in architectures
        for specifier in ranges
        if is_within(has, specifier) != SpecifierSet(specifier).contains(has)
    ]
    assert differing == []


def test_images_for_cpus_and_images_for_gpus() -> None:
    assert AMPERE.unfit(gpu=False, architecture="") == "is for CPUs only, but `ml.p4d.24xlarge` has GPUs"
    plain = InstanceGpus("ml.c5.xlarge", gpu=False)
    assert plain.unfit(gpu=True, architecture=">=7.5") == "needs GPUs, but `ml.c5.xlarge` has none"
    assert plain.unfit(gpu=False, architecture="") == ""


@pytest.mark.parametrize(
    ("instance", "supported", "clause"),
    [
        (TRAINIUM, ">=2,<5", ""),
        (TRAINIUM, "", "does not use Neuron devices, but `ml.trn1.32xlarge` has them"),
        (TRAINIUM, ">=3", "supports NeuronCores of version >=3, but `ml.trn1.32xlarge` has version 2"),
        (AMPERE, ">=2,<5", "needs Neuron devices, but `ml.p4d.24xlarge` has none"),
    ],
)
def test_images_for_neuron_devices(instance: InstanceGpus, supported: str, clause: str) -> None:
    assert instance.unfit(gpu=False, architecture="", neuron_architecture=supported) == clause
