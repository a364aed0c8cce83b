"""JSON reports have the shapes that docs/reference/json.md shows."""

import json
from typing import Any

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome, VersionResult
from bakehouse.catalog.project import HOME
from bakehouse.cli import json_report, main
from bakehouse.cli.doctor import CheckState, DoctorCheck
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.lock.drift import Drift, DriftKind
from bakehouse.maintain import reports as maintained
from bakehouse.maintain.rehearsal import Rehearsed
from bakehouse.maintain.reproduce import LayerDifference, Reproduction
from bakehouse.maintain.stub_plan import Rehearsal
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import Digest
from tests.support.fake_engine import CONTENT
from tests.support.json_samples import sample, shape

DIGEST = Digest("sha256:" + "0" * 64)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Return what a task prints with `--json`."""
    assert main.run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("list pytorch-2.12-cu130-py312-extended", 0),
        ("resolve pytorch-cpu --assume python=3.11", 1),
        ("resolve --assume cuda=12 --assume pytorch=2.13", 1),
        ("resolve mpi-cpu pytorch-cpu --assume python=3.12", 2),
        ("explain pytorch-cu130 pytorch", 0),
        ("explain pytorch-cpu", 0),
        ("diff mpi-cpu pytorch-2.13-cpu-py312-extended", 0),
        ("outdated pytorch-cpu", 0),
        ("plan mpi-cpu", 0),
        ("validate mpi-cpu --instance-type ml.g5.xlarge", 0),
        ("recommend-instances ml.p4d.24xlarge --gpus 8 --vcpu-per-gpu 20", 0),
    ],
)
def test_reports_have_the_documented_shape(
    command: str, number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HOME)
    report = printed(capsys, *command.split())

    documented = shape(sample(command.split()[0], number))
    assert shape(report) | {path for path in documented if "*" in path} == documented


def test_resolved_images_are_reported_with_their_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HOME)
    images = printed(capsys, "resolve")

    assert shape(images) == shape(sample("resolve"))
    [mpi] = [image for image in images if image["image"] == "mpi-cpu"]
    assert mpi["components"][0] == {
        "name": "debian",
        "version": "12",
        "variant": None,
        "provides": {"glibc": "2.36"},
    }


def test_reports_of_builds_and_tests_have_the_documented_shape() -> None:
    [image] = select(open_workspace(HOME), ["pytorch-2.13-cpu-py312-extended"]).plan.images
    base = BootstrappedBase("bakehouse/debian:12-8ad98207", "bookworm", ())
    rehearsal = Rehearsal(real=image, image=image, files=(), bases=())
    reports = {
        "build": json_report.built([BuiltImage(image, DIGEST, DIGEST, 1, CONTENT)], {"debian-12": base}),
        "rehearse": maintained.rehearsed(
            [Rehearsed(rehearsal, DIGEST, ("python",), (VersionResult("efa", "1", "2", ""),))]
        ),
        "reproduce": maintained.reproductions(
            [Reproduction("a", 1, (DIGEST, DIGEST), (LayerDifference(1, "b", (DIGEST, DIGEST)),))]
        ),
        "smoke": json_report.smoke(
            [SmokeReport("a", CONTENT, "mpi", (CheckResult("c", Outcome.NOT_TESTED, 0.0, reason="r"),))]
        ),
        "lock": json_report.drift([Drift(DriftKind.UNKNOWN, "efa", "a.tar.gz")]),
        "doctor": json_report.doctor([DoctorCheck("engine", CheckState.MISSING, "d")]),
    }

    assert {name: shape(report) for name, report in reports.items()} == {
        name: shape(sample(name)) for name in reports
    }
    assert json.loads(json.dumps(reports)) == reports
