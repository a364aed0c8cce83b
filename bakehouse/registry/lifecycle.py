"""Reads the lifecycle policy of an ECR repository: which of its rules would expire an image."""

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

_ENDLESS = 10_000
"""A rule that keeps so many images is how people keep some from the rules after it."""


def expiring_rule(policy: str, tags: Collection[str]) -> str:
    """The rule that some day expires an image with these tags, in words; empty where none does.

    The first rule that selects an image decides: ECR's later rules leave it alone.
    """
    for rule in sorted(json.loads(policy)["rules"], key=lambda rule: int(rule["rulePriority"])):
        if _selects(rule["selection"], tags):
            return "" if _keeps(rule["selection"]) else _words(rule)
    return ""


def _selects(selection: Mapping[str, Any], tags: Collection[str]) -> bool:
    if selection["tagStatus"] == "any":
        return True
    if selection["tagStatus"] == "untagged":
        return not tags
    prefixes = [f"{prefix}*" for prefix in selection.get("tagPrefixList", ())]
    # Each pattern of a rule has to match a tag of the image.
    patterns = [*prefixes, *selection.get("tagPatternList", ())]
    return all(any(fnmatchcase(tag, pattern) for tag in tags) for pattern in patterns)


def _keeps(selection: Mapping[str, Any]) -> bool:
    return selection["countType"] == "imageCountMoreThan" and int(selection["countNumber"]) >= _ENDLESS


def _words(rule: Mapping[str, Any]) -> str:
    selection = rule["selection"]
    number = selection["countNumber"]
    if selection["countType"] == "imageCountMoreThan":
        when = f"all but the newest {number}"
    else:
        when = f"after {number} {selection.get('countUnit', 'days')}"
    described = f" ({rule['description']})" if rule.get("description") else ""
    return f"rule {rule['rulePriority']}{described} expires {selection['tagStatus']} images, {when}"
