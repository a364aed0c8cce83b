"""Signed scan results: their statements, and the policy that demands them, with a registry in memory."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import ScanRules
from bakehouse.errors import Diagnostic, TrustError, UsageError
from bakehouse.ledger.image_uris import newest
from bakehouse.ledger.releases import ReleasedFindings, ReleasedRollback, ReleasedScan
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import scan_signing
from bakehouse.publish.attest import Bundler
from bakehouse.publish.record import with_known_facts, with_scans
from bakehouse.publish.scan_signing import require_all_published, sign_scans, statement_of
from bakehouse.registry.manifest import digest_of
from bakehouse.trust import bundle, waivers
from bakehouse.trust.bundle import Statement
from bakehouse.trust.findings import (
    NotScanned,
    PackageFinding,
    SecurityReport,
    Source,
    Usage,
    Vulnerability,
)
from bakehouse.trust.statements import SCAN, TESTS
from bakehouse.util.oci import Digest
from tests.support import vex_documents
from tests.support.built_images import IMAGE
from tests.support.fake_registry import CONFIG, DIGEST
from tests.support.proxy import Proxy
from tests.support.release_records import a_record
from tests.support.signed_statements import signed
from tests.support.signing_keys import KeyFiles
from tests.support.teams import NOW, Team, image_in_registry

OTHER, FIXED = Digest("sha256:" + "5f" * 32), Digest("sha256:" + "6f" * 32)
DAY = timedelta(days=1)


def openssl(*severities: str, in_image: bool = True, image: str = "mpi-cpu") -> PackageFinding:
    """Return a package with one vulnerability of each severity."""
    vulnerabilities = tuple(
        Vulnerability(f"CVE-2026-000{number}", "1.2", (), severity)
        for number, severity in enumerate(severities, 1)
    )
    usages = (Usage(image, "base debian 12", in_image),)
    packages = ("libssl3", "openssl")
    return PackageFinding("Debian", "openssl", "1.0", "1.2", "Trivy 0.69", packages, vulnerabilities, usages)


def report_of(
    *findings: PackageFinding, sources: Sequence[Source] = (), not_scanned: Sequence[NotScanned] = ()
) -> SecurityReport:
    return SecurityReport(("mpi-cpu",), tuple(sources), findings, tuple(not_scanned))


CLEAN = report_of()
FILES = NotScanned(
    "files", "2 archives of components", "no source of vulnerabilities covers them", ("mpi-cpu",)
)
RUN = NotScanned("run", "`run` steps of recipes", "they can install anything", ("mpi-cpu",))


def scan(report: SecurityReport, age: timedelta = timedelta(), digest: Digest = DIGEST) -> Statement:
    return statement_of("mpi-cpu", digest, report, NOW - age, NOW - age)


def allow(team: Team, max_severity: str = "", max_age: int = 7, accepted: tuple[str, ...] = ()) -> None:
    team.policy = replace(team.policy, scan=ScanRules(max_severity, max_age, accepted))


def predicate_of(statement: Statement) -> dict[str, Any]:
    predicate: dict[str, Any] = json.loads(statement.content)["predicate"]
    return predicate


def changed(report: SecurityReport, **fields: object) -> Statement:
    """Return a signed scan whose predicate has other fields; None removes one."""
    predicate = {**predicate_of(scan(report)), **fields}
    kept = {name: value for name, value in predicate.items() if value is not None}
    return bundle.statement("mpi-cpu", DIGEST, SCAN, kept)


def test_the_statement_has_the_fields_of_the_predicate() -> None:
    source = Source("Trivy 0.69", "trivy.json", ("mpi-cpu",), "2026-11-20")
    report = report_of(openssl("HIGH", ""), sources=[source], not_scanned=[FILES])
    statement = statement_of("mpi-cpu", DIGEST, report, NOW, NOW + timedelta(seconds=2))

    package = {
        "kind": "Debian",
        "name": "openssl",
        "version": "1.0",
        "packages": ["libssl3", "openssl"],
        "fixed": "1.2",
        "aliases": [],
        "source": "Trivy 0.69",
    }
    predicate = predicate_of(statement)
    assert statement.predicate_type == "https://in-toto.io/attestation/vulns/v0.2"
    assert predicate["scanner"].pop("version")
    assert predicate == {
        "scanner": {
            "uri": "urn:bakehouse:bake",
            "db": {"lastUpdate": "2026-11-20T00:00:00Z"},
            "result": [
                {
                    "id": "CVE-2026-0001",
                    "severity": [{"method": "Trivy 0.69", "score": "HIGH"}],
                    "annotations": [package],
                },
                {"id": "CVE-2026-0002", "severity": [], "annotations": [package]},
            ],
        },
        "metadata": {
            "scanStartedOn": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "scanFinishedOn": (NOW + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "bakehouse_sources": [{"name": "Trivy 0.69", "day": "2026-11-20"}],
        "bakehouse_notScanned": [{"kind": "files", "reason": "no source of vulnerabilities covers them"}],
    }


def test_packages_that_the_image_does_not_contain_are_left_out() -> None:
    report = report_of(openssl("HIGH", in_image=False), openssl("HIGH", image="other"))

    assert predicate_of(scan(report))["scanner"]["result"] == []


def test_a_security_update_without_a_cve_is_a_result() -> None:
    finding = replace(openssl(), source="bookworm-security")
    [result] = predicate_of(scan(report_of(finding)))["scanner"]["result"]

    assert (result["id"], result["severity"]) == ("bookworm-security: openssl 1.2", [])


def test_a_complete_scan_without_vulnerabilities_meets_the_policy(team: Team) -> None:
    team.sign("builder", scan(CLEAN))

    team.check("scan")


def test_an_image_that_was_not_scanned_does_not_meet_the_policy(team: Team) -> None:
    assert team.refusal("scan") == Diagnostic(
        "`mpi-cpu` does not meet [tool.bakehouse.policy]",
        reasons=team.refusal("scan").reasons,
        facts=(
            ("image URI", team.record.image_uri),
            ("trusted", f"{team.builder}, {team.keys['tester'].public_key.name}"),
        ),
        hint="run `bake security mpi-cpu --sign` with a trusted `signing_key`",
    )
    assert team.reasons("scan") == ["it has no scan result that a trusted key signed"]


def test_contents_that_were_not_scanned_are_not_clean(team: Team) -> None:
    team.sign("builder", scan(report_of(not_scanned=[FILES, RUN])))

    assert team.reasons("scan") == [
        "its signed scan does not cover `files`: no source of vulnerabilities covers them",
        "its signed scan does not cover `run`: they can install anything",
    ]
    assert team.refusal("scan").hint == (
        "import the report of a scanner: `bake security mpi-cpu --import FILE --sign`"
    )


def test_contents_are_covered_if_the_scan_of_one_trusted_key_covers_them(team: Team) -> None:
    team.sign("builder", scan(report_of(not_scanned=[FILES])))
    team.sign("tester", scan(CLEAN))

    team.check("scan")


def test_a_policy_can_accept_contents_without_a_scan(team: Team) -> None:
    team.sign("builder", scan(report_of(not_scanned=[FILES, RUN])))
    allow(team, accepted=("files",))

    assert team.reasons("scan") == ["its signed scan does not cover `run`: they can install anything"]
    allow(team, accepted=("files", "run"))
    team.check("scan")


def test_vulnerabilities_above_the_accepted_severity(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl("LOW", "MEDIUM", "HIGH"))))
    allow(team, "MEDIUM")

    assert team.reasons("scan") == [
        f"`{team.builder}` signed that it has CVE-2026-0003 in openssl 1.0 (HIGH); MEDIUM is accepted"
    ]
    assert team.refusal("scan").hint == (
        "run `bake security mpi-cpu --fix`, or waive vulnerabilities in `.vex`"
    )
    allow(team, "HIGH")
    team.check("scan")


def test_without_a_severity_no_open_vulnerability_is_accepted(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl(*["NEGLIGIBLE"] * 7))))

    [reason] = team.reasons("scan")
    assert reason.endswith("CVE-2026-0005 in openssl 1.0 (NEGLIGIBLE) and 2 more")


@pytest.mark.parametrize("severity", ["", "UNKNOWN", "UNDEFINED", "medium-ish"])
def test_a_vulnerability_without_a_known_rating_counts_as_critical(team: Team, severity: str) -> None:
    team.sign("builder", scan(report_of(openssl(severity))))
    allow(team, "HIGH")

    [reason] = team.reasons("scan")
    assert reason.endswith("CVE-2026-0001 in openssl 1.0 (not rated); HIGH is accepted")
    allow(team, "CRITICAL")
    team.check("scan")


def test_the_rating_of_another_scanner_counts(team: Team) -> None:
    unrated = replace(openssl(""), name="libssl3", source="bookworm-security")
    team.sign("builder", scan(report_of(unrated, openssl("LOW"))))
    allow(team, "LOW")

    team.check("scan")


def test_the_worst_rating_counts(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl("LOW"), replace(openssl("HIGH"), source="Grype"))))
    allow(team, "LOW")

    assert "CVE-2026-0001 in openssl 1.0 (HIGH)" in team.reasons("scan")[0]


def waive(team: Team, root: Path, expires: str) -> None:
    written = vex_documents.statement(name="CVE-2026-0001", status_notes=f"expires: {expires}")
    vex_documents.write(root, written)
    team.waived = waivers.load(root)


def test_a_waiver_counts_until_it_expires(team: Team, tmp_path: Path) -> None:
    team.sign("builder", scan(report_of(openssl("HIGH"))))
    waive(team, tmp_path, (NOW + DAY).date().isoformat())
    team.check("scan")
    waive(team, tmp_path, (NOW - DAY).date().isoformat())

    assert "CVE-2026-0001" in team.reasons("scan")[0]


def test_an_old_scan_is_stale(team: Team) -> None:
    team.sign("builder", scan(CLEAN, 8 * DAY))

    assert team.reasons("scan") == ["the data of its signed scan results is more than 7 days old"]
    allow(team, max_age=30)
    team.check("scan")


def test_old_data_makes_a_new_scan_stale(team: Team) -> None:
    day = (NOW - 9 * DAY).date().isoformat()
    team.sign("builder", scan(report_of(sources=[Source("OSV", "1 record", ("mpi-cpu",), day)])))

    assert team.reasons("scan") == ["the data of its signed scan results is more than 7 days old"]


def test_a_scan_from_the_future_does_not_count(team: Team) -> None:
    team.sign("builder", scan(CLEAN, -DAY))

    assert team.reasons("scan") == ["its signed scan results are dated in the future"]


def test_a_replayed_clean_scan_does_not_hide_a_later_finding(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl("HIGH"))), scan(CLEAN, timedelta(hours=1)))

    assert "CVE-2026-0001" in team.reasons("scan")[0]


def test_a_later_scan_of_the_same_key_replaces_a_finding(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl("HIGH")), timedelta(hours=1)), scan(CLEAN))

    team.check("scan")


def test_a_finding_by_one_key_counts_against_a_clean_scan_by_another(team: Team) -> None:
    team.sign("builder", scan(report_of(openssl("HIGH"))))
    team.sign("tester", scan(CLEAN))

    assert "CVE-2026-0001" in team.reasons("scan")[0]


def test_a_scan_that_does_not_state_its_coverage_does_not_count(team: Team) -> None:
    team.sign("builder", changed(CLEAN, bakehouse_notScanned=None))

    assert team.reasons("scan") == [
        "the signed scan results of other tools do not count: it has no list `bakehouse_notScanned`"
    ]


Campaign = Callable[[Team, random.Random], None]


def sign_as_stranger(team: Team, rng: random.Random) -> None:
    team.sign("stranger", scan(CLEAN, DAY * rng.random()))


def sign_another_image(team: Team, rng: random.Random) -> None:
    """Replay a scan of another digest."""
    team.sign("builder", scan(CLEAN, DAY * rng.random(), Digest(f"sha256:{rng.getrandbits(256):064x}")))


def sign_stale(team: Team, rng: random.Random) -> None:
    team.sign("builder", scan(CLEAN, DAY * (7.01 + 300 * rng.random())))


def sign_future(team: Team, rng: random.Random) -> None:
    team.sign("builder", scan(CLEAN, -DAY * (1 + 300 * rng.random())))


def replay_clean(team: Team, rng: random.Random) -> None:
    age = DAY * rng.random()
    team.sign("builder", scan(report_of(openssl("HIGH")), age), scan(CLEAN, age + timedelta(seconds=1)))


def forge_results(team: Team, rng: random.Random) -> None:
    """Remove the findings from a signed scan."""
    signed_scan = scan(report_of(openssl("HIGH")))
    document = json.loads(bundle.sign(signed_scan.content, team.keys["builder"].signer))
    clean = json.loads(bundle.sign(scan(CLEAN).content, team.keys["stranger"].signer))
    part = rng.choice(("payload", "signatures"))
    other = "signatures" if part == "payload" else "payload"
    clean["dsseEnvelope"][other] = document["dsseEnvelope"][other]
    if part == "signatures":
        clean["dsseEnvelope"]["signatures"][0]["sig"] = "AA" * rng.randrange(1, 40)
    team.attach(json.dumps(clean).encode())


def sign_other_type(team: Team, rng: random.Random) -> None:
    types = (TESTS, SCAN.replace("v0.2", "v0.1"), "https://cosign.sigstore.dev/attestation/vuln/v1")
    statement = bundle.statement("mpi-cpu", DIGEST, rng.choice(types), predicate_of(scan(CLEAN)))
    team.sign("builder", statement)


def leave_out_fields(team: Team, rng: random.Random) -> None:
    metadata = predicate_of(scan(CLEAN))["metadata"]
    scanner = predicate_of(scan(CLEAN))["scanner"]
    choices: tuple[dict[str, object], ...] = (
        {"bakehouse_notScanned": None},
        {"bakehouse_notScanned": {}},
        {"scanner": None},
        {"scanner": {**scanner, "result": rng.choice((None, {}, "", 0))}},
        {"scanner": {**scanner, "result": [{}]}},
        {"scanner": {**scanner, "db": {}}},
        {"metadata": {}},
        {"metadata": {**metadata, "scanFinishedOn": rng.choice(("", "2026-11-25T00:00:00", 7))}},
    )
    team.sign("builder", changed(CLEAN, **rng.choice(choices)))


def leave_out_contents(team: Team, rng: random.Random) -> None:
    team.sign("builder", scan(report_of(not_scanned=[rng.choice((FILES, RUN))])))


def report_severe(team: Team, rng: random.Random) -> None:
    team.sign("builder", scan(report_of(openssl(rng.choice(("", "HIGH", "CRITICAL", "UNKNOWN", "LOW?"))))))


ATTACKS: tuple[Campaign, ...] = (
    *(sign_as_stranger, sign_another_image, sign_stale, sign_future, replay_clean, forge_results),
    *(sign_other_type, leave_out_fields, leave_out_contents, report_severe),
)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.release)])
def test_all_unacceptable_scans_are_refused(keys: dict[str, KeyFiles], rounds: int) -> None:
    accepted = []
    for number in range(rounds * len(ATTACKS)):
        attack = ATTACKS[number % len(ATTACKS)]
        with image_in_registry() as running:
            team = Team(running, keys)
            allow(team, "MEDIUM")
            attack(team, random.Random(number))
            try:
                team.check("scan")
                accepted.append((number, attack.__name__))
            except TrustError:
                pass

    assert accepted == []


def test_a_scan_is_signed_in_every_registry(
    project: ProjectSettings, proxies: tuple[Proxy, Proxy], key: KeyFiles
) -> None:
    records = require_all_published(project, [IMAGE])
    sign_scans(project, records, CLEAN, NOW, Bundler(key.signer), print)

    assert [signed(each, key) for each in proxies] == [[SCAN]] * 2


def test_a_signed_scan_is_recorded_in_the_ledger(project: ProjectSettings, key: KeyFiles) -> None:
    [before] = open_ledger(project).records("mpi-cpu")
    source = Source("Trivy 0.69", "trivy.json", ("mpi-cpu",), "2026-11-20")
    report = report_of(openssl("HIGH", "HIGH", "", "ODD"), sources=[source], not_scanned=[FILES])
    records = require_all_published(project, [IMAGE])
    sign_scans(project, records, report, NOW, Bundler(key.signer), print)
    recorded = open_ledger(project).records("mpi-cpu")[-1]
    [scan] = recorded.scans

    assert recorded == replace(before, scans=(scan,))
    assert scan == ReleasedScan(
        key=key.public_key.hint,
        finished=scan.finished,
        updated="2026-11-20T00:00:00Z",
        findings=(ReleasedFindings("not rated", 2), ReleasedFindings("HIGH", 2)),
        waived=0,
        waived_until="",
        not_scanned=("files",),
    )


def test_a_scan_of_a_rolled_back_release_is_not_another_roll_back(
    project: ProjectSettings, key: KeyFiles
) -> None:
    ledger = open_ledger(project)
    [first] = ledger.records("mpi-cpu")
    first = replace(first, candidate=False, tested=True, tags=("mpi-cpu-20261120-0123abcd",))
    bad, fixed = (replace(first, digest=digest, key=digest[7:], regions=()) for digest in (OTHER, FIXED))
    bad, fixed = (
        replace(record, image_uri=f"{record.registry}/{record.repository}@{record.digest}")
        for record in (bad, fixed)
    )
    rollback = ReleasedRollback("2026-11-22T10:00:00Z", bad.digest)
    back = replace(first, date="2026-11-22", rollback=rollback)
    for record in (first, bad, back, replace(fixed, date="2026-11-22")):
        ledger.add(record)
    assert newest(project, "mpi-cpu").digest == FIXED

    records = require_all_published(project, [IMAGE])
    sign_scans(project, records, CLEAN, NOW, Bundler(key.signer), print)

    scanned = ledger.records("mpi-cpu")[-1]
    assert (scanned.digest, scanned.rollback, len(scanned.scans)) == (first.digest, rollback, 1)
    assert newest(project, "mpi-cpu").digest == FIXED


def test_the_newest_scan_of_each_key_stays_in_the_ledger() -> None:
    first = ReleasedScan("one", "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z", (), 0, "", ())
    later, other = replace(first, finished="2026-11-21T00:00:00Z"), replace(first, key="two")
    record = with_scans(with_scans(a_record(), [first, other]), [later])

    assert record.scans == (later, other)
    assert with_known_facts(a_record(), [record, a_record()]).scans == record.scans
    assert with_known_facts(replace(a_record(), digest=OTHER), [record]).scans == ()


def refused_sources(project: ProjectSettings, key: KeyFiles, *sources: Source) -> list[Diagnostic]:
    records = require_all_published(project, [IMAGE])
    with pytest.raises(UsageError) as caught:
        sign_scans(project, records, report_of(sources=sources), NOW, Bundler(key.signer), print)
    return list(caught.value.diagnostics)


def test_reports_without_a_time_are_not_signed(project: ProjectSettings, key: KeyFiles) -> None:
    assert refused_sources(project, key, Source("Trivy", "trivy.sarif", ("mpi-cpu",))) == [
        Diagnostic(
            "the report `trivy.sarif` of Trivy has no time, so the age of its data is unknown",
            hint="import a report in the scanner's JSON format",
        )
    ]


def test_reports_of_different_builds_are_not_signed(project: ProjectSettings, key: KeyFiles) -> None:
    first = Source("Trivy", "trivy.json", ("mpi-cpu",), "2026-11-20", frozenset((DIGEST, digest_of(CONFIG))))
    other = Source("Grype", "grype.json", ("mpi-cpu",), "2026-11-20", frozenset((OTHER,)))

    assert refused_sources(project, key, first, other) == [
        Diagnostic(
            "the reports of scanners are about different builds of `mpi-cpu`",
            hint="scan one digest with all scanners",
        )
    ]


def test_an_unpublished_image_cannot_be_signed(project: ProjectSettings) -> None:
    changed_image = replace(IMAGE, key=type(IMAGE.key)("0" * 64))
    with pytest.raises(UsageError, match="`mpi-cpu` was not published from this recipe"):
        scan_signing.require_all_published(project, [changed_image])
