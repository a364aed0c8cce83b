"""Findings of scanners in an image with small packages."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog import project as settings
from bakehouse.commands.security.findings import SecurityReport, require_clean
from bakehouse.commands.security.report import as_json, make_report, text
from bakehouse.errors import BakehouseError, NotScannedError, UsageError, VulnerableError
from bakehouse.ledger.releases import append
from bakehouse.ledger.store import open_ledger
from bakehouse.plan.workspace import Workspace, select
from tests.commands.security.scanner_documents import CONFIG, MANIFEST, TRIVY
from tests.commands.security.security_updates import install
from tests.support import vex_documents
from tests.support.errors import error_text, raised
from tests.support.json_samples import sample, shape
from tests.support.release_records import a_record
from tests.support.trees import IMAGE, Tree, templates

CLEAN = {
    **TRIVY,
    "Results": [{"Class": "os-pkgs", "Type": "debian"}, {"Class": "lang-pkgs", "Type": "python-pkg"}],
}


def make(tree: Tree, *reports: Path) -> SecurityReport:
    """Return the report of the tree's images, without the catalogue of Bakehouse."""
    location = replace(settings.find(tree.root), recipe_roots=(tree.root,))
    workspace = Workspace(location, tree.catalog(), tree.recipes(), templates())
    builds_of = open_ledger(location).records
    return make_report(workspace, select(workspace, []).plan.images, builds_of, reports)


def refused(report: SecurityReport) -> BakehouseError:
    return raised(BakehouseError, require_clean, report, hint="add `--fix` to lock the fixed versions")


def publish(tree: Tree, key: str = "", digest: str = MANIFEST) -> None:
    """Record a release of the image, of the present build unless there is a key."""
    [image] = tree.plan().images
    draft = replace(a_record(), image="small", key=key or image.key, digest=digest, config=CONFIG)
    record = replace(draft, image_uri=f"{draft.registry}/{draft.repository}@{digest}")
    append(tree.root / "images/small/releases.json", record, tree.root / "locks")


def import_report(tree: Tree, monkeypatch: pytest.MonkeyPatch, document: object) -> SecurityReport:
    monkeypatch.chdir(tree.root)
    tree.write("scan.json", json.dumps(document))
    return make(tree, Path("scan.json"))


def test_findings_of_a_scanner(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
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
    )


def test_findings_end_with_the_exit_code_of_vulnerabilities(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project)
    error = refused(import_report(project, monkeypatch, TRIVY))
    assert isinstance(error, VulnerableError)
    assert error_text(error) == (
        "error: 2 packages with 2 known vulnerabilities\n\nhint: add `--fix` to lock the fixed versions\n"
    )


def test_a_clean_report_that_covers_all_packages(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(project)
    report = import_report(project, monkeypatch, CLEAN)
    assert text(report) == "no finding\n\nscanned with:\n  Trivy 0.71.0  scan.json, 2026-11-20  small\n"
    require_clean(report)


def test_contents_that_no_scanner_covers_are_named_and_are_no_failure(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.image(IMAGE + "run: [make install]\n")
    publish(project)
    report = import_report(project, monkeypatch, CLEAN)
    assert text(report).endswith(
        "\ncannot be scanned:\n  `run` steps of recipes  they can install anything  small\n"
    )
    require_clean(report)


def test_packages_that_the_report_does_not_cover_are_not_a_clean_result(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project)
    report = import_report(project, monkeypatch, {**CLEAN, "Results": CLEAN["Results"][:1]})
    assert text(report).endswith("\nnot scanned:\n  Python packages  no report covers them  small\n")
    error = refused(report)
    assert isinstance(error, NotScannedError)
    assert error_text(error) == "error: no open finding, but parts of the images were not scanned\n"


def test_an_image_that_no_report_is_about_is_not_scanned(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project)
    project.image(IMAGE, "other")
    report = import_report(project, monkeypatch, CLEAN)
    assert {item.images for item in report.left_out} == {("other",)}


def test_without_a_report_nothing_is_said(project: Tree) -> None:
    assert error_text(raised(UsageError, make, project)) == (
        "error: `security` reads the reports of scanners\n\nhint: scan the pushed image, "
        "as with `trivy image --format json`, and add `--import FILE`\n"
    )


def test_the_json_report_has_the_documented_shape(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    install(project)
    project.image(project.root.joinpath("images/small.yaml").read_text() + "run: [make install]\n")
    publish(project)
    product = {"@id": "pkg:deb/debian/openssl"}
    vex_documents.write(project.root, vex_documents.statement(product))
    assert shape(as_json(import_report(project, monkeypatch, TRIVY))) == shape(sample("security"))


def test_waivers_are_shown_with_reason_owner_and_expiry(
    project: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project)
    openssl, demo = {"@id": "pkg:deb/debian/openssl"}, {"@id": "pkg:pypi/demo-package"}
    vex_documents.write(
        project.root,
        vex_documents.statement(openssl),
        vex_documents.statement(demo, name="GHSA-aaaa-bbbb-cccc", status_notes="expires: 2026-01-01"),
        vex_documents.statement(openssl, name="CVE-2026-4"),
    )
    report = import_report(project, monkeypatch, TRIVY)
    lines = text(report).splitlines()
    owner = "platform@example.com: vulnerable_code_not_in_execute_path"
    assert f"  not affected  CVE-2026-0001 until 2027-01-31, {owner}" in lines
    assert f"  expired waiver       GHSA-aaaa-bbbb-cccc until 2026-01-01, {owner}" in lines
    assert [each.message for each in report.warnings] == ["the waiver of `CVE-2026-4` matches no finding"]
    assert refused(report).diagnostics[0].message == "1 package with 1 known vulnerability"


def refusal(project: Tree, monkeypatch: pytest.MonkeyPatch, document: object = TRIVY) -> str:
    return error_text(raised(UsageError, import_report, project, monkeypatch, document))


def test_a_report_of_another_image_is_refused(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_report_of_an_older_build_is_refused(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(project, key="0" * 64)
    assert refusal(project, monkeypatch) == (
        f"error: `scan.json` is of an older build of `small`, {MANIFEST[:19]}\n"
        "  --> scan.json:1:1\n"
        f"  scanned  {CONFIG}\n"
        f"  scanned  {MANIFEST}\n"
        "\n"
        "hint: scan the build of the current recipe: `bake uri small` shows it\n"
    )


def test_a_report_without_a_digest_is_refused(project: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {**TRIVY, "ArtifactName": "small:latest", "Metadata": {}}
    assert refusal(project, monkeypatch, document) == (
        "error: `scan.json` names no digest of an image\n"
        "  --> scan.json:1:1\n"
        "\n"
        "hint: scan the pushed image, and use the JSON format of the scanner\n"
    )


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
    project: Tree, monkeypatch: pytest.MonkeyPatch, name: str, fixes: Sequence[str], newer: str
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
