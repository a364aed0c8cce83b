"""Texts that shells, Dockerfiles and pipelines must not interpret."""

import json
from itertools import cycle, product

import pytest

from bakehouse.catalog.project import HOME

_WORDS = json.loads((HOME / "tests" / "support" / "injections.json").read_text(encoding="utf-8"))
PAYLOADS = (
    *(form.format(core) for core, form in product(_WORDS["cores"], _WORDS["forms"])),
    *_WORDS["others"],
    "a" * 3_000,
)
_SHORT_FORM = (
    *(form.format(core) for core, form in zip(cycle(_WORDS["cores"]), _WORDS["forms"], strict=False)),
    *PAYLOADS[len(_WORDS["cores"]) * len(_WORDS["forms"]) :],
)
"""Each core, each form and all others, but not each core in each form."""
each_payload = pytest.mark.parametrize(
    "payloads", [_SHORT_FORM, pytest.param(PAYLOADS, marks=pytest.mark.release)], ids=["short", "all"]
)
"""Parametrize a campaign, of which `./bake test --release` runs all."""
