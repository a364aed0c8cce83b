"""Inputs of apt from a lock, and differences of its result from the lock."""

from pathlib import Path

import pytest

from bakehouse.catalog.apt_lock import Deb, deb_of, stanzas, written
from bakehouse.errors import ConflictError, RecipeError
from bakehouse.lock.apt import (
    UnknownPackages,
    locate_unknown_packages,
    locked_fields,
    merged_versions,
    package_changes,
    preferences,
    unknown_packages,
)
from tests.support.errors import error_text
from tests.support.locked_debian import index, stanza
from tests.support.trees import IMAGE, Tree


def debs(text: str) -> dict[str, Deb]:
    packages = [deb_of(fields) for _, fields in stanzas(text)]
    return {deb.name: deb for deb in packages if deb}


def test_a_version_that_a_list_names_is_taken_by_all_others() -> None:
    locked = debs(stanza("gcc", {"Version": "12"}) + "\n" + stanza("vim", {"Version": "9"}))
    assert preferences(locked.values(), [("curl", "vim=8"), ("vim",)]) == (
        "Package: gcc\nPin: version 12\nPin-Priority: 1001\n\n"
        "Package: vim\nPin: version 8\nPin-Priority: 1001\n"
    )


def test_apt_is_given_the_packages_that_are_kept_and_no_others(tmp_path: Path) -> None:
    lock = tmp_path / "sid.packages"
    lock.write_text(f"# made\n\n{index()}")
    gcc = debs(index())["gcc"]
    assert [fields["Package"] for fields in locked_fields([gcc], [lock])] == ["gcc"]


def test_what_a_package_does_not_go_with_stays_in_a_lock() -> None:
    fields = {"Breaks": "plugin (<< 2)", "Conflicts": "other", "Replaces": "old", "Maintainer": "a test"}
    [(_, stored)] = stanzas(written([dict(line) for _, line in stanzas(stanza("gcc", fields))]))
    assert {name: stored[name] for name in fields if name in stored} == {
        "Breaks": "plugin (<< 2)",
        "Conflicts": "other",
        "Replaces": "old",
    }


def test_other_bytes_under_one_version_are_a_change() -> None:
    before = debs(stanza("gcc", {}) + "\n" + stanza("vim", {}))
    after = {name: fields for _, fields in stanzas(index()) for name in [fields["Package"]]}
    changes = package_changes(before, {"gcc": after["gcc"], "vim": {**after["gcc"], "SHA256": "0d" * 32}})
    assert [change.text for change in changes] == ["vim 1.0 -> 1.0 (other bytes)"]


def test_two_lists_with_one_package_in_two_versions_are_refused() -> None:
    assert merged_versions("sid", [{"vim": "1", "gcc": "2"}, {"vim": "1"}]) == {"vim": "1", "gcc": "2"}
    with pytest.raises(ConflictError) as caught:
        merged_versions("sid", [{"vim": "1"}, {"vim": "2"}])
    assert error_text(caught.value) == (
        "error: steps on Debian sid need `vim` in two versions, 1 and 2\n\n"
        "hint: a lock holds one version of each package: `packages` of all images must agree on that suite\n"
    )


def test_unknown_packages_are_reported_at_their_lines(tree: Tree) -> None:
    output = (
        "Reading package lists...\n"
        "E: Unable to locate package jqq\n"
        "E: Package 'awk' has no installation candidate\n"
        "E: Version '9' for 'vim' was not found\n"
    )
    tree.image(IMAGE + "packages: [curl, jqq,\n  vim=9]\n")
    unknown = UnknownPackages(unknown_packages(output), ["curl", "jq", "vim"])
    with (
        pytest.raises(RecipeError) as caught,
        locate_unknown_packages("Debian `sid`", tree.recipes().values(), ()),
    ):
        raise unknown

    assert unknown.requests == ("jqq", "awk", "vim=9")
    assert [
        (each.message, each.location and (each.location.line, each.location.column), each.hint)
        for each in caught.value.diagnostics
    ] == [
        ("Debian `sid` has no package `awk`", None, ""),
        ("Debian `sid` has no package `jqq`", (5, 18), "did you mean `jq`?"),
        ("`vim` has no version `9` in Debian `sid`", (6, 3), ""),
    ]
