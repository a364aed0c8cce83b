"""Findings in the format SARIF 2.1.0, which code scanning of CI systems reads."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bakehouse import __version__
from bakehouse.errors import BakehouseError, Location
from bakehouse.resolve.phrases import warning_text
from bakehouse.resolve.resolver import Resolution
from bakehouse.util.files import relative_path

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_WARNING = "known-problem"
_SETTINGS = Location(Path("pyproject.toml"), 1, 1)
"""Location of a finding without one: GitHub rejects a file if a finding has no location."""


def text(errors: Sequence[BakehouseError], resolutions: Iterable[Resolution]) -> str:
    """Return errors, and the known problems of resolved images as warnings."""
    results = [
        _result(_rule(error), "error", each.message, each.location, each.hint)
        for error in errors
        for each in error.diagnostics
    ]
    results += [
        _result(_WARNING, "warning", warning_text(*warning, resolution.targets), resolution.recipe.location)
        for resolution in resolutions
        for warning in resolution.warnings
    ]
    rules = [{"id": name} for name in dict.fromkeys(result["ruleId"] for result in results)]
    driver = {"name": "Bakehouse", "semanticVersion": __version__, "rules": rules}
    runs = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=2) + "\n"


def _rule(error: BakehouseError) -> str:
    """Return the kind of an error as the name of a rule, such as `recipe` for RecipeError."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub("(?<!^)(?=[A-Z])", "-", name).lower()


def _result(rule: str, level: str, message: str, spot: Location | None, hint: str = "") -> dict[str, Any]:
    spot = spot if spot and spot.line else _SETTINGS
    region = {"startLine": spot.line, "startColumn": spot.column, "endColumn": spot.column + spot.length}
    place = {"artifactLocation": {"uri": _uri(spot.path)}, "region": region}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": f"{message}; hint: {hint}" if hint else message},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: Path) -> str:
    """Return the URI of a file, relative if it is below the current directory."""
    shown = relative_path(path)
    return shown.as_uri() if shown.is_absolute() else quote(os.fsencode(shown))
