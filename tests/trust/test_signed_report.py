"""Signed smoke reports: what a promotion accepts from another machine if the project has a policy."""

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import SmokeError, TrustError
from bakehouse.evidence import check_rows
from bakehouse.ledger.store import open_ledger
from bakehouse.publish import promote
from bakehouse.publish.options import PublishOptions
from bakehouse.registry.manifest import content_id
from bakehouse.trust import bundle, signed_report
from bakehouse.trust.statements import SMOKE_REPORT, TESTS
from bakehouse.util.oci import Digest
from tests.support import built_images
from tests.support.built_images import IMAGE, results
from tests.support.candidates import candidate
from tests.support.errors import raised
from tests.support.fake_registry import CONFIG, DIGEST
from tests.support.proxy import Proxy
from tests.support.signing_keys import KeyFiles, make_key

CONTENT = content_id(CONFIG)
REPORT = built_images.smoke_report(CONTENT, results(machine="gpu-1"))


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, KeyFiles]:
    return {name: make_key(tmp_path, name) for name in ("tester", "stranger")}


@pytest.fixture
def team(tmp_path: Path, proxies: tuple[Proxy, Proxy], keys: dict[str, KeyFiles]) -> ProjectSettings:
    """A project with an untested candidate and a policy that trusts `tester`."""
    project = ProjectSettings(tmp_path / "project", (), policy=Policy((keys["tester"].public,)))
    open_ledger(project).add(candidate(*proxies))
    return project


def written(directory: Path, key: KeyFiles | None, report: SmokeReport = REPORT) -> Path:
    """Write the report of a machine with this signing key."""
    path = directory / "seen.json"
    machine = ProjectSettings(directory, (), key_address=str(key.private) if key else "")
    smoke_report.write(report, path, signed_report.signer(machine))
    return path


def promoted(team: ProjectSettings, path: Path) -> str:
    return promote.promote_image(team, IMAGE, print, PublishOptions(reports=(path,))).digest


def refused(team: ProjectSettings, path: Path) -> str:
    """Return the error of a promotion, which attached and released nothing."""
    error = raised(TrustError, promoted, team, path)
    assert check_rows.load(team.state, CONTENT) == ()
    assert not any(record.is_released for record in open_ledger(team).records("mpi-cpu"))
    return failure_text(error.diagnostics[0]).replace(str(path.parent), "DIR")


def test_a_report_that_a_trusted_key_signed_is_accepted(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    assert promoted(team, written(tmp_path, keys["tester"])) == DIGEST


def test_a_signed_report_needs_no_policy(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    assert promoted(replace(team, policy=None), written(tmp_path, keys["stranger"])) == DIGEST


def test_a_report_without_a_signature_is_refused(team: ProjectSettings, tmp_path: Path) -> None:
    assert refused(team, written(tmp_path, None)) == dedent("""\
        error: `DIR/seen.json` is not signed, but the project has a policy
          trusted  DIR/tester.pub

        hint: run `bake smoke mpi-cpu --report FILE` with a trusted `signing_key`
        """)


def test_a_report_that_a_stranger_signed_is_refused(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    assert refused(team, written(tmp_path, keys["stranger"])) == dedent("""\
        error: the signature of `DIR/seen.json` was refused
          because it is not signed by a trusted key, or was changed
          trusted  DIR/tester.pub

        hint: run `bake smoke mpi-cpu --report FILE` with a trusted `signing_key`
        """)


def test_a_changed_report_with_a_new_sha256_is_refused(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, keys["tester"])
    signature = json.loads(path.read_text())["signature"]
    # The sha256 alone would not show such a change.
    smoke_report.write(replace(REPORT, machine="gpu-2"), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "signature": signature}))

    assert "`DIR/tester.pub` signed something else about this image\n" in refused(team, path)


def test_the_signature_of_another_statement_is_refused(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, None)
    document = json.loads(path.read_text())
    tests = bundle.statement("mpi-cpu", Digest(CONTENT), TESTS, {"sha256": document["sha256"]})
    signature = json.loads(bundle.sign(tests.content, keys["tester"].signer))
    path.write_text(json.dumps({**document, "signature": signature}))

    assert "`DIR/tester.pub` signed something else about this image\n" in refused(team, path)


def test_the_signature_of_another_image_s_report_is_refused(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, None)
    document = json.loads(path.read_text())
    other = Digest("sha256:" + "00" * 32)
    statement = bundle.statement("mpi-cpu", other, SMOKE_REPORT, {"sha256": document["sha256"]})
    signature = json.loads(bundle.sign(statement.content, keys["tester"].signer))
    path.write_text(json.dumps({**document, "signature": signature}))

    assert "it is about another image, although `DIR/tester.pub` signed it\n" in refused(team, path)


@pytest.mark.parametrize("signature", [3, "x", [], {}, {"mediaType": bundle.MEDIA_TYPE}])
def test_a_damaged_signature_is_refused(team: ProjectSettings, tmp_path: Path, signature: object) -> None:
    path = written(tmp_path, None)
    path.write_text(json.dumps({**json.loads(path.read_text()), "signature": signature}))

    expected = "is not a Sigstore bundle with one signature" if signature else "is not signed"
    assert expected in refused(team, path)


def test_a_stale_report_is_refused_whoever_signed_it(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, keys["tester"], replace(REPORT, date="2026-01-02T03:04:05+00:00"))

    with pytest.raises(SmokeError, match="is stale"):
        promoted(team, path)


def test_a_changed_field_is_reported_before_the_signature(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, keys["tester"])
    path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "failed"'))

    with pytest.raises(SmokeError, match="was changed after it was written"):
        promoted(team, path)


def test_an_unreadable_key_of_the_policy_attaches_nothing(
    team: ProjectSettings, tmp_path: Path, keys: dict[str, KeyFiles]
) -> None:
    path = written(tmp_path, keys["tester"])
    keys["tester"].public.unlink()

    assert "cannot read the key" in refused(team, path)
