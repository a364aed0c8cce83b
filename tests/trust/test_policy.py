"""The policy on images that are promoted and launched, with a registry in memory."""

import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.trust_settings import REQUIREMENTS, Policy
from bakehouse.errors import Diagnostic, Reason, TrustError
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.trust import bundle, policy
from bakehouse.trust.bundle import RefusedError, Statement
from bakehouse.trust.statements import PROVENANCE, TESTS, rebuild_of, results_of, signature_of, statements_of
from bakehouse.util.oci import Digest
from tests.support.built_images import IMAGE, report
from tests.support.fake_registry import DIGEST
from tests.support.planned_images import INSTALLED
from tests.support.release_records import a_record
from tests.support.signing_keys import KeyFiles
from tests.support.teams import NOW, Team

NO_TIME, MONTH = timedelta(), timedelta(days=30)
PASSED, FAILED = report(Outcome.PASSED), report(Outcome.FAILED)


def results(outcomes: KnownChecks, age: timedelta = NO_TIME) -> Statement:
    date = (NOW - age).isoformat()
    checks = tuple(replace(check, date=date) for check in outcomes.checks)
    [statement] = results_of(IMAGE, DIGEST, replace(outcomes, checks=checks))
    return statement


def test_an_image_with_all_statements_meets_the_policy(team: Team) -> None:
    team.sign("builder", *statements_of(IMAGE, DIGEST, INSTALLED, "c0ffee", PASSED))

    team.check(*REQUIREMENTS, max_age=MONTH)


def test_an_image_without_statements_meets_no_requirement(team: Team) -> None:
    assert team.refusal(*REQUIREMENTS, rebuilds=1) == Diagnostic(
        "`mpi-cpu` does not meet [tool.bakehouse.policy]",
        reasons=(
            Reason("it has no signature that a trusted key signed"),
            Reason("it has no provenance that a trusted key signed"),
            Reason("it has no SBOM that a trusted key signed"),
            Reason("it has no test result that a trusted key signed"),
            Reason("whether its inputs are pinned is not known: no trusted key signed its provenance"),
            Reason("it has 0 of 1 rebuild by trusted keys other than that of its provenance"),
        ),
        facts=(
            ("image URI", team.record.image_uri),
            ("trusted", f"{team.builder}, {team.keys['tester'].public_key.name}"),
        ),
        hint="run `bake push mpi-cpu` with a trusted `signing_key`; the image is not pushed twice",
    )


def test_the_hint_for_a_candidate_stages_it_again(team: Team) -> None:
    team.record = replace(team.record, candidate=True)

    assert team.refusal("signature").hint.startswith("run `bake push mpi-cpu --candidate` with a trusted")


@pytest.mark.parametrize(
    ("unpinned", "problem"),
    [
        ([], ""),
        (["packages of apt: vim"], "nothing pins its input `packages of apt: vim`"),
        (None, "whether its inputs are pinned is not known: its provenance does not say it"),
        ("no list", "whether its inputs are pinned is not known: its provenance does not say it"),
    ],
)
def test_a_policy_can_require_pinned_inputs(team: Team, unpinned: object, problem: str) -> None:
    assert team.reasons("pinned") == [
        "whether its inputs are pinned is not known: no trusted key signed its provenance"
    ]
    parameters = {} if unpinned is None else {"unpinned": unpinned}
    predicate = {"buildDefinition": {"internalParameters": parameters}}
    team.sign("builder", bundle.statement("mpi-cpu", DIGEST, PROVENANCE, predicate))

    if problem:
        assert team.reasons("pinned") == [problem]
    else:
        team.check("pinned")


def test_only_what_is_required_is_needed(team: Team) -> None:
    team.sign("tester", signature_of(IMAGE, DIGEST))

    team.check("signature")
    assert team.reasons("signature", "sbom") == ["it has no SBOM that a trusted key signed"]


def test_a_statement_by_a_stranger_is_refused(team: Team) -> None:
    team.sign("stranger", signature_of(IMAGE, DIGEST))

    first, second = team.reasons("signature")
    assert first == "it has no signature that a trusted key signed"
    assert second.endswith(" is not signed by a trusted key, or was changed")


def test_a_replayed_statement_about_another_image_is_refused(team: Team) -> None:
    team.sign("builder", signature_of(IMAGE, Digest("sha256:" + "5f" * 32)))

    assert team.reasons("signature")[1].endswith(
        f" is about another image, although `{team.builder}` signed it"
    )


def test_a_statement_of_another_kind_does_not_count(team: Team) -> None:
    team.sign("builder", rebuild_of(IMAGE, DIGEST, ["overlay2"]))

    assert team.reasons("signature") == ["it has no signature that a trusted key signed"]


def test_hostile_artifacts_are_named_but_do_not_hide_others(team: Team) -> None:
    team.attach(*(b"%d" % number for number in range(7)))
    reasons = team.reasons("signature")
    team.sign("builder", signature_of(IMAGE, DIGEST))

    assert len(reasons) == 7
    assert reasons[1].endswith(" is not a Sigstore bundle with one signature")
    assert reasons[-1] == "2 more statements are refused"
    team.check("signature")


def test_old_test_results_are_stale_for_a_promotion(team: Team) -> None:
    team.sign("builder", results(PASSED, timedelta(days=31)))

    team.check("tests")
    assert team.reasons("tests", max_age=MONTH) == [
        "its signed test results are older than 30 days, or have no date"
    ]


def test_test_results_from_the_future_do_not_count(team: Team) -> None:
    team.sign("builder", results(PASSED, -timedelta(days=1)))

    assert team.reasons("tests") == ["its signed test results are dated in the future"]


def test_a_replayed_pass_does_not_hide_a_later_failure(team: Team) -> None:
    team.sign("builder", results(FAILED))
    team.sign("builder", results(PASSED, timedelta(hours=1)))

    assert team.reasons("tests") == [f"`{team.builder}` signed that tests failed: `check_1`"]


def test_a_later_pass_of_the_same_key_replaces_a_failure(team: Team) -> None:
    team.sign("builder", results(FAILED, timedelta(hours=1)), results(PASSED))

    team.check("tests", max_age=MONTH)


def test_a_failure_by_one_key_counts_against_a_pass_by_another(team: Team) -> None:
    team.sign("tester", results(PASSED))
    team.sign("builder", results(FAILED, timedelta(hours=1)))

    assert team.reasons("tests") == [f"`{team.builder}` signed that tests failed: `check_1`"]


def test_a_failure_by_a_stranger_does_not_count(team: Team) -> None:
    team.sign("builder", results(PASSED))
    team.sign("stranger", results(FAILED))

    team.check("tests")


def test_test_results_without_a_date_count_where_age_does_not_matter(team: Team) -> None:
    predicate = {"result": "PASSED", "configuration": []}
    team.sign("builder", bundle.statement("mpi-cpu", DIGEST, TESTS, predicate))

    team.check("tests")
    assert team.reasons("tests", max_age=MONTH) == [
        "its signed test results are older than 30 days, or have no date"
    ]


def test_a_result_that_names_failed_tests_is_a_failure(team: Team) -> None:
    predicate = {"result": "PASSED", "configuration": [], "failedTests": ["nccl"]}
    team.sign("builder", bundle.statement("mpi-cpu", DIGEST, TESTS, predicate))

    assert team.reasons("tests") == [f"`{team.builder}` signed that tests failed: `nccl`"]


def test_two_files_of_one_key_are_one_key(team: Team, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pub"
    copy.write_bytes(team.keys["builder"].public.read_bytes())
    team.policy = Policy((copy, team.keys["builder"].public))
    team.sign("builder", *statements_of(IMAGE, DIGEST, INSTALLED, "c0ffee", PASSED))
    team.sign("builder", rebuild_of(IMAGE, DIGEST, ["overlay2"]))

    assert "it has 0 of 1 rebuild" in team.reasons(rebuilds=1)[0]


def test_rebuilds_by_other_keys_are_counted_once_each(team: Team) -> None:
    team.sign("builder", *statements_of(IMAGE, DIGEST, INSTALLED, "c0ffee", PASSED))
    team.sign("builder", rebuild_of(IMAGE, DIGEST, ["overlay2"]))
    team.sign("stranger", rebuild_of(IMAGE, DIGEST, ["overlay2"]))
    refused = team.refusal(rebuilds=1)
    team.sign("tester", rebuild_of(IMAGE, DIGEST, ["overlay2"]), rebuild_of(IMAGE, DIGEST, ["containerd"]))

    assert (
        refused.reasons[0].text == "it has 0 of 1 rebuild by trusted keys other than that of its provenance"
    )
    assert refused.hint == "run `bake reproduce mpi-cpu --sign` with another trusted `signing_key`"
    team.check(rebuilds=1)
    assert team.reasons(rebuilds=2)[0] == (
        "it has 1 of 2 rebuilds by trusted keys other than that of its provenance"
    )


def test_a_registry_that_fails_is_not_taken_for_one_without_statements(team: Team) -> None:
    team.sign("builder", signature_of(IMAGE, DIGEST))
    team.proxy.fail("GET", "/referrers/", 403, b"{}")

    diagnostic = team.refusal("signature")
    assert diagnostic.message == "the signed statements of `mpi-cpu` could not be read"
    assert diagnostic.facts == (("image URI", team.record.image_uri), ("answer", "HTTP 403 Forbidden"))


def test_a_project_without_a_policy_asks_no_registry(team: Team, tmp_path: Path) -> None:
    policy.require(ProjectSettings(tmp_path, ()), team.record, print)

    assert team.proxy.requests == []


def test_a_release_is_checked_in_its_registry(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    project = ProjectSettings(tmp_path, (), policy=replace(team.policy, require=("signature",)))

    with pytest.raises(TrustError, match="does not meet"):
        policy.require(project, team.record, print)
    team.sign("builder", signature_of(IMAGE, DIGEST))
    policy.require(project, team.record, print)


class Event(NamedTuple):
    """A statement about test results in the registry."""

    key: str
    outcome: Outcome
    age: int | None
    """In days; None without a date."""
    name: str
    digest: Digest


OTHER_DIGEST = Digest("sha256:" + "5f" * 32)
EVENTS = st.builds(
    Event,
    key=st.sampled_from(["builder", "tester", "stranger"]),
    outcome=st.sampled_from([Outcome.PASSED, Outcome.FAILED]),
    age=st.sampled_from([None, -2, 0, 1, 29, 31, 400]),
    name=st.sampled_from(["mpi-cpu"] * 3 + ["other"]),
    digest=st.sampled_from([DIGEST] * 3 + [OTHER_DIGEST]),
)


def event_statement(event: Event) -> Statement:
    image = replace(IMAGE, name=event.name)
    [statement] = results_of(image, event.digest, report(event.outcome))
    document = json.loads(statement.content)
    annotations = document["predicate"]["configuration"][0]["annotations"]
    if event.age is None:
        del annotations["finishedOn"]
    else:
        annotations["finishedOn"] = (NOW - timedelta(days=event.age)).isoformat()
    return Statement(statement.predicate_type, json.dumps(document).encode())


def is_accepted(events: list[Event]) -> bool:
    """The rule: of the statements about this image by trusted keys, the last of each key passed."""
    ages = []
    for key in ("builder", "tester"):
        own = [
            event
            for event in events
            if event[0] == key and event[3:] == ("mpi-cpu", DIGEST) and event.age != -2
        ]
        # Without a date, it may be older than all others; of one time, the failure counts
        own.sort(key=lambda event: (-1000 if event.age is None else -event.age, event.outcome == "failed"))
        if own and own[-1].outcome is Outcome.FAILED:
            return False
        ages += [event.age for event in own[-1:]]
    return any(age is not None and age <= 30 for age in ages)


@given(st.lists(EVENTS, min_size=1, max_size=5))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_sequence_of_statements_hides_the_last_failure(
    keys: dict[str, KeyFiles], events: list[Event]
) -> None:
    statements = []
    for event in events:
        content = bundle.sign(event_statement(event).content, keys[event.key].signer)
        with contextlib.suppress(RefusedError):
            trusted = [keys[name].public_key for name in ("builder", "tester")]
            statements.append(bundle.verify(content, DIGEST, ["mpi-cpu"], trusted))
    rules = Policy((), ("tests",))
    assert is_accepted(events) == (not policy.problems(rules, a_record(), statements, MONTH))
