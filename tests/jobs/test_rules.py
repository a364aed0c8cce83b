"""Rules for jobs."""

import re

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.jobs import rules


def test_every_rule_has_a_name_of_its_own_and_a_source() -> None:
    names = [rule.name for rule in rules.ALL]
    assert len({*names}) == len(names) > 50
    assert all(rule.source for rule in rules.ALL)


def test_each_rule_of_the_table_is_used_and_no_other() -> None:
    used = {
        name
        for path in HOME.glob("bakehouse/**/*.py")
        for name in re.findall(r"\brules\.([A-Z][A-Z_0-9]*)\b", path.read_text())
    }

    assert {getattr(rules, name) for name in used - {"ALL", "RELEASE"}} == {*rules.ALL}


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(AttributeError, match="`NO_RULE` is not a rule of"):
        _ = rules.NO_RULE
