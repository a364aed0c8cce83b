"""Mirrors of Debian: from the settings, from apt's configuration, and Debian's own; and their indexes."""

import gzip
import hashlib
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BuildError
from bakehouse.fetch import debian_mirrors as module
from bakehouse.fetch.connection import ConnectionSettings, Proxies
from bakehouse.fetch.debian_mirrors import SECURITY, AptSource, DebianMirrors, apt_connection
from bakehouse.fetch.http_client import HttpClient
from tests.support.apt_configuration import AptConfiguration
from tests.support.errors import refusal
from tests.support.file_server import FileServer, serving

PACKAGES = b"Package: one\nVersion: 1\n"


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptConfiguration:
    return AptConfiguration(tmp_path, monkeypatch)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as server:
        yield server


def mirrors(*named: str) -> DebianMirrors:
    return DebianMirrors(HttpClient(ConnectionSettings(Proxies())), named)


def has_suite(
    server: FileServer, root: str, suite: str, label: str = "Debian", origin: str = "Debian"
) -> None:
    text = f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: {origin}\nLabel: {label}\n"
    server.files[f"{root}/dists/{suite}/InRelease"] = text.encode()


def lines(mirrors: DebianMirrors, suite: str) -> list[str]:
    return [source.line for source in mirrors.for_suite(suite)]


def test_a_suite_with_its_updates_and_security_updates(apt: AptConfiguration) -> None:
    apt.suite("http://vendor.example/debian", "bookworm", "vendor", "Vendor")
    apt.suite("http://mirror.example/debian", "bookworm")
    apt.suite("http://user:word@mirror.example/debian-security/", "bookworm-security", SECURITY)
    assert lines(mirrors(), "bookworm") == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
        "deb http://user:word@mirror.example/debian-security bookworm-security main",
    ]
    assert mirrors().roots() == (
        "http://mirror.example/debian",
        "http://user:word@mirror.example/debian-security",
    )
    assert [(source.url, source.suite) for source in mirrors().sources()] == [
        ("http://mirror.example/debian", "bookworm"),
        ("http://user:word@mirror.example/debian-security", "bookworm-security"),
    ]


def test_a_machine_of_another_release_lends_its_mirrors(apt: AptConfiguration) -> None:
    apt.suite("http://mirror.example/debian", "bookworm")
    apt.suite("http://mirror.example/debian-security", "bookworm-security", SECURITY)
    assert lines(mirrors(), "trixie") == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/debian-security trixie-security main",
    ]


def test_a_fresh_container_has_no_release_files_and_asks_the_mirror(
    apt: AptConfiguration, server: FileServer
) -> None:
    (apt.directory / "sources.list").write_text(
        f"deb {server.url}/debian bookworm main contrib\ndeb {server.url}/ubuntu noble main\n"
        f"deb {server.url}/gone bookworm main\n"
    )
    has_suite(server, "/debian", "bookworm")
    has_suite(server, "/ubuntu", "noble", "Ubuntu", "Ubuntu")
    asked = mirrors()
    assert lines(asked, "bookworm") == [
        f"deb {server.url}/debian bookworm main contrib",
        f"deb {server.url}/debian bookworm-updates main",
    ]
    assert asked.failures == {}


def test_another_distribution_has_debians_own_mirrors(
    apt: AptConfiguration, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt.suite("http://mirror.example/ubuntu", "noble", "Ubuntu", "Ubuntu")
    monkeypatch.setattr(module, "_debians_own", lambda: (f"{server.url}/debian", f"{server.url}/security"))
    has_suite(server, "/debian", "bookworm")
    has_suite(server, "/security", "bookworm-security", SECURITY)
    has_suite(server, "/debian", "stable")
    assert lines(mirrors(), "bookworm") == [
        f"deb {server.url}/debian bookworm main",
        f"deb {server.url}/debian bookworm-updates main",
        f"deb {server.url}/security bookworm-security main",
    ]
    assert mirrors().roots() == (f"{server.url}/debian", f"{server.url}/security")
    assert mirrors().sources() == (AptSource("Debian", f"{server.url}/debian", "stable", ("main",)),)


def test_debians_own_mirrors_are_those_of_packageurl() -> None:
    first, second = module._debians_own()
    assert first.startswith("https://")
    assert second == f"{first}-security"


def test_mirrors_of_the_settings_replace_those_of_apt(apt: AptConfiguration, tmp_path: Path) -> None:
    apt.suite("http://mirror.example/debian", "bookworm")
    archive = tmp_path / "my archive"
    (archive / "dists/bookworm").mkdir(parents=True)
    (archive / "dists/bookworm/InRelease").write_text("Origin: Debian\nLabel: Debian\n")
    named = mirrors(archive.as_uri())
    assert lines(named, "bookworm") == [
        f"deb {archive.as_uri()} bookworm main",
        f"deb {archive.as_uri()} bookworm-updates main",
    ]
    assert named.roots() == (archive.as_uri(),)
    assert mirrors("file:///nowhere").for_suite("bookworm") == ()


def test_mirrors_that_do_not_answer_are_the_reason(apt: AptConfiguration) -> None:
    named = mirrors("http://ada:secret@127.0.0.1:1/debian", "https://mirror.example:x/")
    assert named.for_suite("bookworm") == ()
    assert failure_text(named.none_for("bookworm")) == (
        "error: no Debian mirror has `bookworm`\n"
        "  because http://127.0.0.1:1/debian: is unreachable: connection refused\n"
        "  and https://…: its URL is invalid\n\n"
        "hint: check `debian_mirrors` in [tool.bakehouse], proxies and the network\n"
    )


def release(files: dict[str, bytes], more: str = "") -> bytes:
    sums = "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {path}\n" for path, data in files.items()
    )
    return f"Origin: Debian\n{more}MD5Sum:\n 0 1 main/binary-amd64/Packages\nSHA256:\n{sums}".encode()


def index(server: FileServer, to: Path, architecture: str = "amd64") -> dict[str, bytes]:
    source = AptSource("Debian", f"{server.url}/debian", "sid", ("main",))
    mirrors().download_index(source, architecture, to)
    return {path.relative_to(to).as_posix(): path.read_bytes() for path in to.rglob("*") if path.is_file()}


def test_the_smallest_index_is_downloaded(server: FileServer, tmp_path: Path) -> None:
    plain = "main/binary-amd64/Packages"
    files = {plain: PACKAGES, f"{plain}.gz": gzip.compress(PACKAGES), f"{plain}.xz": lzma.compress(PACKAGES)}
    server.files |= {f"/debian/dists/sid/{path}": data for path, data in files.items()}
    server.files["/debian/dists/sid/InRelease"] = release(files)
    assert index(server, tmp_path) == {
        "dists/sid/InRelease": release(files),
        f"dists/sid/{plain}.xz": files[f"{plain}.xz"],
    }


def test_an_index_by_its_hash_is_of_the_same_moment(server: FileServer, tmp_path: Path) -> None:
    files = {"main/binary-arm64/Packages.gz": gzip.compress(PACKAGES)}
    [(path, data)] = files.items()
    server.files["/debian/dists/sid/InRelease"] = text = release(files, "Acquire-By-Hash: yes\n")
    place = f"main/binary-arm64/by-hash/SHA256/{hashlib.sha256(data).hexdigest()}"
    server.files[f"/debian/dists/sid/{place}"] = data
    assert index(server, tmp_path, "arm64") == {"dists/sid/InRelease": text, f"dists/sid/{path}": data}


def test_an_archive_with_a_separate_signature(server: FileServer, tmp_path: Path) -> None:
    files = {"main/binary-amd64/Packages": PACKAGES}
    server.files["/debian/dists/sid/Release"] = release(files)
    server.files["/debian/dists/sid/Release.gpg"] = b"a signature"
    server.files["/debian/dists/sid/main/binary-amd64/Packages"] = PACKAGES
    assert {*index(server, tmp_path)} == {
        "dists/sid/Release",
        "dists/sid/Release.gpg",
        "dists/sid/main/binary-amd64/Packages",
    }


def test_an_index_that_is_missing_is_named(server: FileServer, tmp_path: Path) -> None:
    server.files["/debian/dists/sid/InRelease"] = release({"main/binary-amd64/Packages": PACKAGES})
    assert refusal(BuildError, index, server, tmp_path, "arm64") == (
        "error: a Debian mirror cannot be read\n"
        f"  because {server.url}/debian: has no index of sid main for arm64\n\n"
        "hint: check `debian_mirrors` in [tool.bakehouse], proxies and the network\n"
    )
    with pytest.raises(BuildError, match="cannot be read"):
        index(server, tmp_path)


def test_a_source_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        mirrors().download_index(AptSource("Debian", "cdrom://disc", "sid", ("main",)), "amd64", tmp_path)
    [reason] = caught.value.diagnostics[0].reasons
    assert reason.text == "cdrom://disc: Bakehouse does not support `cdrom:`"


def test_logins_proxies_and_certificates_of_apt_lead_to_the_mirrors(
    apt: AptConfiguration, server: FileServer, tmp_path: Path
) -> None:
    (apt.directory / "auth.conf").write_text(f"machine {server.url}/debian login me password word\n")
    own = ConnectionSettings(Proxies({"http": "http://wrong.example"}, not_for="127.0.0.1"))
    client = HttpClient(apt_connection({"Acquire::http::Proxy": "http://other.example"}, own))
    server.login = "me:word"
    has_suite(server, "/debian", "sid")
    assert DebianMirrors(client, (f"{server.url}/debian",)).for_suite("sid")
