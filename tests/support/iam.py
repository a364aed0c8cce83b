"""An evaluator of IAM policies, for the elements and operators that generated policies use."""

import re
from collections.abc import Mapping
from typing import Any


def allows(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Return whether a policy allows an action on a resource; an empty resource is that of a trust policy."""
    effects = {
        statement["Effect"]
        for statement in policy["Statement"]
        if _is_about(statement, action, resource)
        and all(
            _holds(operator, context.get(key), expected)
            for operator, keys in statement.get("Condition", {}).items()
            for key, expected in keys.items()
        )
    }
    return effects == {"Allow"}


def _is_about(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    unknown = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
    assert not unknown, f"the evaluator does not know {unknown}"
    places = _texts(statement.get("Resource", ""))
    return any(_matches(pattern, action, re.IGNORECASE) for pattern in _texts(statement["Action"])) and any(
        _matches(pattern, resource) for pattern in places
    )


def _holds(operator: str, value: str | None, expected: object) -> bool:
    match operator:
        case "StringEquals":
            return value is not None and value in _texts(expected)
        case "StringLike":
            return value is not None and any(_matches(pattern, value) for pattern in _texts(expected))
        case "Null":
            return (value is None) == (expected == "true")
        case "ForAllValues:StringEquals":
            return value is None or value in _texts(expected)
    message = f"the evaluator does not know {operator}"
    raise AssertionError(message)


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [*map(str, value)] if isinstance(value, list) else []


def _matches(pattern: str, text: str, flags: int = 0) -> bool:
    """Compare a text with a pattern in which `*` is any text, also with slashes, and `?` any character."""
    words = {"*": ".*", "?": "."}
    parts = (words.get(part) or re.escape(part) for part in re.split("([*?])", pattern))
    return re.fullmatch("".join(parts), text, flags | re.DOTALL) is not None
