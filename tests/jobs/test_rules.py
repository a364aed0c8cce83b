"""Rules for jobs."""

from bakehouse.jobs import rules


def test_every_rule_has_a_name_of_its_own_and_a_source() -> None:
    names = [rule.name for rule in rules.ALL]
    assert len({*names}) == len(names) > 50
    assert all(rule.source for rule in rules.ALL)
