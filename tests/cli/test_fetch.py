"""The task `fetch`: which images of a pattern it fetches for, and where to."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.cli import fetch
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import UsageError
from bakehouse.plan.model import Image
from tests.build.test_prefetch import ARCHIVE, an_image, artifact, stage


def images(*unknown: str) -> list[Image]:
    found = []
    for name in ("a", "b", "c", "d", "e"):
        content = None if name in unknown else ARCHIVE
        one = an_image(name, stage(name, artifacts=(artifact(content, f"{name}.tgz", "https://x.example"),)))
        found.append(replace(one, name=name))
    return found


def chosen(patterns: Sequence[str], *unknown: str) -> tuple[str, str]:
    found, told = fetch.known(images(*unknown), patterns)
    return " ".join(one.name for one in found), told


def test_a_pattern_leaves_out_what_can_not_be_looked_for() -> None:
    told = "skipped, because files have no checksum: {}; run `bake lock` first\n"
    assert chosen(["*"]) == ("a b c d e", "")
    assert chosen(["*"], "b", "d") == ("a c e", told.format("b, d"))
    assert chosen([], *"abcd") == ("e", told.format("a, b, c and 1 more"))


def test_what_is_named_is_not_left_out() -> None:
    assert chosen(["b", "c*"], "b")[0] == "a b c d e"
    assert chosen(["*"], *"abcde") == ("a b c d e", "")


@pytest.mark.parametrize(("place", "reason"), [("file", "it is a file"), ("file/below", "not a directory")])
def test_a_place_that_takes_no_files_is_refused_first(tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        fetch._writable(tmp_path / place)
    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: cannot write to `{tmp_path}/{place}`: {reason}\n\n"
        "hint: `--to` takes a directory, which is created if needed\n"
    )
