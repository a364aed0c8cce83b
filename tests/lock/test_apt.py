"""Inputs and outputs of apt in a base, and differences of its result from the lock."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from bakehouse.catalog.apt_lock import Deb, deb_of, stanzas, written
from bakehouse.errors import BakehouseError, BuildError, ConflictError, Diagnostic, RecipeError
from bakehouse.fetch.connection import ConnectionSettings
from bakehouse.fetch.debian_mirrors import AptSource, DebianMirrors
from bakehouse.fetch.http_client import HttpClient
from bakehouse.lock.apt import (
    AptMachine,
    UnknownPackages,
    files_for,
    locate_unknown_packages,
    locked_fields,
    merged_versions,
    package_changes,
    preferences,
    read_output,
    resolve,
    unknown_packages,
)
from tests.support.apt_configuration import AptConfiguration
from tests.support.errors import raised, refusal
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
    assert refusal(ConflictError, merged_versions, "sid", [{"vim": "1"}, {"vim": "2"}]) == (
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


STEPS = """\
Reading package lists...
Inst vim (9 Debian:12/stable [amd64])
Inst gcc [4] (12 Debian:12/stable [amd64]) []
Conf vim (9 Debian:12/stable [amd64])
"""


def test_apt_gets_indexes_lists_and_a_machine_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AptConfiguration(tmp_path, monkeypatch).settings(
        'Acquire::http::Proxy "http://user:word@proxy.example";\nAcquire::Check-Valid-Until "false";\n'
    )
    sources = [AptSource("Debian", "https://user:word@mirror.example", "sid", ("main", "contrib"))]
    kept = [dict(fields) for _, fields in stanzas(stanza("gcc", {}))]
    files = files_for(sources, [("vim",), ("curl", "jq")], kept, "Package: x\n", "arm64")
    assert files["sources.list"] == (
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "file:@INPUT@/mirrors/0 sid main contrib\n"
        "deb [trusted=yes] copy:@INPUT@/kept ./\n"
    )
    assert files["lists"] == (
        "?essential ?priority(required) apt vim\n?essential ?priority(required) apt curl jq\n"
    )
    conf = str(files["apt.conf"])
    assert 'Acquire::Check-Valid-Until "false";' in conf
    assert 'APT::Architecture "arm64";' in conf
    assert not any("user:word" in str(text) for text in files.values())
    assert "kept ./" not in str(files_for(sources, [], [], "", "amd64")["sources.list"])


def test_packages_are_described_as_apt_would_install_them() -> None:
    both = stanza("vim", {"Version": "9"}) + "\n" + stanza("vim", {"Version": "9", "SHA256": "0d" * 32})
    index = "\n".join([both, stanza("vim", {"Version": "8"}), stanza("gcc", {"Version": "12"})])
    output = {"1.steps": STEPS, "packages": index}
    packages = read_output("sid", output, {})
    assert {name: fields["Version"] for name, fields in packages.items()} == {"vim": "9", "gcc": "12"}
    assert packages["vim"]["SHA256"] != "0d" * 32
    locked = debs(stanza("vim", {"Version": "9", "SHA256": "0d" * 32}))
    assert read_output("sid", output, locked)["vim"]["SHA256"] == "0d" * 32


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (
            "update",
            "apt rejects the index of a Debian mirror of `sid`",
            "use a mirror that is a complete copy of Debian, signed with Debian's keys",
        ),
        (
            "install",
            "these Debian packages do not fit together",
            "run `bake lock --upgrade` to lock all packages again",
        ),
    ],
)
def test_apt_that_fails_shows_its_reason(command: str, message: str, hint: str) -> None:
    error = raised(BakehouseError, read_output, "sid", {"failed": f"{command}\n", "log": "E: a reason\n"}, {})
    assert error.diagnostics == (Diagnostic(message, tail=("E: a reason",), hint=hint),)


def test_unknown_packages_come_with_the_known_ones() -> None:
    output = {"failed": "install\n", "log": "E: Unable to locate package jqq\n", "names": "jq\nvim\n"}
    error = raised(UnknownPackages, read_output, "sid", output, {})
    assert (error.requests, error.known) == (("jqq",), ["jq", "vim"])


def test_a_suite_without_a_mirror_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AptConfiguration(tmp_path, monkeypatch)
    mirrors = DebianMirrors(HttpClient(ConnectionSettings()))
    with pytest.raises(BuildError) as caught:
        resolve("sid", [], None, AptMachine(mirrors, lambda: lambda files: {}, tmp_path))
    assert caught.value.diagnostics == (
        Diagnostic(
            "no Debian mirror has `sid`",
            hint="check `debian_mirrors` in [tool.bakehouse], proxies and the network",
        ),
    )


def test_the_indexes_of_the_mirrors_reach_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AptConfiguration(tmp_path, monkeypatch)
    suite = tmp_path / "archive/dists/sid"
    packages = suite / "main/binary-amd64/Packages"
    packages.parent.mkdir(parents=True)
    packages.write_text(index())
    (suite / "InRelease").write_text(
        f"Origin: Debian\nLabel: Debian\nSHA256:\n {'0d' * 32} 1 main/binary-amd64/Packages\n"
    )
    received: list[Mapping[str, str | bytes]] = []

    def run(files: Mapping[str, str | bytes]) -> Mapping[str, str]:
        received.append(files)
        return {"1.steps": "Inst gcc (1.0 Debian [amd64])\n", "packages": index()}

    uri = (tmp_path / "archive").as_uri()
    mirrors = DebianMirrors(HttpClient(ConnectionSettings()), (uri,))
    machine = AptMachine(mirrors, lambda: run, tmp_path)
    # A guessed suite that the mirror does not have is left out
    resolve("sid", [("gcc",)], None, machine)
    assert "sid-updates" not in str(received.pop()["sources.list"])
    shutil.copytree(suite, tmp_path / "archive/dists/sid-updates")
    resolved = resolve("sid", [("gcc",)], None, machine)
    [files] = received
    assert "sid-updates" in str(files["sources.list"])
    assert files["mirrors/0/dists/sid/main/binary-amd64/Packages"] == index().encode()
    assert files["mirrors/1/dists/sid-updates/InRelease"] == (suite / "InRelease").read_bytes()
    assert [*resolved.packages] == ["gcc"]
