"""Finding out a sha256, and writing it where `unknown` stands."""

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.component import Artifact, ArtifactKind
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BuildError, Location, StaleError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock.checksums import Pinned, PinSources, pin, write_pin
from bakehouse.lock.python import Index
from bakehouse.util.oci import Sha256
from tests.support.apt_configuration import AptConfiguration
from tests.support.wheels import sha256, wheel

YAML = """\
# the part
artifacts:
  source:
    url: http://x.example/part-1.0.tar.gz
    sha256: unknown   # not known
  other: {url: http://x.example/other.tgz, sha256: "unknown"}
"""
CHECKSUM = Sha256("a" * 64)


@pytest.fixture
def component(tmp_path: Path) -> Path:
    path = tmp_path / "component.yaml"
    path.write_text(YAML)
    return path


def location_at(path: Path, line: int = 5, column: int = 13) -> Location:
    return Location(path, line, column, len("unknown"), path.read_text().splitlines()[line - 1])


def artifact(component: Path, source: str, file: str, kind: ArtifactKind = "url") -> Artifact:
    location = location_at(component)
    return Artifact("source", kind, source, file, None, location, size_location=location)


class Pinning:
    """A machine with one mirror directory, and an index without a network."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.messages, self.shared_names = directory, list[str](), set[str]()
        (directory / "mirror").mkdir()

    def __call__(self, *artifacts: Artifact) -> tuple[Pinned, ...]:
        pip = PipConfig(find_links=(str(self.directory / "wheels"),), no_index=True)
        sources = PinSources(
            mirrors=[self.directory / "mirror"],
            cache=self.directory / "store",
            state=self.directory,
            index=Index(pip, None),
            shared_names=self.shared_names,
        )
        return pin(artifacts, sources, write_pin, self.messages.append)


@pytest.fixture
def pinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinning:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Pinning(tmp_path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[str]:
    directory = tmp_path / "published"
    (directory / "pool/main/m/metis").mkdir(parents=True)
    (directory / "part-1.0.tar.gz").write_bytes(b"part")
    (directory / "pool/main/m/metis/metis_5.orig.tar.xz").write_bytes(b"metis")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=directory)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def a_pin(
    component: Path, location: Location, size_place: Location | None, size: int | None = None
) -> Pinned:
    artifact = Artifact("source", "url", "http://x.example/x", "x", None, location, size, size_place)
    return Pinned(artifact, CHECKSUM, 4, "a mirror")


def test_an_empty_file_is_not_recorded(tmp_path: Path, pinning: Pinning, component: Path) -> None:
    (tmp_path / "mirror/part-1.0.tar.gz").touch()

    with pytest.raises(BuildError) as caught:
        pinning(artifact(component, "https://x.example/part-1.0.tar.gz", "part-1.0.tar.gz"))

    [error] = caught.value.diagnostics
    assert error.message == "`part-1.0.tar.gz` is empty"
    assert error.facts == (("found", str(tmp_path / "mirror/part-1.0.tar.gz")),)
    assert component.read_text() == YAML


def test_the_size_gets_a_line_below_the_sha256(component: Path) -> None:
    assert write_pin(a_pin(component, location_at(component), location_at(component)))
    assert component.read_text() == YAML.replace(
        "sha256: unknown   # not known\n", f"sha256: {CHECKSUM}   # not known\n    bytes: 4\n"
    )


def test_a_files_ends_of_lines_stay(component: Path) -> None:
    component.write_bytes(YAML.replace("\n", "\r\n").encode())
    write_pin(a_pin(component, location_at(component), location_at(component)))
    expected = YAML.replace("unknown   # not known", f"{CHECKSUM}   # not known\n    bytes: 4")
    assert component.read_bytes() == expected.replace("\n", "\r\n").encode()


def test_between_braces_the_size_stands_beside_the_sha256(component: Path) -> None:
    location = location_at(component, 6, 52)
    assert not write_pin(a_pin(component, location, location))
    assert component.read_text() == YAML.replace('"unknown"', f"{CHECKSUM}, bytes: 4")


def test_between_braces_on_several_lines_too(component: Path) -> None:
    component.write_text("artifacts:\n  source: {\n    url: http://x.example/a,\n    sha256: unknown\n  }\n")
    location = location_at(component, 4, 13)
    assert not write_pin(a_pin(component, location, location))
    assert component.read_text().splitlines()[3:] == [f"    sha256: {CHECKSUM}, bytes: 4", "  }"]


def test_a_size_that_stands_there_is_not_written_again(component: Path) -> None:
    write_pin(a_pin(component, location_at(component), location_at(component), 4))
    assert component.read_text() == YAML.replace("sha256: unknown ", f"sha256: {CHECKSUM} ")


def test_a_size_that_is_unknown_is_replaced_where_it_stands(component: Path) -> None:
    component.write_text("each:\n  build:\n    - {bytes: unknown, sha256: unknown, python: x}\n")
    write_pin(a_pin(component, location_at(component, 3, 32), location_at(component, 3, 15)))
    assert component.read_text().splitlines()[2] == f"    - {{bytes: 4, sha256: {CHECKSUM}, python: x}}"


def test_a_size_without_a_place_is_left_out(component: Path) -> None:
    write_pin(a_pin(component, location_at(component), None))
    assert component.read_text() == YAML.replace("sha256: unknown ", f"sha256: {CHECKSUM} ")


def test_what_is_pinned_above_others_leaves_them_their_lines(
    pinning: Pinning, component: Path, tmp_path: Path
) -> None:
    for name, content in (("part-1.0.tar.gz", b"part"), ("other.tgz", b"other")):
        (tmp_path / "mirror" / name).write_bytes(content)
    first = artifact(component, "http://x.invalid/part-1.0.tar.gz", "part-1.0.tar.gz")
    location = location_at(component, 6, 52)
    other = replace(first, file="other.tgz", location=location, size_location=location)
    assert [(pin.artifact.file, pin.bytes) for pin in pinning(first, other)] == [
        ("part-1.0.tar.gz", 4),
        ("other.tgz", 5),
    ]
    assert component.read_text() == YAML.replace(
        "unknown   # not known", f"{hashlib.sha256(b'part').hexdigest()}   # not known\n    bytes: 4"
    ).replace('"unknown"', f"{hashlib.sha256(b'other').hexdigest()}, bytes: 5")


def test_a_changed_line_is_kept(component: Path) -> None:
    location = location_at(component)
    component.write_text(YAML.replace("sha256: unknown ", "sha256: unknown  "))
    before = component.read_text()
    with pytest.raises(StaleError) as caught:
        write_pin(a_pin(component, location, location))
    assert component.read_text() == before
    assert failure_text(caught.value.diagnostics[0]).splitlines()[0] == (
        "error: `component.yaml` has changed since it was read; nothing was written"
    )


def test_a_pinned_place_is_not_pinned_again(component: Path) -> None:
    location = location_at(component)
    write_pin(a_pin(component, location, location))
    with pytest.raises(StaleError):
        write_pin(a_pin(component, location, location))


def test_of_files_with_one_name_the_path_of_the_url_decides(
    pinning: Pinning, component: Path, tmp_path: Path, publisher: str
) -> None:
    for path in ("other/part-1.0.tar.gz", "127.0.0.1/x%2Bcu113/part-1.0.tar.gz"):
        (tmp_path / "mirror" / path).parent.mkdir(parents=True)
        (tmp_path / "mirror" / path).write_text(path)
    url = f"{publisher}/x%2Bcu113/part-1.0.tar.gz"
    (pinned,) = pinning(artifact(component, url, "part-1.0.tar.gz"))
    assert pinned.origin.endswith("/mirror/127.0.0.1/x%2Bcu113/part-1.0.tar.gz")

    component.write_text(YAML)
    pinning.shared_names.add("part-1.0.tar.gz")
    url = f"{publisher}/part-1.0.tar.gz"
    (pinned,) = pinning(artifact(component, url, "part-1.0.tar.gz"))
    assert pinned.sha256 == hashlib.sha256(b"part").hexdigest()
    component.write_text(YAML)
    with pytest.raises(BuildError) as raised:
        pinning(artifact(component, f"{publisher}/gone/part-1.0.tar.gz", "part-1.0.tar.gz"))
    hint = "copy the file with the host and path of its URL into a directory and add it to `mirrors`"
    assert raised.value.diagnostics[0].hint == f"{hint} in [tool.bakehouse]"


def test_a_file_in_a_mirror_is_taken_first(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    file = tmp_path / "mirror/part-1.0.tar.gz"
    file.write_bytes(b"mirrored")
    expected = hashlib.sha256(b"mirrored").hexdigest()
    (pinned,) = pinning(artifact(component, "http://x.invalid/part-1.0.tar.gz", "part-1.0.tar.gz"))
    assert (pinned.sha256, pinned.origin) == (expected, str(file))
    assert pinning.messages == [f"part-1.0.tar.gz: sha256:{expected}, 8 bytes, from {file}"]
    assert f"sha256: {expected} " in component.read_text()


def test_a_url_is_fetched(pinning: Pinning, component: Path, publisher: str) -> None:
    url = f"{publisher}/part-1.0.tar.gz"
    (pinned,) = pinning(artifact(component, url, "part-1.0.tar.gz"))
    assert (pinned.sha256, pinned.bytes) == (hashlib.sha256(b"part").hexdigest(), 4)
    assert pinned.origin == f"`{url}`"


def test_a_debian_source_package_is_in_the_pool(
    pinning: Pinning, component: Path, publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AptConfiguration(tmp_path, monkeypatch).suite(publisher, "bookworm")
    (pinned,) = pinning(artifact(component, "metis=5.1.0.dfsg", "metis_5.orig.tar.xz", "debian"))
    assert pinned.sha256 == hashlib.sha256(b"metis").hexdigest()


def test_a_python_package_is_asked_of_the_index(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    file = wheel(tmp_path / "wheels", "six", "1.17.0")
    (pinned,) = pinning(artifact(component, "six==1.17.0", file.name, "pypi"))
    assert (pinned.sha256, pinned.bytes) == (sha256(file), file.stat().st_size)
    assert pinned.origin == "the package index"


def test_a_file_that_the_index_does_not_have(pinning: Pinning, component: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "six", "1.17.0")
    with pytest.raises(BuildError) as caught:
        pinning(artifact(component, "six==1.17.0", "six-1.17.0-cp311-none-any.whl", "pypi"))
    assert (
        failure_text(caught.value.diagnostics[0]).splitlines()[-1] == "  it has  six-1.17.0-py3-none-any.whl"
    )


def test_a_file_that_no_source_has(pinning: Pinning, component: Path, publisher: str) -> None:
    with pytest.raises(BuildError) as caught:
        pinning(artifact(component, f"{publisher}/nothing.tgz", "nothing.tgz"))
    text = failure_text(caught.value.diagnostics[0])
    assert text.startswith("error: `nothing.tgz` is unavailable\n")
    assert f"  because `{publisher}/nothing.tgz` does not have the file\n" in text
    assert text.endswith("hint: copy the file into a directory and add it to `mirrors` in [tool.bakehouse]\n")
    assert component.read_text() == YAML


def test_all_that_is_unavailable_is_reported_and_the_rest_is_written(
    pinning: Pinning, component: Path, publisher: str
) -> None:
    nowhere = artifact(component, f"{publisher}/nothing.tgz", "nothing.tgz")
    other = location_at(component, 6, 53)
    lost = replace(artifact(component, f"{publisher}/lost.tgz", "lost.tgz"), location=other)
    present = artifact(component, f"{publisher}/part-1.0.tar.gz", "part-1.0.tar.gz")
    with pytest.raises(BuildError) as caught:
        pinning(nowhere, lost, present)
    [diagnostic] = caught.value.diagnostics
    assert failure_text(diagnostic) == (
        "error: `nothing.tgz` and 1 other are unavailable\n"
        f"  --> {component}:5:13\n"
        "   |\n"
        " 5 |     sha256: unknown   # not known\n"
        "   |             ^^^^^^^\n"
        f"  because `{publisher}/nothing.tgz` does not have the file\n"
        "  and  lost.tgz\n\n"
        "hint: copy the files into a directory and add it to `mirrors` in [tool.bakehouse]\n"
    )
    assert f"sha256: {hashlib.sha256(b'part').hexdigest()}" in component.read_text()


def test_a_server_that_is_down_is_waited_for_once(pinning: Pinning, component: Path) -> None:
    paths: list[str] = []

    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                paths.append(client.recv(4096).decode().split()[1])
                client.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        at_server = f"http://127.0.0.1:{server.getsockname()[1]}"
        first = artifact(component, f"{at_server}/one.tgz", "one.tgz")
        two = replace(
            artifact(component, f"{at_server}/two.tgz", "two.tgz"), location=location_at(component, 6, 53)
        )
        with pytest.raises(BuildError) as caught:
            pinning(first, two)
        server.shutdown(socket.SHUT_RDWR)
    assert paths == ["/one.tgz"]
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.reasons[0].text == f"`{at_server}/one.tgz` closed the connection"
    assert diagnostic.facts == (("and", "two.tgz"),)


def test_a_file_of_another_size_than_is_written_of_it_is_not_fetched(
    pinning: Pinning, component: Path, publisher: str
) -> None:
    url = f"{publisher}/part-1.0.tar.gz"
    with pytest.raises(BuildError) as caught:
        pinning(replace(artifact(component, url, "part-1.0.tar.gz"), bytes=5))
    text = failure_text(caught.value.diagnostics[0])
    assert f"  because `{url}` has a file of 4 bytes instead of 5\n" in text
    assert component.read_text() == YAML


def test_a_file_of_a_mirror_with_another_size_than_is_written_of_it(
    pinning: Pinning, component: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mirror/part-1.0.tar.gz"
    file.write_bytes(b"mirrored")
    with pytest.raises(BuildError) as caught:
        pinning(replace(artifact(component, "http://x.invalid/part-1.0.tar.gz", file.name), bytes=5))
    assert failure_text(caught.value.diagnostics[0]).splitlines()[0] == (
        "error: `part-1.0.tar.gz` has 8 bytes, but `bytes` is 5"
    )
    assert component.read_text() == YAML


@pytest.fixture
def pinned(component: Path) -> Artifact:
    """An artifact of which only the size is missing."""
    sha256 = Sha256(hashlib.sha256(b"part").hexdigest())
    component.write_text(YAML.replace("sha256: unknown ", f"sha256: {sha256} "))
    return replace(artifact(component, "http://x.invalid/part-1.0.tar.gz", "part-1.0.tar.gz"), sha256=sha256)


@pytest.mark.parametrize("directory", ["mirror", "store/{}"])
def test_the_size_of_a_pinned_file_that_is_here_is_written_down(
    pinning: Pinning, component: Path, pinned: Artifact, tmp_path: Path, directory: str
) -> None:
    file = tmp_path / directory.format(pinned.sha256) / pinned.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"part")
    (pin,) = pinning(pinned)
    assert pin.line == f"part-1.0.tar.gz: 4 bytes, from {file}"
    assert component.read_text().splitlines()[4:6] == [
        f"    sha256: {pinned.sha256}   # not known",
        "    bytes: 4",
    ]


def test_for_a_size_nothing_is_fetched(pinning: Pinning, component: Path, pinned: Artifact) -> None:
    before = component.read_text()
    assert pinning(pinned) == ()
    assert component.read_text() == before


def test_known_checksums_are_kept(pinning: Pinning, component: Path) -> None:
    artifact = Artifact("source", "url", "http://x.invalid/x", "x", CHECKSUM, location_at(component), 1)
    assert pinning(artifact) == ()
