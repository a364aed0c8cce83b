"""Texts that shells, Dockerfiles and pipelines must not interpret."""

import json
from itertools import product

from bakehouse.catalog.project import HOME

_WORDS = json.loads((HOME / "tests" / "support" / "injections.json").read_text(encoding="utf-8"))
PAYLOADS = (
    *(form.format(core) for core, form in product(_WORDS["cores"], _WORDS["forms"])),
    *_WORDS["others"],
    "a" * 3_000,
)
