"""A catalogue as it was months before its upstreams were recorded, brought up to date without a person.

`index_recorder.py` made the record of the package index, without wheels of other hosts, such as
PyTorch for CPUs. Records of pages name their source; `page_recorder.py` makes new ones.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.commands.update import update
from tests.commands.update.catalogue_cut import Cut, cut_workspace, missed_fields, newer_than
from tests.commands.update.index_recorder import REPLAYED
from tests.support.file_server import FileServer, serving
from tests.support.index_server import put_index

RECORDED = Path(__file__).with_name("recorded")
OF_PAGES: Cut = {"efa": ("1.47.0", "1.46.0", "1.45.1")}
"""The releases that AWS's user guide lists in the record above the one before."""
BY_HAND = ".variants[cpu-stubs-"
"""Variants of Bakehouse, which no upstream lists."""
USER_GUIDE = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    with serving() as file_server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{file_server.url}/simple")
        yield file_server


@pytest.mark.release
def test_releases_of_the_package_index_are_caught_up(server: FileServer, tmp_path: Path) -> None:
    put_index(server, json.loads((RECORDED / "index.json").read_text()))
    assert_caught_up(tmp_path, REPLAYED, REPLAYED, "", "")


def test_releases_of_a_page_are_caught_up(server: FileServer, tmp_path: Path) -> None:
    server.files["/efa-changelog.html"] = (RECORDED / "pages" / "efa.txt").read_bytes()
    server.files["/efa-verify.html"] = (RECORDED / "pages" / "efa.checksums.txt").read_bytes()
    removed = {"efa": newer_than("efa", "1.45.0")}
    assert_caught_up(tmp_path, removed, OF_PAGES, f"page: {USER_GUIDE}", f"page: {server.url}")


def assert_caught_up(directory: Path, removed: Cut, replayed: Cut, old: str, new: str) -> None:
    """Fail unless at least 90 % of the fields of each component are reached; print the rest."""
    workspace = cut_workspace(directory, removed, lambda text: text.replace(old, new))
    updates = update.run(workspace, list(removed), lambda line: None, write=True)
    assert [failure.diagnostics for each in updates for failure in each.failures] == []
    shares = {}
    for name, versions in replayed.items():
        count, missed = missed_fields(workspace, name, versions)
        by_hand = [field for field in missed if BY_HAND in field]
        missed = [field for field in missed if BY_HAND not in field]
        shares[name] = 1 - len(missed) / (count - len(by_hand))
        print(f"{name}: {shares[name]:.1%} of {count} fields", *missed, sep="\n  ")
    assert min(shares.values()) >= 0.9
