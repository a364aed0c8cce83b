"""Reasons for new build keys: the differences between the committed and the current files of an image."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bakehouse.plan import image_lock
from bakehouse.plan.model import Image
from bakehouse.util import file_format
from bakehouse.util.format import format_count
from bakehouse.util.json_reader import parse_json
from bakehouse.util.value_change import ValueChange, value_changes

_COMPONENT = re.compile(rb'org\.bakehouse\.component\.(\S+?)="([^"]*)"')
_ROWS = {
    "python": "Python package",
    "system": "distribution package",
    "archives": "downloaded file",
    "files": "file of the recipe",
}
_MAX_ROWS = 4
"""Maximum differences of one kind that are listed; the others are counted."""


def key_reasons(image: Image, lock: bytes, dockerfile: bytes) -> tuple[str, ...]:
    """Return the differences from a committed lock and Dockerfile; empty without differences or files."""
    if not lock:
        return ()
    try:
        old = dict(parse_json(lock))
        file_format.require_known(old, image_lock.FORMAT)
    except file_format.NewerFormatError:
        return ("a newer Bakehouse wrote its lock.json in that commit",)
    except (ValueError, TypeError):
        return ("its lock.json in that commit is damaged",)
    new = json.loads(image_lock.text(image))
    if old.get("key") == image.recipe_key:
        return ("the training code",)
    code = {file.target for file in image.content.code}
    reasons = [*_components(image, dockerfile)]
    if old.get("base") != new["base"]:
        reasons.append("the base image")
    for section, kind in _ROWS.items():
        before = _rows(old, section)
        if section == "files":
            # Bakehouse 0.1.0 listed training code, too
            before = {name: row for name, row in before.items() if name not in code}
        changes = [*_changes(before, _rows(new, section))]
        many = len(changes) > _MAX_ROWS
        reasons += [format_count(len(changes), kind)] if many else changes
    return tuple(dict.fromkeys(reasons))


def _components(image: Image, dockerfile: bytes) -> Iterator[str]:
    """Return the components whose version or variant differs from the labels of a Dockerfile."""
    labels = {name.decode(): text.decode(errors="replace") for name, text in _COMPONENT.findall(dockerfile)}
    versions = {part.component: part.version_text for part in image.all_parts}
    return (change.words for change in value_changes(labels, versions) if labels)


def _rows(lock: Mapping[str, Any], section: str) -> dict[str, tuple[str, str]]:
    """Return version and sha256 of the rows of a section, by name. Damaged rows are left out."""
    rows = lock.get(section) or ()
    return {
        str(row.get("name") or row.get("file")): (str(row.get("version") or ""), str(row.get("sha256")))
        for row in rows
        if isinstance(row, dict)
    }


def _changes(old: Mapping[str, tuple[str, str]], new: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if before and after and before[0] == after[0]:
            yield f"another file of {name} {after[0]}".rstrip()
        else:
            yield ValueChange(name, before and before[0], after and after[0]).words
