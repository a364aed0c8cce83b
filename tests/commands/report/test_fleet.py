"""Content of the report, from the files of a project."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.smoke_report import CheckResult
from bakehouse.commands.report import versions
from bakehouse.commands.report.fleet import SmokeResults, read_fleet
from bakehouse.commands.report.page import render
from bakehouse.errors import PublishError
from bakehouse.evidence import step_layers
from bakehouse.ledger.releases import ReleasedCheck, ReleasedComponent, ReleaseRecord
from bakehouse.ledger.store import TeamLedger
from tests.commands.report.sites import CONTENT, FAILED, Html, Site, build, lock
from tests.support.known_layers import made


def test_an_image_without_records_has_its_plan_only(site: Site) -> None:
    image = site.image()

    assert {key: state.text for key, state in image.states.items()} == {
        "resolved": "yes",
        "run": "not recorded",
        "cpu": "not recorded",
        "gpu": "CPU image",
        "scanned": "not recorded",
        "signed": "not recorded",
        "released": "not recorded",
    }
    assert (image.tests, image.releases, image.code) == (SmokeResults(), (), {})


def test_a_ledger_that_cannot_be_read_is_asked_once_and_replaced_by_its_copies(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.tree.image(site.tree.root.joinpath("images/small.yaml").read_text(), "twin")
    site.publish({"date": "2026-11-18"})
    asked = []

    def refuse(self: TeamLedger, image: str) -> tuple[ReleaseRecord, ...]:
        asked.append(image)
        raise PublishError("could not read the ledger `s3://team`: AWS does not answer")

    monkeypatch.setattr(TeamLedger, "records", refuse)
    workspace = site.workspace
    workspace = replace(workspace, project=replace(workspace.project, ledger="s3://team"))
    fleet = read_fleet(workspace, ())
    note = (
        "This page is incomplete: could not read the ledger s3://team: AWS does not answer. Releases, "
        "signatures and scans are those of the copies in images/, which may be outdated."
    )

    assert (asked, len(workspace.failures)) == (["small"], 1)
    assert [image.states["released"].text for image in fleet.images] == ["2026-11-18", "not recorded"]
    assert note in Html(render(fleet)).text
    assert "incomplete" not in Html(render(site.fleet())).text


def test_versions_have_reasons_with_their_lines(site: Site) -> None:
    fleet = site.fleet("small")
    [image] = fleet.images
    python = next(part for part in image.parts if part.name == "python")

    assert (python.version, python.newest) == ("3.11", "3.12")
    assert [(why.text, fleet.places[why.place]) for why in python.why] == [
        (
            "the image requests python 3.11",
            ("images/small.yaml", 3, 'components: {python: "3.11", torch: "*", toolkit: "*"}'),
        ),
        (
            "torch 2.9.0 (cpu-py311) is built for python 3.11",
            ("components/torch/component.yaml", 9, 'requires: {python: "3.11"}'),
        ),
        ("toolkit 5.1 needs any python", ("components/toolkit/component.yaml", 5, 'requires: {python: "*"}')),
    ]
    assert [why.text for why in python.newer] == [
        "not 3.12: outside the requested range",
        "3.12 does not fit any version of torch: torch 2.9.0 (cpu-py311) is built for python 3.11, not 3.12",
    ]


def test_refused_newer_versions_have_the_reason(site: Site) -> None:
    site.tree.component(
        "torch",
        'summary: T\nreleases:\n  - {version: "3.0", requires: {python: "3.12"}}\n'
        '  - {version: "2.9", source: "https://example.com/2.9"}\n',
    )
    site.tree.image('summary: S\nbase: {debian: "12"}\ncomponents: {python: "3.11", torch: "*"}\n')
    torch = next(part for part in site.image().parts if part.name == "torch")

    assert [why.text for why in torch.newer] == [
        "not 3.0: needs python 3.12, not 3.11",
        "the image requests python 3.11",
        "3.0 is possible with python 3.11 → 3.12",
    ]
    assert torch.source == "https://example.com/2.9"


def test_an_image_that_does_not_resolve_says_why(site: Site) -> None:
    site.tree.image('summary: S\nbase: {debian: "12"}\ncomponents: {python: ">=4"}\n', "wrong")
    small, wrong = site.fleet().images

    assert small.states["resolved"].text == "yes"
    assert wrong.states["resolved"].text == "no"
    assert wrong.problem.startswith("no versions satisfy image `wrong` on linux/amd64; ")
    assert {state.text for key, state in wrong.states.items() if key != "resolved"} == {"not recorded"}


def test_a_build_and_its_tests_are_shown(site: Site) -> None:
    build(site, CheckResult("train_success", Outcome.PASSED, 4.0), FAILED)
    state = site.workspace.project.state
    step_layers.record(state, made(site.planned), state)
    image = site.image()

    assert image.states["run"].text == "rehearsed; not pinned"
    assert image.states["cpu"].text == "1 of 2 failed"
    assert (image.tests.machine, image.tests.transport) == ("host-1", "none")
    check = image.tests.checks[1]
    assert (check.name, check.outcome, check.seconds, check.reason) == (
        "train_failure",
        "failed",
        41.2,
        "it hangs",
    )
    assert (check.rank, check.source, check.tail) == ("algo-2 rank 3", FAILED.source, ("a", "b"))


def test_tests_of_an_earlier_recipe_do_not_count(site: Site) -> None:
    build(site, CheckResult("train_success", Outcome.PASSED, 4.0))
    assert site.image().states["cpu"].text == "1 passed"

    site.tree.image(site.tree.root.joinpath("images/small.yaml").read_text() + "packages: [less]\n")

    assert site.image().states["cpu"].text == "not recorded"
    assert site.image().states["run"].text == "rendered, stale"


def test_without_a_report_the_ledger_has_the_outcomes(site: Site) -> None:
    site.publish({"checks": (ReleasedCheck("train_success", "passed"),)}, {"key": "0" * 64})
    image = site.image()

    assert [(check.name, check.outcome, check.seconds) for check in image.tests.checks] == [
        ("train_success", "passed", None)
    ]
    assert image.tests.date == "2026-11-20"


def test_a_release_has_code_that_starts_a_job(site: Site) -> None:
    torchrun = {"parts": (ReleasedComponent("pytorch", "2.9.0", "cpu"),), "launchers": ("torchrun",)}
    site.publish(torchrun, {"candidate": True})
    image = site.image()

    assert [(release.state, release.is_current) for release in image.releases] == [
        ("candidate", True),
        ("release", True),
    ]
    assert image.states["released"].text == "2026-11-20"
    assert [*image.code] == ["version 3 of the SageMaker SDK", "version 2 of the SageMaker SDK"]
    assert all(image.releases[1].image_uri in code for code in image.code.values())


def test_a_release_that_was_not_tested_on_gpus_says_so(site: Site) -> None:
    site.publish({"tested_on_gpus": True}, {"tested_on_gpus": False})

    assert [release.state for release in site.image().releases] == ["release, not tested on GPUs", "release"]


def test_a_release_has_only_code_that_starts_its_job(site: Site) -> None:
    site.publish({"launchers": ("mpirun",)})

    assert [*site.image().code] == ["version 2 of the SageMaker SDK"]


def test_releases_have_their_changes_since_the_release_before(site: Site) -> None:
    parts = [(ReleasedComponent("torch", version, "cpu"),) for version in ("2.8.0", "2.9.0")]
    site.publish(
        {"parts": parts[0], "date": "2026-11-18"},
        {"parts": parts[0], "date": "2026-11-19", "candidate": True},
        {"parts": parts[1], "date": "2026-11-20"},
    )
    newest, candidate, oldest = site.image().releases

    assert (newest.since, [change.text for change in newest.changes]) == (
        "2026-11-18",
        ["torch 2.8.0 (cpu) → 2.9.0 (cpu)"],
    )
    assert (candidate.since, candidate.changes) == (None, ())
    assert (oldest.since, oldest.changes) == ("", ())


def test_a_damaged_report_does_not_stop_the_page(site: Site) -> None:
    build(site, FAILED)
    project = site.workspace.project
    (project.state / f"checks/{CONTENT.removeprefix('sha256:')}.json").write_text("{")
    workspace = site.workspace
    [image] = read_fleet(workspace, ["small"]).images

    assert image.states["cpu"].text == "not recorded"
    [failure] = workspace.failures
    assert "has no valid results of checks" in str(failure)


def test_a_damaged_ledger_does_not_stop_the_page(site: Site) -> None:
    site.tree.write("images/small/releases.json", "{")
    workspace = site.workspace
    [image] = read_fleet(workspace, ["small"]).images

    assert image.states["released"].text == "not recorded"
    assert "the ledger of releases is damaged" in str(workspace.failures[0])


def test_instance_types_fit_by_their_gpus(site: Site) -> None:
    site.tree.image(
        'summary: S\nbase: {debian: "12"}\ncomponents: {torch: "*"}\nvariants: {torch: "cu128-*"}\n', "gpu"
    )
    fleet = site.fleet()
    names = {
        image.name: [fleet.instances[number].name for number in image.instances] for image in fleet.images
    }

    assert names == {"small": ["ml.c5.2xlarge"], "gpu": ["ml.g5.xlarge"]}


def test_downloads_list_their_packages(site: Site) -> None:
    lock(site, mine=500, other=20)
    fleet = site.fleet("small")
    [download] = fleet.images[0].downloads

    assert (download.bytes, download.is_complete) == (520, True)
    assert [fleet.packages[number] for number in download.packages] == [
        ("mine", "1", 500),
        ("other", "1", 20),
    ]


def test_images_share_stages_by_build_key(site: Site) -> None:
    site.tree.image(site.tree.root.joinpath("images/small.yaml").read_text(), "twin")
    first, second = site.fleet().images

    assert first.stages
    assert first.stages == second.stages


def test_paths_do_not_depend_on_the_machine(tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path / "project", (), state_directory=None)

    assert versions.relative(tmp_path / "project/recipes/a.yaml", project) == "recipes/a.yaml"
    assert versions.relative(tmp_path / "elsewhere/a.yaml", project) == "a.yaml"
    assert versions.relative(Path("bakehouse/probes/a.py:1"), project) == "bakehouse/probes/a.py:1"
