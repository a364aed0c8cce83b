"""Releases that scans of Amazon ECR prevent, against moto."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.errors import Diagnostic, PublishError, Reason, UsageError
from bakehouse.evidence import check_rows
from bakehouse.ledger.releases import ReleasedFindings
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import ecr_scan, image_push, promote
from bakehouse.publish.ecr_scan import Waiting
from bakehouse.publish.options import PublishOptions
from bakehouse.registry import destination
from tests.integration.tiny_images import built, published_digest
from tests.support.built_images import results
from tests.support.ecr import ACCOUNT, REGION, EcrStub
from tests.support.proxy import Proxy, Reply, Request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

COMPLETED_AT = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
SCANNED = "2026-11-20T12:30:00Z"
Answers = Callable[..., None]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltImage]:
    with built(tmp_path_factory.mktemp("image"), "mpi-cpu") as image:
        yield image


def wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let ECR have so long for a scan."""
    for module in (image_push, promote):
        monkeypatch.setattr(module, "Waiting", lambda until: Waiting(seconds, 0.05, until))


@pytest.fixture
def project(
    tmp_path: Path, ecr_stub: EcrStub, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> ProjectSettings:
    monkeypatch.setattr(destination, "registry_host", lambda *_, **__: ecr_stub.host)
    wait(monkeypatch, 60.0)
    prefix = tmp_path.name.replace("_", "-").rstrip("-")
    team = RegistrySettings("team", account=ACCOUNT, regions=(REGION,), prefix=prefix)
    settings = ProjectSettings(tmp_path, (), registry="team", registries={"team": team})
    check_rows.record(settings.state, image.content, results(image.image))
    return settings


@pytest.fixture
def answers(ecr_stub: EcrStub) -> Answers:
    """Lets ECR answer questions after findings with these, one after the other, the last for ever."""

    def set_answers(*replies: dict[str, object]) -> None:
        left = list(replies)

        def answer(request: Request) -> Reply | None:
            target = request.headers.get("X-Amz-Target", "")
            if target.endswith(".StartImageScan"):
                return Reply(200, {}, b"{}")
            if not target.endswith(".DescribeImageScanFindings"):
                return None
            document = left.pop(0) if len(left) > 1 else left[0]
            return Reply(400 if "__type" in document else 200, {}, json.dumps(document).encode())

        ecr_stub.aws.answers.insert(0, answer)

    return set_answers


def scan(status: str, description: str = "", **counts: int) -> dict[str, object]:
    findings: dict[str, object] = {"findingSeverityCounts": counts}
    if status in ("COMPLETE", "ACTIVE"):
        findings["imageScanCompletedAt"] = COMPLETED_AT.timestamp()
    scan_status = {"status": status, "description": description}
    return {"imageScanStatus": scan_status, "imageScanFindings": findings}


NONE_YET = {"__type": "ScanNotFoundException", "message": "no scan"}


def push(project: ProjectSettings, image: BuiltImage, **terms: object) -> None:
    options = PublishOptions(create=True, **{"fail_on": "HIGH", **terms})  # type: ignore[arg-type]
    image_push.push_images(project, [image], print, options)


def test_what_is_clean_enough_is_released_with_its_findings(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage, answers: Answers
) -> None:
    answers(NONE_YET, scan("IN_PROGRESS"), scan("COMPLETE", LOW=2, MEDIUM=1, UNTRIAGED=4))
    push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert (record.tested, record.candidate, record.scanned) == (True, False, SCANNED)
    assert record.findings == (
        ReleasedFindings("MEDIUM", 1),
        ReleasedFindings("LOW", 2),
        ReleasedFindings("UNTRIAGED", 4),
    )
    tags = ecr_stub.images(record.repository)[published_digest(image)]
    assert tags == sorted([f"mpi-cpu-candidate-{image.digest[7:23]}", *record.tags])


def test_findings_that_are_too_severe_keep_an_image_from_being_released(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage, answers: Answers
) -> None:
    answers(scan("COMPLETE", LOW=9, HIGH=2, CRITICAL=1))
    with pytest.raises(PublishError) as caught:
        push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert caught.value.diagnostics == (
        Diagnostic(
            "the scan of `mpi-cpu` found 1 CRITICAL, 2 HIGH",
            facts=(("image", record.image_uri), ("scanned", SCANNED), ("allowed", "below HIGH")),
            hint="list them with `aws ecr describe-image-scan-findings`, or allow them with `--fail-on`",
        ),
    )
    assert (record.candidate, record.scanned) == (True, SCANNED)
    assert ecr_stub.images(record.repository)[published_digest(image)] == [*record.tags]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (
            scan("UNSUPPORTED_IMAGE", "The operating system is not supported."),
            "Amazon ECR reports the status UNSUPPORTED_IMAGE: The operating system is not supported.",
        ),
        (scan("FAILED"), "Amazon ECR reports the status FAILED"),
        (scan("SCAN_ELIGIBILITY_EXPIRED"), "Amazon ECR reports the status SCAN_ELIGIBILITY_EXPIRED"),
        (scan("PENDING"), "its scan is still PENDING after 0 s"),
        ({**scan("ACTIVE"), "imageScanFindings": {}}, "its scan is still ACTIVE after 0 s"),
        (NONE_YET, "no scan was found after 0 s"),
        (
            {
                "__type": "AccessDeniedException",
                "message": "User: x is not authorized to perform: ecr:DescribeImageScanFindings on y",
            },
            "not allowed to read the findings of the scan; the AWS user `moto` is valid but lacks "
            "ecr:DescribeImageScanFindings",
        ),
    ],
)
def test_what_was_not_scanned_is_never_clean(
    project: ProjectSettings,
    image: BuiltImage,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    reply: dict[str, object],
    why: str,
) -> None:
    wait(monkeypatch, 0.3)
    answers(reply)
    with pytest.raises(PublishError) as caught:
        push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert caught.value.diagnostics == (
        Diagnostic(
            "`mpi-cpu` was not scanned, but a scan was requested",
            reasons=(Reason(record.not_scanned),),
            facts=(("image", record.image_uri),),
            hint="set `scan_on_push`, or enable scanning in the registry's settings",
        ),
    )
    assert (record.candidate, record.scanned) == (True, "")
    assert re.sub(r"after [\d.]+ s", "after 0 s", record.not_scanned) == why


def test_enhanced_scanning_is_complete_once_it_has_findings(
    project: ProjectSettings, image: BuiltImage, answers: Answers
) -> None:
    answers({**scan("ACTIVE"), "imageScanFindings": {}}, scan("ACTIVE", LOW=1))
    push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert (record.scanned, record.findings) == (SCANNED, (ReleasedFindings("LOW", 1),))


def test_a_candidate_is_scanned_before_it_is_promoted(
    project: ProjectSettings, ecr_stub: EcrStub, image: BuiltImage, answers: Answers
) -> None:
    push(project, image, candidate=True, fail_on="")
    answers(scan("COMPLETE", HIGH=1))
    with pytest.raises(PublishError, match="the scan of `mpi-cpu` found 1 HIGH"):
        promote.promote_image(project, image.image, print, PublishOptions(fail_on="HIGH"))
    assert len(ecr_stub.images(f"{project.registries['team'].prefix}/mpi-cpu")[published_digest(image)]) == 1

    released = promote.promote_image(project, image.image, print, PublishOptions(fail_on="CRITICAL"))
    assert released.findings == (ReleasedFindings("HIGH", 1),)
    assert [record.candidate for record in open_ledger(project).records("mpi-cpu")] == [True, True, False]


def test_moto_s_own_scan_is_asked_for_and_read(project: ProjectSettings, image: BuiltImage) -> None:
    with pytest.raises(PublishError, match="the scan of `mpi-cpu` found 1 HIGH"):
        push(project, image)


def test_only_ecr_scans_and_nothing_is_pushed_elsewhere(
    project: ProjectSettings, image: BuiltImage, registry_proxy: Proxy
) -> None:
    host = registry_proxy.host
    with pytest.raises(UsageError) as caught:
        push(project, image, registry=f"{host}/team")
    assert caught.value.diagnostics[0].message == f"`{host}` does not scan images; only Amazon ECR does"
    assert registry_proxy.requests == []


def test_where_the_question_after_the_scan_fails_the_candidate_is_written_down(
    project: ProjectSettings, image: BuiltImage, answers: Answers
) -> None:
    answers({"__type": "InvalidParameterException", "message": "no"})
    with pytest.raises(PublishError, match="could not read the findings of the scan"):
        push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert (record.candidate, record.scanned, record.not_scanned) == (True, "", "")


def test_who_does_not_wait_for_a_scan_leaves_a_candidate_that_is_written_down(
    project: ProjectSettings, image: BuiltImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ecr_scan, "scan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        push(project, image)
    [record] = open_ledger(project).records("mpi-cpu")
    assert (record.candidate, record.digest) == (True, published_digest(image))


def test_a_scan_of_a_release_that_fails_tells_of_no_further_release(
    project: ProjectSettings, image: BuiltImage, answers: Answers
) -> None:
    push(project, image, fail_on="")
    [released] = open_ledger(project).records("mpi-cpu")
    answers(scan("COMPLETE", HIGH=1))
    terms = PublishOptions(fail_on="HIGH", image_uri=released.image_uri)
    with pytest.raises(PublishError, match="the scan of `mpi-cpu` found 1 HIGH"):
        promote.promote_image(project, image.image, print, terms)
    assert open_ledger(project).records("mpi-cpu") == (released,)
