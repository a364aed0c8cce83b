"""Layers that should be the same, and the files where they are not."""

import io
from dataclasses import replace

import pytest

from bakehouse.maintain import layer_diff
from bakehouse.maintain.layer_diff import EntryDifference, LayerEntry
from tests.support.layer_archives import Member, layer

FILE = Member("opt/made", b"first")


def entries(*members: Member) -> dict[str, LayerEntry]:
    return layer_diff.read(io.BytesIO(layer(*members)))


def test_equal_layers_do_not_differ() -> None:
    members = (FILE, Member("opt/link", link="made"), Member("opt", directory=True))

    assert layer_diff.differences(entries(*members), entries(*members)) == ()


@pytest.mark.parametrize(
    ("other", "aspect"),
    [
        (replace(FILE, content=b"other"), "content a7937b64b8ca and d9298a10d1b0, 5 bytes"),
        (replace(FILE, content=b"more"), "content a7937b64b8ca and 187897ce0afc, 5 and 4 bytes"),
        (replace(FILE, mode=0o755), "mode 0644 and 0755"),
        (replace(FILE, mtime=86400), "time 1970-01-01 00:00:00 and 1970-01-02 00:00:00"),
        (replace(FILE, uid=1000), "owner 0:0 and 1000:0"),
        (Member("opt/made", link="elsewhere"), "file and symbolic link"),
    ],
)
def test_what_differs_of_a_file_is_reported(other: Member, aspect: str) -> None:
    (difference,) = layer_diff.differences(entries(FILE), entries(other))

    assert difference.path == "/opt/made"
    assert aspect in difference.aspects


def test_only_another_content_makes_a_file_worth_looking_into() -> None:
    (content,) = layer_diff.differences(entries(FILE), entries(replace(FILE, content=b"other")))
    (mode,) = layer_diff.differences(entries(FILE), entries(replace(FILE, mode=0o755)))

    assert content.has_other_content
    assert not mode.has_other_content


def test_a_link_that_leads_elsewhere_is_reported() -> None:
    first, second = Member("opt/link", link="one"), Member("opt/link", link="other")

    (difference,) = layer_diff.differences(entries(first), entries(second))

    assert difference == EntryDifference("/opt/link", ("link to one and other",))


def test_a_file_that_only_one_has_is_reported() -> None:
    both = layer_diff.differences(entries(FILE, Member("a")), entries(FILE, Member("b")))

    assert both == (
        EntryDifference("/a", ("only in the first",)),
        EntryDifference("/b", ("only in the second",)),
    )


def test_another_order_is_reported_at_its_first_file() -> None:
    differences = layer_diff.differences(entries(Member("a"), FILE), entries(FILE, Member("a")))

    assert differences == (EntryDifference("/a", ("another position in the archive",)),)
