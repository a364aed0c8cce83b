"""Releases and checksums on pages of vendors, served as `tests/commands/update/recorded/pages` has them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bakehouse.commands.update import update
from bakehouse.commands.update.new_releases import plain
from bakehouse.commands.update.release_draft import read_copy
from bakehouse.commands.update.update import ComponentUpdate
from bakehouse.errors import RecipeError
from bakehouse.plan.workspace import Workspace
from tests.commands.update import page_recorder
from tests.commands.update.catalogue_cut import COMPONENTS, cut_workspace, newer_than
from tests.commands.update.page_recorder import addresses, record
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.file_server import FileServer, serving

PAGES = Path(__file__).with_name("recorded") / "pages"
PROPOSALS = text_of(__file__, "proposals")
UNKNOWN = (
    "it is not known whether the plugin it brings, aws-ofi-nccl 1.17.2, works with NCCL 2.28.9; "
    "its release notes name 2.28.7, and one report has deadlocks"
)
ABOUT = "it is about aws-ofi-nccl 1.17.2, and 1.18.0 is in this release"
SKIPPED = "it hangs, as the known conflict of efa 1.47.0 says"
BY_HAND = """\
aws-dlc-pytorch 2.13.0, released on 2026-07-20; write its entry by hand
  cuda     13.3.0  {url}/aws-dlc-pytorch.txt
  python   3.12    {url}/aws-dlc-pytorch.txt
  nccl     2.30.7  {url}/aws-dlc-pytorch.txt
  efa      1.49.0  {url}/aws-dlc-pytorch.txt
  gdrcopy  2.6     {url}/aws-dlc-pytorch.txt
  reason: names of the images, and the CUDA and NCCL that torch loads, are not on this page
"""
HTML = """\
<!DOCTYPE html>
<html><head><style>td {{ color: red }}</style><script>let version = "9.9.9"</script></head>
<table><tr><td>{version}</td><td><ul><li><p><b>Upgrade to <a href="https://example.org">libfabric
  2.4.0amzn1.0</a></b></p></li><li><p>Fix a bug</p></li></ul></td><td>January 29, 2026</td></tr>
<tr><td>1.46.0</td><td></td><td>December 12, 2025</td></tr></table>
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """Serve the records, as text."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as file_server:
        for path in PAGES.iterdir():
            file_server.files[f"/{path.name}"] = path.read_bytes()
        yield file_server


def cut(
    directory: Path, server: FileServer, name: str, version: str, old: str = "", new: str = ""
) -> Workspace:
    """Return a project whose newest release of a component is a version; its pages are on the server."""

    def change(text: str) -> str:
        for file, url in addresses(read_copy(COMPONENTS / name)).items():
            text = text.replace(f"page: {url}\n", f"page: {server.url}/{file}\n")
        return text.replace(old, new) if old else text

    return cut_workspace(directory, {name: newer_than(name, version)}, change)


def run(workspace: Workspace, *names: str, write: bool = False) -> list[ComponentUpdate]:
    return update.run(workspace, names, lambda line: None, write=write)


def reasons(updates: list[ComponentUpdate]) -> list[str]:
    return [
        reason.text
        for each in updates
        for failure in each.failures
        for diagnostic in failure.diagnostics
        for reason in diagnostic.reasons
    ]


def test_a_page_states_versions_and_another_one_the_checksum(server: FileServer, tmp_path: Path) -> None:
    workspace = cut(tmp_path, server, "efa", "1.46.0")
    expected = PROPOSALS.format(url=server.url, about=ABOUT, unknown=UNKNOWN, skipped=SKIPPED)
    assert update.text(run(workspace, "efa"), written=True) == expected


def test_an_html_page_has_the_same_releases(server: FileServer, tmp_path: Path) -> None:
    workspace = cut(tmp_path, server, "efa", "1.46.0")
    server.files["/efa.txt"] = HTML.format(version="1.47.0").encode()
    [efa] = run(workspace, "efa")
    assert reasons([efa]) == []
    [proposal] = efa.proposals
    assert (proposal.version, proposal.day) == ("1.47.0", "2026-01-29")
    assert "open-mpi is as in 1.46.0: upstream states none for this release" in proposal.checks
    assert ("provides.libfabric", "2.4.0 (was 2.3.1)") in [
        (each.field, each.value) for each in proposal.evidence
    ]


def test_the_text_of_a_page_has_no_markup() -> None:
    assert plain(HTML.format(version="1.47.0")).splitlines() == [
        "1.47.0",
        "Upgrade to libfabric 2.4.0amzn1.0",
        "Fix a bug",
        "January 29, 2026",
        "1.46.0",
        "December 12, 2025",
    ]
    assert plain("1 < 2\n<b>bold</b>") == "1 < 2\n<b>bold</b>"


def test_a_checksum_that_upstream_does_not_state_stays_unknown(server: FileServer, tmp_path: Path) -> None:
    workspace = cut(tmp_path, server, "efa", "1.46.0")
    page = server.files["/efa.checksums.txt"]
    server.files["/efa.checksums.txt"] = page.replace(b"EFA 1.47.0", b"EFA 1.47")
    [efa] = run(workspace, "efa")
    assert reasons([efa]) == []
    [proposal] = efa.proposals
    assert "+         sha256: unknown\n" in proposal.diff
    assert (
        f"the checksum of `installer` is unknown: `{server.url}/efa.checksums.txt` does not state it"
        in proposal.checks
    )


def test_a_checksum_that_upstream_states_now_is_reported(server: FileServer, tmp_path: Path) -> None:
    sha256 = "8302bd7849afb95c903a875d7dcb6f85b3d7629e9a8b67d020031cfc6f4d0ee1"
    workspace = cut(tmp_path, server, "efa", "1.47.0", sha256, "unknown")
    [efa] = run(workspace, "efa")
    assert reasons([efa]) == []
    assert efa.remarks == (f"the checksum of 1.46.0 is unknown here, and upstream states {sha256}",)


def test_releases_without_an_entry_are_named(server: FileServer, tmp_path: Path) -> None:
    updates = run(cut(tmp_path, server, "aws-dlc-pytorch", "2.12.1"), "aws-dlc-pytorch")
    assert update.text(updates, written=False) == BY_HAND.format(url=server.url)


def test_images_of_a_new_cuda_are_proposed_without_digests(server: FileServer, tmp_path: Path) -> None:
    workspace = cut(tmp_path, server, "nvidia-cuda", "13.0.2")
    before = workspace.catalog.components["nvidia-cuda"].releases[0]
    assert before.version == "13.0.2"
    [cuda] = run(workspace, "nvidia-cuda")
    assert reasons([cuda]) == []
    assert [proposal.version for proposal in cuda.proposals] == ["13.1.2", "13.2.1", "13.3.1", "13.4.2"]
    first = cuda.proposals[0]
    assert 'image: "nvidia/cuda:13.1.2-base-ubuntu${ubuntu}"' in first.diff
    assert "build_image: nvidia/cuda:13.1.2-devel-ubuntu${ubuntu}" in first.diff
    assert "13.0.2" not in first.diff.replace("source: ", "")
    assert "sha256:" not in first.diff
    assert "digests of its images are unknown; `bake lock` records them" in first.checks
    assert "its images were not looked up in their registry" in first.checks


def of_other_pages(server: FileServer) -> None:
    server.files["/efa.txt"] = b"<html>sorry</html>"


def endless(server: FileServer) -> None:
    server.redirects["/efa.txt"] = "/efa.txt"


def large(server: FileServer) -> None:
    server.files["/efa.txt"] = b"1.47.0\n" * 10**6


def of_one_checksum(server: FileServer) -> None:
    page = server.files["/efa.checksums.txt"]
    server.files["/efa.checksums.txt"] = page.replace(b"SHA256: f129", b"SHA256: 0129")


def of_two_checksums(server: FileServer) -> None:
    server.files["/efa.checksums.txt"] += f"EFA 1.47.0\nSHA256: {'1' * 64}\n".encode()


HOSTILE: dict[str, tuple[Callable[[FileServer], object], str]] = {
    "HTML error page": (of_other_pages, "efa.txt`: lists none of the releases that the catalogue has"),
    "endless redirect": (endless, "efa.txt`: redirects too often"),
    "oversized page": (large, "efa.txt`: answered with more than 4.0 MB"),
    "other checksum of a known release": (
        of_one_checksum,
        "efa.checksums.txt`: states another checksum of 1.44.0 than this component has",
    ),
    "two checksums": (of_two_checksums, "efa.checksums.txt`: states two checksums of 1.47.0"),
    "checksums are missing": (
        lambda server: server.files.pop("/efa.checksums.txt"),
        "efa.checksums.txt`: does not have the file",
    ),
}


@pytest.mark.parametrize("answer", list(HOSTILE))
def test_an_unusable_page_changes_nothing(server: FileServer, tmp_path: Path, answer: str) -> None:
    workspace = cut(tmp_path, server, "efa", "1.46.0")
    spoil, reason = HOSTILE[answer]
    spoil(server)
    path = tmp_path / "recipes" / "components" / "efa" / "component.yaml"
    before = path.read_bytes()
    assert reasons(run(workspace, "efa", write=True)) == [f"`{server.url}/{reason}"]
    assert path.read_bytes() == before


def test_pages_are_recorded_as_text(server: FileServer, tmp_path: Path) -> None:
    workspace = cut(tmp_path / "project", server, "efa", "1.47.0")
    server.files["/efa.txt"] = HTML.format(version="1.47.0").encode()
    del server.files["/efa.checksums.txt"]
    (tmp_path / "efa.checksums.txt").write_text("before")
    record([workspace.catalog.components["efa"]], page_recorder.downloads(), tmp_path)
    assert (tmp_path / "efa.txt").read_text().startswith(f"From {server.url}/efa.txt\n1.47.0\nUpgrade to")
    assert (tmp_path / "efa.checksums.txt").read_text() == "before"


@pytest.mark.parametrize(
    ("upstream", "message"),
    [
        ("{page: no-address, pattern: 'V'}", "`no-address` is not a URL"),
        (
            "{page: 'https://x', pattern: '.'}",
            "`pattern` is not a regular expression with a group `version`",
        ),
        ("{git: 'https://x', notes: 'https://x/1'}", "`https://x/1` does not contain `{version}`"),
        ("{git: 'https://x', notes: '{version}'}", "`{version}` is not a URL"),
        ("{page: 'https://x', pattern: 'V', date: '('}", "`date` is not a regular expression"),
        (
            "{page: 'https://x', pattern: 'V', provides: {a: b}}",
            "`provides` is not a regular expression with a group `version`",
        ),
        (
            "{page: 'https://x', pattern: 'V', checksums: {page: 'https://y', pattern: 'V'}}",
            "`pattern` is not a regular expression with a group `sha256`",
        ),
        (
            "{page: 'https://x', pattern: 'V', checksums: {page: 'https://y'}}",
            "`checksums` has no `pattern`",
        ),
    ],
)
def test_mistakes_in_upstream_are_reported(tmp_path: Path, upstream: str, message: str) -> None:
    releases = 'releases: [{version: "1.0", source: "https://example.org/x"}]'
    directory = tmp_path / "sample"
    directory.mkdir()
    text = f"summary: A\nupstream: {upstream}\n{releases}\n".replace("V", "(?P<version>.)")
    (directory / "component.yaml").write_text(text)
    assert [each.message for each in raised(RecipeError, read_copy, directory).diagnostics] == [message]
