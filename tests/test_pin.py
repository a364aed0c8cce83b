"""Finding out a sha256, and writing it where `unknown` stands."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bakehouse.component import Artifact, ArtifactKind
from bakehouse.errors import BuildError, Location, StaleError
from bakehouse.pin import Pinned, pin, write_pin
from bakehouse.pipconfig import PipConfig
from bakehouse.plan import Sha256
from bakehouse.pylock import Index
from bakehouse.report import failure_text
from tests.fake_commands import put
from tests.wheels import sha256, wheel

YAML = """\
# the part
artifacts:
  source:
    url: http://x.example/part-1.0.tar.gz
    sha256: unknown   # nobody knows
  other: {url: http://x.example/other.tgz, sha256: "unknown"}
"""
KNOWN = Sha256("a" * 64)


@pytest.fixture
def component(tmp_path: Path) -> Path:
    path = tmp_path / "component.yaml"
    path.write_text(YAML)
    return path


def at(path: Path, line: int = 5, column: int = 13) -> Location:
    return Location(path, line, column, len("unknown"), path.read_text().splitlines()[line - 1])


def artifact(component: Path, source: str, file: str, kind: ArtifactKind = "url") -> Artifact:
    return Artifact("source", kind, source, file, None, at(component))


class Pinning:
    """A machine with one mirror folder, and an index without a network."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        (folder / "mirror").mkdir()

    def __call__(self, *artifacts: Artifact) -> tuple[Pinned, ...]:
        pip = PipConfig(find_links=(str(self.folder / "wheels"),), no_index=True)
        mirrors = [self.folder / "mirror"]
        return pin(
            artifacts, mirrors=mirrors, state=self.folder, index=Index(pip, None), say=self.said.append
        )


@pytest.fixture
def pinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinning:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Pinning(tmp_path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "published"
    (folder / "pool/main/m/metis").mkdir(parents=True)
    (folder / "part-1.0.tar.gz").write_bytes(b"part")
    (folder / "pool/main/m/metis/metis_5.orig.tar.xz").write_bytes(b"metis")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_only_the_word_unknown_is_replaced(component: Path) -> None:
    write_pin(at(component), KNOWN)
    assert component.read_text() == YAML.replace("sha256: unknown ", f"sha256: {KNOWN} ")


def test_a_quoted_unknown_goes_with_its_quotes(component: Path) -> None:
    write_pin(at(component, 6, 52), KNOWN)
    assert component.read_text() == YAML.replace('"unknown"', KNOWN)


def test_a_line_that_has_changed_is_left_alone(component: Path) -> None:
    place = at(component)
    component.write_text(YAML.replace("sha256: unknown ", "sha256: unknown  "))
    before = component.read_text()
    with pytest.raises(StaleError) as caught:
        write_pin(place, KNOWN)
    assert component.read_text() == before
    assert failure_text(caught.value.diagnostics[0]).splitlines()[0] == (
        "error: `component.yaml` has changed since it was read: nothing was written"
    )


def test_a_pinned_place_is_not_pinned_again(component: Path) -> None:
    place = at(component)
    write_pin(place, KNOWN)
    with pytest.raises(StaleError):
        write_pin(place, Sha256("b" * 64))


def test_a_file_in_a_mirror_is_taken_first(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    file = tmp_path / "mirror/part-1.0.tar.gz"
    file.write_bytes(b"mirrored")
    expected = hashlib.sha256(b"mirrored").hexdigest()
    (pinned,) = pinning(artifact(component, "http://x.invalid/part-1.0.tar.gz", "part-1.0.tar.gz"))
    assert (pinned.sha256, pinned.origin) == (expected, str(file))
    assert pinning.said == [f"part-1.0.tar.gz: sha256 {expected}, from {file}"]
    assert f"sha256: {expected} " in component.read_text()


def test_a_url_is_fetched(pinning: Pinning, component: Path, publisher: str) -> None:
    url = f"{publisher}/part-1.0.tar.gz"
    (pinned,) = pinning(artifact(component, url, "part-1.0.tar.gz"))
    assert (pinned.sha256, pinned.origin) == (hashlib.sha256(b"part").hexdigest(), f"`{url}`")


def test_a_debian_source_package_lies_in_the_pool(
    pinning: Pinning, component: Path, publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, apt_get=f"echo 'Debian|Debian|{publisher}|bookworm|main'")
    (pinned,) = pinning(artifact(component, "metis=5.1.0.dfsg", "metis_5.orig.tar.xz", "debian"))
    assert pinned.sha256 == hashlib.sha256(b"metis").hexdigest()


def test_a_python_package_is_asked_of_the_index(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    file = wheel(tmp_path / "wheels", "six", "1.17.0")
    (pinned,) = pinning(artifact(component, "six==1.17.0", file.name, "pypi"))
    assert (pinned.sha256, pinned.origin) == (sha256(file), "the package index")


def test_a_file_that_the_index_does_not_have(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "six", "1.17.0")
    with pytest.raises(BuildError) as caught:
        pinning(artifact(component, "six==1.17.0", "six-1.17.0-cp311-none-any.whl", "pypi"))
    assert (
        failure_text(caught.value.diagnostics[0]).splitlines()[-1] == "  it has  six-1.17.0-py3-none-any.whl"
    )


def test_a_file_that_nobody_has(pinning: Pinning, component: Path, publisher: str) -> None:
    with pytest.raises(BuildError) as caught:
        pinning(artifact(component, f"{publisher}/nothing.tgz", "nothing.tgz"))
    said = failure_text(caught.value.diagnostics[0])
    assert said.startswith("error: `nothing.tgz` can't be had\n")
    assert f"  because `{publisher}/nothing.tgz` does not have it\n" in said
    assert said.endswith("hint: put the file into a folder and name that in `mirrors` of [tool.bakehouse]\n")
    assert component.read_text() == YAML


def test_what_is_known_is_left_alone(pinning: Pinning, component: Path) -> None:
    known = Artifact("source", "url", "http://x.invalid/x", "x", KNOWN, at(component))
    assert pinning(known) == ()
