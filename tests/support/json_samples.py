"""Samples of the JSON reference, and the keys of JSON values."""

import json
import re
from collections.abc import Iterator
from typing import Any

from bakehouse.catalog.project import HOME


def samples() -> Iterator[tuple[str, Any]]:
    """Yield each JSON sample of the page with its heading."""
    text = (HOME / "docs/reference/json.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL):
            yield section.partition("\n")[0], json.loads(block)


SAMPLES = {f"{heading} {number}": value for number, (heading, value) in enumerate(samples())}


def shape(value: object, path: str = "") -> set[str]:
    """Return the paths of all keys; keys that are data, such as names of components, count as `*`."""
    if isinstance(value, list):
        return {item for entry in value for item in shape(entry, f"{path}[]")}
    if isinstance(value, dict):
        if path.endswith((".provides", ".versions", "[].instances")):
            return {f"{path}.*"} if value else set()
        return {path, *(item for key, entry in value.items() for item in shape(entry, f"{path}.{key}"))}
    return {path}


def sample(heading: str, number: int = 0) -> Any:
    """Return a sample of a section."""
    return [value for name, value in SAMPLES.items() if name.startswith(f"{heading} ")][number]
