"""Statements about the digest of an image: signature, provenance, SBOM, test results and rebuilds."""

import json
from collections.abc import Sequence

from bakehouse.analysis.packages import Installed
from bakehouse.builder.verify import Outcome
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.plan.model import Image
from bakehouse.trust import provenance, sbom
from bakehouse.trust.bundle import SIGNATURE, Statement, statement
from bakehouse.util.oci import Digest

PROVENANCE = provenance.PREDICATE_TYPE
SBOM = "https://cyclonedx.org/bom"
TESTS = "https://in-toto.io/attestation/test-result/v0.1"
REBUILD = "urn:bakehouse:rebuild:1"
SMOKE_REPORT = "urn:bakehouse:smoke-report:1"
"""Type of the statement in the file of a smoke report, with the sha256 of the file's other fields."""


def statements_of(
    image: Image, digest: Digest, installed: Installed | None, revision: str, state: KnownChecks | None
) -> tuple[Statement, ...]:
    """Return the statements about an image that was built here; without `installed`, there is no SBOM."""
    bill = sbom.text_of(image, digest, installed) if installed else ""
    return (
        signature_of(image, digest),
        provenance.statement_of(image, digest, revision),
        *([statement(image.name, digest, SBOM, json.loads(bill))] if bill else []),
        *results_of(image, digest, state),
    )


def signature_of(image: Image, digest: Digest) -> Statement:
    """Return the statement that `cosign sign` makes about this digest."""
    return statement(image.name, digest, SIGNATURE, {})


def results_of(image: Image, digest: Digest, state: KnownChecks | None) -> tuple[Statement, ...]:
    """Return the statement about the smoke tests; none while required checks have not run."""
    if state is None or not state.date:
        return ()
    names = {
        outcome: [check.name for check in state.checks if check.outcome is outcome] for outcome in Outcome
    }
    is_failed = bool(names[Outcome.FAILED])
    if not is_failed and state.blockers:
        return ()
    configuration = {
        "uri": f"urn:bakehouse:recipe:{image.name}",
        "annotations": {
            "key": image.key,
            "required": list(image.required),
            "transport": state.transport,
            "finishedOn": state.date,
        },
    }
    predicate = {
        "result": "FAILED" if is_failed else "PASSED",
        "configuration": [configuration],
        "passedTests": names[Outcome.PASSED],
        "failedTests": names[Outcome.FAILED],
    }
    return (statement(image.name, digest, TESTS, predicate),)


def rebuild_of(image: Image, digest: Digest, stores: Sequence[str]) -> Statement:
    """Return the statement that another build had the same digest; `stores` are the engines' image stores."""
    predicate = {"builder": provenance.BUILDER, "key": image.key, "imageStores": list(stores)}
    return statement(image.name, digest, REBUILD, predicate)
