"""Findings of images with small packages, on mirrors that have a newer version of one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog import project as settings
from bakehouse.cli import json_report
from bakehouse.commands.security.report import make_report, text
from bakehouse.errors import BakehouseError, NotScannedError, UsageError, VulnerableError
from bakehouse.ledger.releases import append
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.workspace import Workspace, select
from bakehouse.trust.findings import SecurityReport, require_clean
from tests.support import osv_records, vex_documents
from tests.support.errors import error_text
from tests.support.json_samples import sample, shape
from tests.support.release_records import a_record
from tests.support.scanner_documents import CONFIG, CYCLONEDX, MANIFEST, SARIF, TRIVY
from tests.support.security_updates import CHANGELOG, LOCK, Mirror, install
from tests.support.trees import IMAGE, Tree, templates


def make(tree: Tree, snapshot: Path | None = None, reports: Sequence[Path] = ()) -> SecurityReport:
    """Return the report of the tree's images, without the catalogue of Bakehouse."""
    location = replace(settings.find(tree.root), recipe_roots=(tree.root,))
    workspace = Workspace(location, tree.catalog(), tree.recipes(), templates())
    builds_of = open_ledger(location).records
    images = select(workspace, []).plan.images
    return make_report(workspace, images, lambda _: None, builds_of, snapshot, reports)


def refused(report: SecurityReport) -> BakehouseError:
    with pytest.raises(BakehouseError) as caught:
        require_clean(report, hint="add `--fix` to lock the fixed versions")
    return caught.value


def test_an_update_with_the_vulnerabilities_that_its_changelog_names(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.2", CHANGELOG)
    mirror.update("gcc-12", "12.3", "gcc-12 (12.3) sid; urgency=low\n\n  * New upstream version.\n")
    report = make(project)
    assert text(report) == (
        "openssl 1.0 -> 1.2 (sid-security)\n"
        "  fixed in 1.2  CVE-2026-0001, CVE-2026-0002\n"
        "  fixed in 1.1  CVE-2026-0003\n"
        "  packages      openssl\n"
        "  affected      base debian 12: small\n"
        "\n"
        "gcc-12 12.2 -> 12.3 (sid)\n"
        "  fixes     its changelog names no CVE\n"
        "  packages  gcc-12\n"
        "  affected  tools of all build stages (not in the image): small\n"
        "\n"
        "Vulnerabilities without a fix in the suites are not listed.\n"
    )
    error = refused(report)
    assert isinstance(error, VulnerableError)
    assert error_text(error) == (
        "error: 1 package with 3 known vulnerabilities\n\nhint: add `--fix` to lock the fixed versions\n"
    )


def test_the_json_report_has_the_documented_shape(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.2", CHANGELOG)
    mirror.update("gpgv", "2.0", "")
    install(project)
    aliased = osv_records.record(aliases=["CVE-2026-1234"])
    product = {"@id": "pkg:pypi/demo-package"}
    vex_documents.write(project.root, vex_documents.statement(product, name="CVE-2026-1234"))
    report = make(project, osv_records.written(project.root, aliased))
    assert shape(json_report.security(report)) == shape(sample("security"))


def test_an_update_without_a_readable_changelog_is_not_scanned(project: Tree, mirror: Mirror) -> None:
    mirror.update("gpgv", "2.0", "")
    mirror.update("openssl", "1.2", CHANGELOG, Source="openssl-defaults (7)")
    mirror.update("libc6", "2.0", CHANGELOG, SHA256="0d" * 32)
    report = make(project)
    assert report.findings == ()
    assert [(item.what, item.reason) for item in report.not_scanned] == [
        ("update of gpgv 1.0 -> 2.0", "none of its packages contains a changelog"),
        ("update of libc6 1.0 -> 2.0", "`libc6_2.0_amd64.deb` could not be downloaded: no mirror has it"),
        ("update of openssl-defaults 1.0 -> 1.2", "its version differs from that of its source package"),
    ]
    error = refused(report)
    assert isinstance(error, NotScannedError)
    assert error_text(error) == "error: no open finding, but parts of the images were not scanned\n"


def not_scanned(tree: Tree) -> list[tuple[str, str]]:
    report = make(tree)
    assert report.findings == ()
    return [(item.what, item.reason) for item in report.not_scanned]


def test_mirrors_without_security_updates_are_not_a_clean_result(project: Tree, mirror: Mirror) -> None:
    mirror.has_security_updates = False
    reason = "no mirror has them"
    assert not_scanned(project) == [("security updates of sid", reason)]


def test_an_older_version_on_the_mirrors_is_not_an_update(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "0.9", CHANGELOG)
    reason = "the mirrors do not have a newer version"
    assert not_scanned(project) == [("update of openssl 1.0 -> 0.9", reason)]


def test_a_changelog_that_ends_before_the_update_is_not_scanned(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.3", CHANGELOG)
    reason = "its changelog ends at 1.2"
    assert not_scanned(project) == [("update of openssl 1.0 -> 1.3", reason)]


def test_a_package_that_the_newest_ones_do_not_need_is_not_scanned(project: Tree, mirror: Mirror) -> None:
    del mirror.packages["gpgv"]
    reason = "the newest packages on the mirrors no longer need them"
    assert not_scanned(project) == [("1 package of sid: gpgv", reason)]


def test_steps_of_the_recipe_are_not_scanned(project: Tree, mirror: Mirror) -> None:
    project.image(IMAGE + "run: [make install]\n")
    assert not_scanned(project) == [("`run` steps of recipes", "they can install anything")]


def test_what_cannot_be_scanned_is_named_and_is_no_failure(project: Tree, mirror: Mirror) -> None:
    project.image(IMAGE + "run: [make install]\n")
    report = make(project)
    assert text(report) == (
        "no finding\n"
        "\n"
        "cannot be scanned:\n"
        "  `run` steps of recipes  they can install anything  small\n"
        "\n"
        "Vulnerabilities without a fix in the suites are not listed.\n"
    )
    require_clean(report)

    install(project)
    assert isinstance(refused(make(project)), NotScannedError)


def test_an_update_that_no_image_contains_is_left_out(project: Tree, mirror: Mirror) -> None:
    mirror.update("awk-of-mine", "2.0", CHANGELOG)
    assert make(project) == SecurityReport(("small",), (), (), ())


def test_a_package_with_a_version_of_its_own_does_not_hide_its_source(project: Tree, mirror: Mirror) -> None:
    changelog = CHANGELOG
    for before, after in {"1.2": "12.4", "1.1": "12.3", "1.0": "12.2"}.items():
        changelog = changelog.replace(f"openssl ({before})", f"gcc-12 ({after})")
    mirror.update("cpp-12", "1:12.4", changelog, Source="gcc-12 (12.4)")
    mirror.update("gcc-12", "12.4", changelog)
    [finding] = make(project).findings
    assert (finding.version, finding.newer, finding.packages) == ("12.2", "12.4", ("cpp-12", "gcc-12"))
    assert [vulnerability.id[-4:] for vulnerability in finding.vulnerabilities] == ["0001", "0002", "0003"]


def test_a_security_update_whose_changelog_names_no_cve(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.2", CHANGELOG.replace("CVE-", "issue "))
    error = refused(make(project))
    assert isinstance(error, VulnerableError)
    assert error.diagnostics[0].message == "1 package with security updates"


def test_an_image_without_updates_is_clean(project: Tree, mirror: Mirror) -> None:
    report = make(project)
    assert text(report) == ("no finding\n\nVulnerabilities without a fix in the suites are not listed.\n")
    require_clean(report)


def test_unlocked_packages_are_not_scanned(project: Tree, mirror: Mirror) -> None:
    (project.root / "apt/sid.packages").unlink()
    [item] = make(project).not_scanned
    assert (item.what, item.reason) == ("Debian packages of sid", "they are not locked")


def test_python_packages_without_data_are_not_scanned(project: Tree, mirror: Mirror) -> None:
    install(project)
    reason = "no data about their vulnerabilities, see `--osv`"
    assert not_scanned(project) == [("2 Python packages", reason)]


def test_a_python_package_with_vulnerabilities(project: Tree, mirror: Mirror) -> None:
    install(project)
    unfixed = osv_records.record("PYSEC-2026-7", ranges=osv_records.events(("introduced", "0")))
    fixed = osv_records.record(aliases=["CVE-2026-1234"])
    report = make(project, osv_records.written(project.root, fixed, unfixed))
    assert text(report) == (
        "demo-package 1.0 -> 2.0 (OSV)\n"
        "  fixed in 2.0  CVE-2026-1234\n"
        "  no known fix  PYSEC-2026-7\n"
        "  packages      demo-package\n"
        "  affected      Python packages of the recipe: small\n"
        "\n"
        "scanned with:\n"
        "  OSV  2 records of PyPI, the newest of 2026-11-20  small\n"
        "\n"
        "Vulnerabilities without a fix in the suites are not listed.\n"
    )
    assert error_text(refused(report)) == (
        "error: 1 package with 2 known vulnerabilities\n\nhint: add `--fix` to lock the fixed versions\n"
    )


def test_python_packages_without_known_vulnerabilities_are_clean(project: Tree, mirror: Mirror) -> None:
    install(project, LOCK.replace("demo-package==1.0", "demo-package==2.0"))
    report = make(project, osv_records.written(project.root, osv_records.record()))
    assert (report.findings, report.not_scanned) == ((), ())


def test_packages_that_an_index_may_not_have_are_not_scanned(project: Tree, mirror: Mirror) -> None:
    install(project, LOCK.replace("any.whl 10", "any.whl 10 from https://example.com/a.whl", 1))
    report = make(project, osv_records.written(project.root, osv_records.record()))
    [item] = report.not_scanned
    assert (item.what, item.reason) == (
        "1 Python package from files of their own",
        "their code may differ from that of the package index",
    )


def publish(tree: Tree, key: str = "", digest: str = MANIFEST) -> None:
    """Record a release of the image, of the present build unless there is a key."""
    [image] = tree.plan().images
    draft = replace(a_record(), image="small", key=key or image.key, digest=digest, config=CONFIG)
    record = replace(draft, image_uri=f"{draft.registry}/{draft.repository}@{digest}")
    append(tree.root / "images/small/releases.json", record, tree.root / "locks")


def import_report(tree: Tree, monkeypatch: pytest.MonkeyPatch, document: object) -> SecurityReport:
    monkeypatch.chdir(tree.root)
    tree.write("scan.json", json.dumps(document))
    return make(tree, reports=[Path("scan.json")])


def test_findings_of_a_scanner(project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    install(project)
    publish(project)
    report = import_report(project, monkeypatch, TRIVY)
    assert text(report) == (
        "openssl 1.0 -> 1.2 (Trivy 0.71.0)\n"
        "  fixed in 1.2  CVE-2026-0001 (HIGH)\n"
        "  packages      openssl\n"
        "  affected      base debian 12: small\n"
        "\n"
        "demo-package 1.0 (Trivy 0.71.0)\n"
        "  fixed in 1.9.1, 2.0  GHSA-aaaa-bbbb-cccc (CRITICAL)\n"
        "  packages             demo-package\n"
        "  affected             Python packages of the recipe: small\n"
        "\n"
        "scanned with:\n"
        "  Trivy 0.71.0  scan.json, 2026-11-20  small\n"
        "\n"
        "Vulnerabilities without a fix in the suites are not listed.\n"
    )


def test_a_package_that_sarif_names_without_its_kind(
    project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project)
    report = import_report(project, monkeypatch, SARIF)
    kinds = [(finding.kind, finding.name, finding.usages[0].step) for finding in report.findings]
    assert kinds == [
        ("Debian", "openssl", "base debian 12"),
        ("other", "contents of the image", "contents of the image"),
    ]


def test_a_report_of_vulnerabilities_alone_does_not_cover_other_packages(
    project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(project)
    publish(project)
    report = import_report(project, monkeypatch, CYCLONEDX)
    assert [item.what for item in report.not_scanned] == ["2 Python packages"]
    assert report.sources[0].title == "scan.json, 2026-11-23, 1 finding dismissed by it"


def refusal(project: Tree, monkeypatch: pytest.MonkeyPatch, document: object = TRIVY) -> str:
    with pytest.raises(UsageError) as caught:
        import_report(project, monkeypatch, document)
    return error_text(caught.value)


def test_a_report_of_another_image_is_refused(
    project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"sha256:{'e' * 64}"
    publish(project, digest=other)
    document = {**TRIVY, "Metadata": {"RepoDigests": [f"x@{MANIFEST}"]}}
    assert refusal(project, monkeypatch, document) == (
        f"error: `scan.json` is of another image, `{TRIVY['ArtifactName']}`\n"
        "  --> scan.json:1:1\n"
        f"  scanned    {MANIFEST}\n"
        f"  published  {other} small\n"
        "\n"
        "hint: push the image, and scan the digest in its release record\n"
    )


def test_a_report_of_an_older_build_is_refused(
    project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project, key="0" * 64)
    assert refusal(project, monkeypatch) == (
        f"error: `scan.json` is of an older build of `small`, {MANIFEST[:19]}\n"
        "  --> scan.json:1:1\n"
        f"  scanned  {CONFIG}\n"
        f"  scanned  {MANIFEST}\n"
        "\n"
        "hint: scan the build of the current recipe: `bake uri small` shows it\n"
    )


def test_a_report_without_a_digest_is_refused(
    project: Tree, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {**TRIVY, "ArtifactName": "small:latest", "Metadata": {}}
    assert refusal(project, monkeypatch, document) == (
        "error: `scan.json` names no digest of an image\n"
        "  --> scan.json:1:1\n"
        "\n"
        "hint: scan the pushed image, and use the JSON format of the scanner\n"
    )


def test_waivers_are_shown_with_reason_owner_and_expiry(project: Tree, mirror: Mirror) -> None:
    mirror.update("openssl", "1.2", CHANGELOG)
    product = {"@id": "pkg:deb/debian/openssl"}
    vex_documents.write(
        project.root,
        vex_documents.statement(product),
        vex_documents.statement(product, name="CVE-2026-0003", status_notes="expires: 2026-01-01"),
        vex_documents.statement(product, name="CVE-2026-4"),
    )
    report = make(project)
    owner = "platform@example.com: vulnerable_code_not_in_execute_path"
    assert text(report).startswith(
        "openssl 1.0 -> 1.2 (sid-security)\n"
        "  fixed in 1.2    CVE-2026-0002\n"
        "  fixed in 1.1    CVE-2026-0003\n"
        f"  not affected    CVE-2026-0001 until 2027-01-31, {owner}\n"
        f"  expired waiver  CVE-2026-0003 until 2026-01-01, {owner}\n"
    )
    assert [each.message for each in report.warnings] == ["the waiver of `CVE-2026-4` matches no finding"]
    assert refused(report).diagnostics[0].message == "1 package with 2 known vulnerabilities"


@pytest.mark.parametrize(
    ("name", "fixes", "newer"),
    [
        ("openssl", ("1.10", "1.9"), "1.10"),
        ("demo-package", ("1.10", "1.9"), "1.10"),
        ("demo-package", ("1.9.1, 2.0",), ""),
        ("demo-package", ("see the advisory",), ""),
    ],
)
def test_the_newest_fix_that_a_scanner_names(
    project: Tree,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fixes: Sequence[str],
    newer: str,
) -> None:
    install(project)
    publish(project)
    vulnerabilities = [
        {
            "VulnerabilityID": f"CVE-2026-{number}",
            "PkgName": name,
            "InstalledVersion": "1.0",
            "FixedVersion": fixed,
        }
        for number, fixed in enumerate(fixes)
    ]
    kind = "debian" if name == "openssl" else "python-pkg"
    result = {"Class": "os-pkgs", "Type": kind, "Vulnerabilities": vulnerabilities}
    [finding] = import_report(project, monkeypatch, {**TRIVY, "Results": [result]}).findings
    assert finding.newer == newer


def test_a_version_that_pep_440_does_not_know_is_not_scanned(project: Tree, mirror: Mirror) -> None:
    install(project, LOCK.replace("demo-package==1.0", "demo-package==1.0-final-2"))
    report = make(project, osv_records.written(project.root, osv_records.record()))
    assert [(item.what, item.reason) for item in report.not_scanned] == [
        ("demo-package 1.0-final-2", "its version does not follow PEP 440")
    ]
