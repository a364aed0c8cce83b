"""`releases --verify`: what differs from the registry, and what the policy refuses."""

from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.project import ProjectSettings
from bakehouse.publish.verify import verify, verify_releases
from tests.support.teams import Team

TAG = "mpi-cpu-20261120-7c1e44b0"


def test_a_record_of_another_day_than_its_tag_is_found(team: Team) -> None:
    record = replace(team.record, tags=(TAG,), date="2026-11-28")
    [verified] = verify([record], lambda _: team.registry, team.retry_policy)

    assert verified.missing == (f"tag `{TAG}` is missing", f"tag `{TAG}` is of 2026-11-20")


def test_a_release_that_the_policy_refuses_is_found(team: Team, tmp_path: Path) -> None:
    project = ProjectSettings(tmp_path, (), policy=replace(team.policy, require=("tests",)))
    verified = verify_releases(project, [replace(team.record, tags=())], print)

    refusal = "the policy refuses it: it has no test result that a trusted key signed"
    assert [item.missing for item in verified] == [(refusal,)]
