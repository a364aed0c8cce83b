"""Statements about published images."""

import json
from dataclasses import replace
from typing import Any

from bakehouse.builder.verify import Outcome
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.trust import bundle, provenance, sbom, statements
from bakehouse.trust.bundle import Statement
from tests.support.built_images import report
from tests.support.planned_images import DIGEST, INSTALLED, planned

TIME = "2026-11-21T10:00:00+00:00"


def document(statement: Statement) -> dict[str, Any]:
    return dict(json.loads(statement.content))


def results_of(outcomes: KnownChecks, *required: str) -> dict[str, Any] | None:
    image = replace(planned(), required=required)
    made = statements.results_of(image, DIGEST, replace(outcomes, required=required))
    return document(made[0])["predicate"] if made else None


def test_a_built_image_has_four_statements_about_its_digest() -> None:
    made = statements.statements_of(planned(), DIGEST, INSTALLED, "c0ffee", report(Outcome.PASSED))

    assert [each.predicate_type for each in made] == [
        "https://sigstore.dev/cosign/sign/v1",
        "https://slsa.dev/provenance/v1",
        "https://cyclonedx.org/bom",
        "https://in-toto.io/attestation/test-result/v0.1",
    ]
    subject = {"name": "mpi-cpu", "digest": {"sha256": "4f" * 32}}
    assert [document(each)["subject"] for each in made] == [[subject]] * 4
    assert [document(each)["predicateType"] for each in made] == [each.predicate_type for each in made]


def test_the_signed_documents_are_those_that_attest_attaches() -> None:
    made = statements.statements_of(planned(), DIGEST, INSTALLED, "c0ffee", None)
    signature, provenance_statement, sbom_statement = made

    assert document(signature)["predicate"] == {}
    assert provenance_statement == provenance.statement_of(planned(), DIGEST, "c0ffee")
    assert document(sbom_statement)["predicate"] == json.loads(sbom.text_of(planned(), DIGEST, INSTALLED))


def test_passed_tests_are_a_test_result() -> None:
    outcomes = report(Outcome.PASSED, Outcome.NOT_TESTED)

    assert results_of(outcomes, "check_1") == {
        "result": "PASSED",
        "configuration": [
            {
                "uri": "urn:bakehouse:recipe:mpi-cpu",
                "annotations": {
                    "key": "a" * 64,
                    "required": ["check_1"],
                    "transport": "none",
                    "finishedOn": TIME,
                },
            }
        ],
        "passedTests": ["check_1"],
        "failedTests": [],
    }


def test_a_failed_test_is_named() -> None:
    predicate = results_of(report(Outcome.PASSED, Outcome.FAILED))

    assert predicate
    assert (predicate["result"], predicate["failedTests"]) == ("FAILED", ["check_2"])


def test_there_is_no_result_while_a_required_check_has_not_run() -> None:
    assert results_of(report(Outcome.PASSED, Outcome.NOT_TESTED), "check_2") is None
    assert statements.results_of(planned(), DIGEST, None) == ()


def test_a_rebuild_names_the_image_stores() -> None:
    made = document(statements.rebuild_of(planned(), DIGEST, ["overlay2", "containerd"]))

    assert made["predicateType"] == "urn:bakehouse:rebuild:1"
    assert made["predicate"] == {
        "builder": {"id": "urn:bakehouse:bake", "version": {"bakehouse": "0.2.0"}},
        "key": "a" * 64,
        "imageStores": ["overlay2", "containerd"],
    }


def test_media_types_have_no_parameter() -> None:
    # Amazon ECR answers 405 otherwise: https://github.com/aws/containers-roadmap/issues/2306
    assert not [each for each in (bundle.MEDIA_TYPE, sbom.MEDIA_TYPE, provenance.MEDIA_TYPE) if ";" in each]
