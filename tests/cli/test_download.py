"""`build --download-only`: which images of a pattern it downloads for, and where to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bakehouse.cli import download
from bakehouse.errors import UsageError
from bakehouse.plan.model import Image
from tests.support import plans
from tests.support.errors import refusal
from tests.support.planned_stages import ARCHIVE, an_image, artifact, stage


def images(*unknown: str) -> list[Image]:
    images = []
    for name in ("a", "b", "c", "d", "e"):
        content = None if name in unknown else ARCHIVE
        image = an_image(
            name, stage(name, artifacts=(artifact(content, f"{name}.tgz", "https://x.example"),))
        )
        images.append(plans.changed(image, name=name))
    return images


def selected_names(patterns: Sequence[str], *unknown: str) -> tuple[str, str]:
    selected, note = download.select_fetchable(images(*unknown), patterns)
    return " ".join(image.name for image in selected), note


def test_a_pattern_leaves_out_what_can_not_be_looked_for() -> None:
    message = "skipped, because files have no checksum: {}; run `bake lock` first\n"
    assert selected_names(["*"]) == ("a b c d e", "")
    assert selected_names(["*"], "b", "d") == ("a c e", message.format("b, d"))
    assert selected_names([], *"abcd") == ("e", message.format("a, b, c and 1 more"))


def test_what_is_named_is_not_left_out() -> None:
    assert selected_names(["b", "c*"], "b")[0] == "a b c d e"
    assert selected_names(["*"], *"abcde") == ("a b c d e", "")


@pytest.mark.parametrize(
    ("target", "reason"), [("file", "not a directory"), ("file/below", "not a directory")]
)
def test_a_place_that_takes_no_files_is_refused_first(tmp_path: Path, target: str, reason: str) -> None:
    (tmp_path / "file").touch()
    assert refusal(UsageError, download._writable, tmp_path / target) == (
        f"error: cannot write to `{tmp_path}/{target}`: {reason}\n\n"
        "hint: `--to` takes a directory, which is created if needed\n"
    )
