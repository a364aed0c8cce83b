"""Signatures of smoke reports in files, which carry test results from one machine to another."""

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cluster.smoke_report import ReportFile, Sign, SmokeReport, Verify
from bakehouse.errors import Reason, TrustError
from bakehouse.trust import bundle
from bakehouse.trust.bundle import RefusedError
from bakehouse.trust.keys import open_signer, read_public_key
from bakehouse.trust.statements import SMOKE_REPORT
from bakehouse.util.oci import Digest


def signer(project: ProjectSettings) -> Sign | None:
    """Return a function that signs reports with the project's key; None without a key. Raises TrustError."""
    if not project.signing_key:
        return None
    key = open_signer(project.signing_key)

    def sign(report: SmokeReport, sha256: str) -> bytes:
        statement = bundle.statement(report.image, Digest(report.content), SMOKE_REPORT, {"sha256": sha256})
        return bundle.sign(statement.content, key)

    return sign


def verifier(policy: Policy | None) -> Verify | None:
    """Return a check that a trusted key signed a report; None without a policy. Raises TrustError."""
    if policy is None:
        return None
    keys = [read_public_key(path) for path in policy.keys]

    def verify(file: ReportFile) -> None:
        facts = (("trusted", ", ".join(key.name for key in keys)),)
        hint = f"run `bake smoke {file.report.image} --report FILE` with a trusted `signing_key`"
        if not file.bundle:
            raise TrustError(
                f"`{file.path}` is not signed, but the project has a policy", facts=facts, hint=hint
            )
        message = f"the signature of `{file.path}` was refused"
        try:
            signed = bundle.verify(file.bundle, Digest(file.report.content), [file.report.image], keys)
        except RefusedError as error:
            reasons = (Reason(f"it {error}"),)
            raise TrustError(message, reasons=reasons, facts=facts, hint=hint) from error
        if signed.predicate_type != SMOKE_REPORT or signed.predicate.get("sha256") != file.sha256:
            reasons = (Reason(f"`{signed.key.name}` signed something else about this image"),)
            raise TrustError(message, reasons=reasons, facts=facts, hint=hint)

    return verify
