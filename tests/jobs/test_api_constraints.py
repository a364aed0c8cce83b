"""Constraints of the API: those of its model, and those of its documentation."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bakehouse.jobs import rules
from tests.support.api_sentences import sentences
from tests.support.broken_requests import broken_requests, valid_request
from tests.support.documented_conditions import (
    C5,
    CONDITIONS,
    M5,
    MANIFEST,
    channel,
    preferences,
    rule_of,
    said,
)

SENTENCES = Path(__file__).with_name("api_sentences.yaml")


def errors(content: dict[str, Any]) -> list[str]:
    return [message for _, message, _, is_error in said(content) if is_error]


def test_each_constraint_of_the_model_is_refused_with_its_field() -> None:
    assert errors(valid_request()) == []
    count = 0
    unnamed = []
    for path, constraint, request in broken_requests():
        count += 1
        names = [name for name in path if isinstance(name, str)][-2:]
        # An unknown instance type has its own rule, which names the type.
        names += ["instance type", "input"]
        if not any(name in message for message in errors(request) for name in names):
            unnamed.append((path, constraint))
    assert unnamed == []
    assert count > 800


def test_each_sentence_of_the_documentation_is_reviewed() -> None:
    """A new release of botocore may have new sentences: add a rule, or say why there is none."""
    table = yaml.safe_load(SENTENCES.read_text())
    assert {*table} == {f"{path} {digest}" for path, digest, _ in sentences()}
    reviewed = {entry["rule"] for entry in table.values() if "rule" in entry}
    assert reviewed <= {rule.name for rule in rules.ALL}
    assert all(entry.get("none") for entry in table.values() if "rule" not in entry)
    documented = {case[0] for case in CONDITIONS.values()} | {"api-field", "algorithm-or-image", "read-only"}
    assert reviewed <= documented


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_documented_condition(name: str) -> None:
    rule, content, message, hint = CONDITIONS[name]
    findings = [finding[:3] for finding in said({**valid_request(), **content})]
    assert (rule, message, hint) in findings


@pytest.mark.parametrize(
    "content",
    [
        channel(**MANIFEST, InputMode="Pipe"),
        channel(CompressionType="Gzip", InputMode="Pipe"),
        channel(CompressionType="None"),
        {"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 500}},
        {"Tags": [{"Key": "a", "Value": ""}, {"Key": "A", "Value": ""}]},
        preferences(C5, M5, InstanceCount=1),
        preferences({**C5, "InstanceCount": 1}, {**M5, "InstanceCount": 2}),
        {"DebugRuleConfigurations": [rule_of("a")], "ProfilerRuleConfigurations": [rule_of("b")]},
    ],
)
def test_a_request_that_keeps_the_conditions(content: dict[str, Any]) -> None:
    assert errors({**valid_request(), **content}) == []
