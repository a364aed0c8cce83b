"""The page: one HTML file without requests to the network. The same content gives the same bytes."""

import hashlib
import json
from base64 import b64encode
from dataclasses import fields
from typing import Any

from bakehouse.catalog.project import HOME
from bakehouse.commands.report.fleet import Fleet
from bakehouse.plan.sandbox import sandbox
from bakehouse.util.files import read_text

_TEMPLATES = HOME / "templates/report"
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""Characters that could end the script element, as JSON writes them."""
FILTERS = {"framework": "Framework", "cuda": "CUDA", "python": "Python", "purpose": "Purpose", "run": "Built"}


def render(fleet: Fleet) -> bytes:
    """Return the page."""
    import jinja2

    environment = sandbox(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True)
    style, script = (read_text(_TEMPLATES / name) for name in ("page.css", "page.js"))
    text = environment.get_template("page.html.j2").render(
        fleet=fleet,
        filters={key: (title, _values(fleet, key)) for key, title in FILTERS.items()},
        policy=policy(style, script),
        style=style,
        script=script,
        data=_json(fleet),
    )
    # A ledger may contain half of a surrogate pair
    return text.encode("utf-8", "xmlcharrefreplace")


def policy(style: str, script: str) -> str:
    """Return the Content Security Policy: only this style and this script, and no requests."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _values(fleet: Fleet, key: str) -> list[str]:
    return sorted({image.facets[key] for image in fleet.images if key in image.facets}, key=_natural)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which 3.9 comes before 3.10, and `none` last."""
    return [(int(part), "") if part.isdigit() else (1 << 30, part) for part in text.split(".")]


def _json(fleet: Fleet) -> str:
    text = json.dumps(fleet, default=_fields, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _fields(value: Any) -> dict[str, Any]:
    # The slots of a class leave out those of its bases
    return {field.name: getattr(value, field.name) for field in fields(value)}
