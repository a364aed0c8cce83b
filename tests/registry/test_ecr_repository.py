"""Lifecycle policies of ECR, as its guide has them."""

import json
from typing import Any

import pytest

from bakehouse.registry.ecr_repository import expiring_rule

TAGS = ("mpi-cpu-20261120-7c1e44b0",)
DAYS = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 14}
COUNT = {"countType": "imageCountMoreThan", "countNumber": 30}
KEEP = {"countType": "imageCountMoreThan", "countNumber": 10_000}


def policy(*selections: dict[str, Any]) -> str:
    rules = [
        {"rulePriority": number, "selection": selection, "action": {"type": "expire"}}
        for number, selection in enumerate(selections, 1)
    ]
    # Their order does not matter.
    return json.dumps({"rules": rules[::-1]})


def tagged(counts: dict[str, Any], **lists: list[str]) -> dict[str, Any]:
    return {"tagStatus": "tagged", **lists, **counts}


@pytest.mark.parametrize(
    ("selections", "reason"),
    [
        ([{"tagStatus": "any", **DAYS}], "rule 1 expires any images, after 14 days"),
        ([{"tagStatus": "any", **COUNT}], "rule 1 expires any images, all but the newest 30"),
        ([tagged(COUNT, tagPrefixList=["mpi"])], "rule 1 expires tagged images, all but the newest 30"),
        ([tagged(COUNT, tagPatternList=["*-2026*"])], "rule 1 expires tagged images, all but the newest 30"),
        (
            [{"tagStatus": "untagged", **DAYS}, {"tagStatus": "any", **DAYS}],
            "rule 2 expires any images, after 14 days",
        ),
    ],
)
def test_rules_that_would_expire_a_release(selections: list[dict[str, Any]], reason: str) -> None:
    assert expiring_rule(policy(*selections), TAGS) == reason


@pytest.mark.parametrize(
    "selections",
    [
        [],
        [{"tagStatus": "untagged", **DAYS}],
        [tagged(COUNT, tagPrefixList=["dev-"])],
        [tagged(COUNT, tagPrefixList=["mpi", "dev-"])],
        [tagged(COUNT, tagPatternList=["dev-*", "*"])],
        [tagged(KEEP, tagPatternList=["*-2*-*"]), {"tagStatus": "any", **DAYS}],
    ],
)
def test_rules_that_leave_a_release_alone(selections: list[dict[str, Any]]) -> None:
    assert expiring_rule(policy(*selections), TAGS) == ""


def test_a_rule_is_reported_with_its_description() -> None:
    text = json.dumps(
        {"rules": [{"rulePriority": 7, "description": "old ones", "selection": {"tagStatus": "any", **DAYS}}]}
    )
    assert expiring_rule(text, TAGS) == "rule 7 (old ones) expires any images, after 14 days"
