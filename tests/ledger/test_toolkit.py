"""Rules of the SageMaker Training Toolkit by release."""

import pytest

from bakehouse.jobs import job_images
from bakehouse.ledger.toolkit import DRIVERS, DRIVERS_RELEASE, Releases, toolkit_rules, toolkit_versions
from tests.support.own_recipes import catalog, plan

FIRST = {"ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"}


@pytest.mark.parametrize(
    ("version", "provider", "rdma"),
    [
        ("4.2.6", set(), set()),
        ("4.2.7", FIRST, FIRST),
        ("4.3.0", FIRST | {"ml.trn1.32xlarge"}, FIRST | {"ml.trn1.32xlarge"}),
        (
            "4.4.1",
            FIRST | {"ml.trn1.32xlarge", "ml.p4de.24xlarge"},
            {"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.trn1.32xlarge"},
        ),
        (
            "5.1.1",
            FIRST | {"ml.trn1.32xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p6e-gb200.36xlarge"},
            {"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.trn1.32xlarge", "ml.p6e-gb200.36xlarge"},
        ),
        ("5.1.4", {*toolkit_rules().provider}, {*toolkit_rules().rdma} - FIRST | {"ml.p4d.24xlarge"}),
    ],
)
def test_the_types_of_a_release(version: str, provider: set[str], rdma: set[str]) -> None:
    """The lists of the toolkit's `__init__.py`."""
    facts = toolkit_rules()
    assert {name for name, releases in facts.provider.items() if releases.contains(version)} == provider
    assert {name for name, releases in facts.rdma.items() if releases.contains(version)} == rdma


@pytest.mark.parametrize(
    ("fact", "version", "holds"),
    [
        ("shell", "3.9.2", False),
        ("shell", "4.0.0", True),
        ("shell", "5.1.2", True),
        ("shell", "5.1.3", False),
        ("shell", "", None),
        ("script-without-arguments", "4.1.0", True),
        ("script-without-arguments", "4.1.1", False),
        ("lost-status", "4.1.1", True),
        ("lost-status", "4.1.2", False),
        ("lost-status", "", None),
        ("ddp-without-smddp", "4.7.1", False),
        ("ddp-without-smddp", "4.7.2", True),
        ("ddp-without-smddp", "", None),
    ],
)
def test_how_a_release_starts_the_script(fact: str, version: str, holds: bool | None) -> None:
    assert toolkit_rules().processes[fact].contains(version) is holds


@pytest.mark.parametrize(
    ("component", "launcher", "before", "since"),
    [
        ("sagemaker-training", "torch_distributed", "4.2.10", "4.3.0"),
        ("sagemaker-training", "instance_groups", "4.1.5", "4.2.0"),
        ("sagemaker-pytorch-training", "mpi", "2.2.1", "2.3.0"),
        ("sagemaker-pytorch-training", "pytorchddp", "2.5.1", "2.6.0"),
        ("sagemaker-pytorch-training", "torch_distributed", "2.6.2", "2.7.0"),
        ("sagemaker-tensorflow-training", "multi_worker_mirrored_strategy", "20.3.0", "20.3.1"),
    ],
)
def test_the_first_release_with_a_launcher(component: str, launcher: str, before: str, since: str) -> None:
    releases = toolkit_rules(component).launchers[launcher]
    assert [releases.contains(before), releases.contains(since)] == [False, True]


def test_the_types_of_the_drivers() -> None:
    facts = toolkit_rules(DRIVERS)
    new = {"ml.p5e.48xlarge"}
    assert {name for name, releases in facts.provider.items() if not releases.contains("1.23.0")} == new
    assert {name for name, releases in facts.rdma.items() if not releases.contains("1.23.0")} == {
        "ml.p5.48xlarge",
        *new,
    }
    assert all(releases.contains(DRIVERS_RELEASE) for releases in facts.provider.values())


def test_an_unknown_release_has_what_all_have() -> None:
    assert Releases("4.2.7", oldest="4.2.7").contains("") is True
    assert Releases("4.2.7", "5.0.0", "4.2.7").contains("") is None
    assert Releases("4.8.1", oldest="4.2.7").contains("") is None
    assert Releases("4.8.1", oldest="4.2.7").contains("newest") is None


def test_the_locks_of_an_image_name_its_toolkits() -> None:
    [image] = [image for image in plan().images if image.name == "pytorch-cpu"]
    versions = {part.component: part.version for part in image.parts}
    toolkits = toolkit_versions(image)
    assert {*toolkits} == {"sagemaker-training", "sagemaker-pytorch-training"}
    assert toolkits == {name: versions[name] for name in toolkits}


def test_the_locked_toolkit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    [image] = [image for image in plan().images if image.name == "pytorch-cpu"]
    monkeypatch.setattr(job_images, "toolkit_versions", lambda image: {"sagemaker-training": "5.1.1"})
    assert job_images.planned_image(image, catalog()).versions["sagemaker-training"] == "5.1.1"
