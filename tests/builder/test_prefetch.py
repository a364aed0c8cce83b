"""Downloads of all files of a plan: to the cache, to a directory, or errors that name the files."""

import errno
import io
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder import prefetch
from bakehouse.builder.build_inputs import Downloads
from bakehouse.builder.progress import Mode
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.component import Artifact
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cli.download import FetchProgress
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import BuildError, UsageError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import RequiredFile, required_files
from bakehouse.plan.model import BootstrappedBase, RegistryBase
from bakehouse.util.oci import Digest, Sha256
from bakehouse.util.terminal import Redrawn
from tests.support import fake_engine, plans
from tests.support.apt_configuration import AptConfiguration
from tests.support.errors import raised, refusal
from tests.support.file_server import FileServer, serving
from tests.support.planned_stages import (
    ARCHIVE,
    HERE,
    SOURCE,
    WHEEL,
    an_image,
    artifact,
    package,
    sha256,
    stage,
)

CANARY = "canary-4711"


class EmptyEngine(fake_engine.FakeEngine):
    """Engine with only the given images."""

    here: tuple[str, ...] = ()

    def image(self, reference: str) -> StoredImage | None:
        return super().image(reference) if reference in self.here else None


class Gathering:
    """Machine with a mirror, a cache and no index."""

    def __init__(self, directory: Path, server: FileServer) -> None:
        self.directory, self.server, self.messages = directory, server, list[str]()
        self.project = ProjectSettings(
            directory, (), mirrors=(server.url,), cache_directory=directory / "cache"
        )
        self.images = [
            an_image("one", stage("a", package(WHEEL, "tiny-1-py3-none-any.whl"))),
            an_image(
                "two",
                stage("a", package(WHEEL, "tiny-1-py3-none-any.whl")),
                stage("b", package(SOURCE, "src-2.tar.gz"), artifacts=(self.archive(ARCHIVE),)),
            ),
        ]

    def archive(self, content: bytes | None) -> Artifact:
        return artifact(content, "part.tgz", f"{self.server.url}/origin/part.tgz?key={CANARY}")

    def put(self, *contents: bytes) -> None:
        for content in contents:
            name = {WHEEL: "tiny-1-py3-none-any.whl", SOURCE: "src-2.tar.gz", ARCHIVE: "part.tgz"}[content]
            self.server.put(content, name)

    def fetch(self, to: Path | None = None, source: str = "", offline: bool = False) -> str:
        needed = required_files(self.images)
        environment = {"HOME": str(self.directory), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
        with open_fetcher(
            self.project, self.messages.append, to=to, source=source, offline=offline, environment=environment
        ) as fetcher:
            if offline:
                prefetch.require_local_files(
                    self.images, EmptyEngine(lambda spec: fake_engine.Run()), fetcher, source
                )
                return ""
            return prefetch.summary(prefetch.download_all(needed, fetcher, self.show))

    def show(self, fetcher: Fetcher) -> None:
        self.messages += fetcher.lines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gathering]:
    AptConfiguration(tmp_path, monkeypatch)
    with serving() as server:
        yield Gathering(tmp_path, server)


def test_each_file_stands_once_with_all_images_that_want_it(machine: Gathering) -> None:
    required = required_files(machine.images)
    assert [(file.kind, file.file, required.images[file]) for file in required.files] == [
        ("wheel", "tiny-1-py3-none-any.whl", ("one", "two")),
        ("url", "part.tgz", ("two",)),
        ("sdist", "src-2.tar.gz", ("two",)),
    ]


def test_an_artifact_that_a_lock_names_too_has_its_size(machine: Gathering) -> None:
    tools = Artifact("tools", "pypi", "tiny==1", "tiny-1-py3-none-any.whl", sha256(WHEEL), HERE)
    images = [
        an_image("one", stage("a", artifacts=(tools,))),
        an_image("two", stage("b", package(WHEEL, "tiny-1-py3-none-any.whl"))),
    ]
    [file] = required_files(images).files
    assert (file.kind, file.bytes, file.project) == ("wheel", len(WHEEL), "tiny")
    assert required_files(images).images[file] == ("one", "two")
    assert required_files(images).stages == ((file,),) * len(required_files(images).stages)


def test_counts_and_bytes_of_each_kind_are_reported(machine: Gathering) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    assert machine.fetch() == (
        "wheels          1  7 bytes, 7 bytes fetched now\n"
        "Python sources  1  8 bytes, 8 bytes fetched now\n"
        "archives        1  10 bytes, 10 bytes fetched now\n"
    )
    assert machine.fetch() == (
        "wheels          1  7 bytes\nPython sources  1  8 bytes\narchives        1  10 bytes\n"
    )


def test_a_filled_directory_is_a_mirror_on_any_web_server(machine: Gathering, tmp_path: Path) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    machine.fetch(to=tmp_path / "disk")
    machine.server.files = {
        f"/{path.relative_to(tmp_path / 'disk')}": path.read_bytes()
        for path in (tmp_path / "disk").rglob("*")
        if path.is_file()
    }
    machine.project = replace(machine.project, cache_directory=tmp_path / "another")
    machine.fetch()
    assert FileCache(tmp_path / "another", print).weigh()[0] == 3


def test_a_directory_gets_copies_of_what_the_cache_has(machine: Gathering, tmp_path: Path) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    machine.fetch()
    machine.server.files.clear()
    machine.server.requests.clear()
    machine.fetch(to=tmp_path / "disk")
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == sorted(
        map(sha256, (WHEEL, SOURCE, ARCHIVE))
    )
    assert machine.server.requests == []
    assert (tmp_path / "disk" / sha256(WHEEL) / "tiny-1-py3-none-any.whl").read_bytes() == WHEEL


def test_one_error_names_all_unavailable_files(machine: Gathering) -> None:
    machine.put(WHEEL)
    error = raised(BuildError, machine.fetch)
    url = machine.server.url
    assert failure_text(error.diagnostics[0]) == (
        f"""\
error: 2 files could not be downloaded

missing:
  part.tgz  for two

answers of the sources:
  mirror `{url}`           does not have the file
  `{url}/origin/part.tgz`  does not have the file

missing:
  src-2.tar.gz  for two

answers of the sources:
  mirror `{url}`  does not have the file

hint: copy them into a directory and add the directory to `mirrors` in [tool.bakehouse]
"""
    )


def test_files_without_sha256_are_rejected(machine: Gathering) -> None:
    machine.images = [an_image("one", stage("a", artifacts=(machine.archive(None),)))]
    assert refusal(UsageError, machine.fetch) == (
        """\
error: the sha256 of 1 file is unknown

needed by:
  part.tgz  one

hint: run `bake lock` to record it
"""
    )


def test_without_a_network_what_is_missing_is_named_before_the_build(
    machine: Gathering, tmp_path: Path
) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    assert refusal(BuildError, machine.fetch, offline=True, source=str(tmp_path)) == (
        f"""\
error: 4 files or bases of the build are missing on this machine

missing:
  tiny-1-py3-none-any.whl       for one, two
  part.tgz                      for two
  src-2.tar.gz                  for two
  bakehouse/debian:12-00000000  base of two

hint: run `bake build one two --download-only --to {tmp_path}` with a network, then use \
`--offline --from {tmp_path}`
"""
    )
    assert machine.server.requests == []


def test_without_a_network_a_base_has_to_be_there_by_its_digest(tmp_path: Path) -> None:
    base = RegistryBase("vendor/cuda:1", Digest(f"sha256:{'ab' * 32}"), locks_apt=True)
    image = plans.changed(an_image("one"), base=base, build_base="vendor/cuda:1-devel")
    engine = EmptyEngine(lambda spec: fake_engine.Run())
    engine.here = ("vendor/cuda:1",)
    fetcher = open_fetcher(
        ProjectSettings(tmp_path, ()), print, offline=True, environment={"PIP_NO_INDEX": "1"}
    )
    with fetcher as opened:
        with pytest.raises(BuildError) as caught:
            prefetch.require_local_files([image], engine, opened, "")
        engine.here = (base.pinned, "vendor/cuda:1-devel")
        prefetch.require_local_files([image], engine, opened, "")
    assert failure_text(caught.value.diagnostics[0]) == (
        f"""\
error: 2 files or bases of the build are missing on this machine

missing:
  {base.pinned}  base of one
  vendor/cuda:1-devel{" " * (len(base.pinned) - 19)}  base of one

hint: run `bake build one --download-only --to DIRECTORY` with a network, then use \
`--offline --from DIRECTORY`; pull bases with `docker pull`
"""
    )


@pytest.mark.parametrize(
    ("source", "directory"), [("https://mirror.example", "DIRECTORY"), ("our disk", "'{}/our disk'")]
)
def test_the_directory_to_fetch_into_is_one_that_a_shell_takes(
    machine: Gathering, tmp_path: Path, source: str, directory: str
) -> None:
    (tmp_path / "our disk").mkdir()
    with pytest.raises(BuildError) as caught:
        machine.fetch(offline=True, source=source if "://" in source else str(tmp_path / source))
    to = directory.format(tmp_path)
    assert caught.value.diagnostics[0].hint == (
        f"run `bake build one two --download-only --to {to}` with a network, then use `--offline --from {to}`"
    )


def test_invalid_mirrors_are_reported_and_skipped(machine: Gathering) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    machine.fetch(source="ftp://u:word@x.example/a")
    message, *others = machine.messages
    assert message == "mirror `ftp://x.example/a` is not a directory or a mirror URL; skipped"
    assert [line.partition(":")[0] for line in others] == ["fetched 3 files"]


def test_no_credential_is_reported_or_kept(machine: Gathering, tmp_path: Path) -> None:
    server = machine.server
    server.login = f"user:{CANARY}"
    server.files["/simple/src/"] = b'<a href="/f/src-2.tar.gz">x</a>'
    server.files["/f/src-2.tar.gz"] = b"another source"
    address = server.url.replace("//", f"//user:{CANARY}@")
    machine.project = replace(
        machine.project, mirrors=(f"{address}/mirror?key={CANARY}", f"s3://{CANARY[:3]}")
    )
    machine.images = [an_image("one", stage("b", package(SOURCE, "src-2.tar.gz")))]
    environment = {
        "HOME": str(tmp_path),
        "PIP_INDEX_URL": f"{address}/simple",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    with (
        pytest.raises(BuildError) as caught,
        open_fetcher(machine.project, machine.messages.append, environment=environment) as fetcher,
    ):
        prefetch.download_all(required_files(machine.images), fetcher, machine.show)
    output = failure_text(caught.value.diagnostics[0]) + "".join(machine.messages)
    assert "index" in output
    assert CANARY not in output
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in paths if CANARY.encode() in path.read_bytes()] == []


def test_lines_without_a_terminal(machine: Gathering) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    moments = iter([0.0, *range(3, 300, 3)])
    stream = io.StringIO()
    needed = required_files(machine.images)
    environment = {"HOME": str(machine.directory), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    with (
        open_fetcher(machine.project, print, environment=environment) as fetcher,
        FetchProgress(stream, 3, mode=Mode.LINES, clock=lambda: next(moments)) as progress,
    ):
        prefetch.download_all(needed, fetcher, lambda _: None)
        for _ in range(4):
            progress.show(fetcher)
    assert stream.getvalue() == "   12 s  3 of 3 files are here, 25 bytes fetched, 2 bytes/s\n"


def test_a_table_on_a_terminal(machine: Gathering) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    stream = io.StringIO()
    moments = iter([0.0, *range(1, 100)])
    needed = required_files(machine.images)
    environment = {"HOME": str(machine.directory), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    with (
        open_fetcher(machine.project, print, environment=environment) as fetcher,
        FetchProgress(stream, 3, mode=Mode.TABLE, clock=lambda: next(moments)) as progress,
    ):
        prefetch.download_all(needed, fetcher, lambda _: None)
        progress.show(fetcher)
        fetcher.say("a line")
        progress.show(fetcher)
    row = "3 of 3 files are here, 25 bytes fetched"
    assert stream.getvalue() == (
        f"  1.0 s  {row}, 25 bytes/s\n\033[1F\033[J  2.0 s  a line\n  2.0 s  {row}, 12 bytes/s\n\033[1F\033[J"
    )


def test_a_row_takes_one_line_of_a_narrow_terminal() -> None:
    stream = io.StringIO()
    rows = Redrawn(stream, width=10)
    rows.draw(["0123456789", "short"])
    rows.erase()
    rows.erase()
    assert stream.getvalue() == "01234567…\nshort\n\033[2F\033[J"


def test_a_store_removes_what_it_has_put_there_alone(tmp_path: Path) -> None:
    store = FileCache(tmp_path, print)
    file = RequiredFile("url", "x.tgz", Sha256(sha256(b"x")), 1, "")
    with store.claim(Sha256(sha256(b"x")), lambda: None) as part, part.writing(0, "", ""):
        part.write(b"x")
    with store.claim(Sha256(sha256(b"x")), lambda: None) as part:
        store.keep(part, Sha256(sha256(b"x")), file.file)
    (tmp_path / "theirs").write_text("theirs")
    assert store.weigh() == (1, 1)
    store.clear()
    assert {path.name for path in tmp_path.rglob("*")} == {".locks", sha256(b"x"), "theirs"}
    assert not (tmp_path / sha256(b"x")).exists()


def test_a_store_leaves_what_is_being_received(tmp_path: Path) -> None:
    store, digest = FileCache(tmp_path, print), Sha256(sha256(b"x"))
    with store.claim(digest, lambda: None) as part:
        with part.writing(0, "", ""):
            part.write(b"x")
        FileCache(tmp_path, print).clear()
        assert store.keep(part, digest, "x.tgz").read_bytes() == b"x"
    with store.claim(digest, lambda: None) as part, part.writing(0, "", ""):
        part.write(b"x")
    store.clear()
    assert not (tmp_path / ".parts").exists()


def test_a_disk_without_links_and_rights_has_files_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    store, digest = FileCache(tmp_path, print), Sha256(sha256(b"x"))
    with store.claim(digest, lambda: None) as part:
        with part.writing(0, "", ""):
            part.write(b"x")
        store.keep(part, digest, "x.tgz")
    assert store.find(digest, "y.tgz") == tmp_path / digest / "y.tgz"
    assert sorted(path.name for path in (tmp_path / digest).iterdir()) == ["x.tgz", "y.tgz"]


def test_a_file_that_was_changed_and_given_its_old_time_is_hashed_again(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", HashCache(tmp_path / "hashes.json")
    path.write_bytes(b"one")
    stat = path.stat()
    assert hashes.sha256(path) == sha256(b"one")
    hashes.save()
    path.write_bytes(b"two")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert HashCache(tmp_path / "hashes.json").sha256(path) == sha256(b"two")


@pytest.mark.parametrize("memory", ["{", "[]", '{"%s": 5}', '{"%s": [1, 2, "x"]}', '{"%s": []}'])
def test_a_foreign_record_is_ignored(tmp_path: Path, memory: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    (tmp_path / "hashes.json").write_text(memory.replace("%s", str(path)))
    assert HashCache(tmp_path / "hashes.json").sha256(path) == sha256(b"one")


def test_two_names_of_the_same_bytes_are_two_files_of_a_directory(machine: Gathering, tmp_path: Path) -> None:
    machine.server.put(WHEEL, "tiny-1-py3-none-any.whl")
    machine.server.files["/other.whl"] = WHEEL
    machine.images = [
        an_image(
            "one",
            stage("a", package(WHEEL, "tiny-1-py3-none-any.whl")),
            stage("b", artifacts=(artifact(WHEEL, "other.whl", f"{machine.server.url}/other.whl"),)),
        )
    ]
    machine.fetch(to=tmp_path / "disk")
    assert sorted(path.name for path in (tmp_path / "disk" / sha256(WHEEL)).iterdir()) == [
        "other.whl",
        "tiny-1-py3-none-any.whl",
    ]


def test_a_local_storage_error_is_not_blamed_on_the_source(machine: Gathering, tmp_path: Path) -> None:
    machine.put(WHEEL, SOURCE, ARCHIVE)
    (tmp_path / "cache").write_text("a file")
    assert refusal(BuildError, machine.fetch) == (
        f"""\
error: 3 files could not be stored on this machine
  because `{tmp_path}/cache` is a file, not a directory

hint: check the directory of `fetch --to`, BAKEHOUSE_CACHE or `cache` in [tool.bakehouse]
"""
    )


def test_packages_of_debian_are_files_like_any_other() -> None:
    base = fake_engine.image("one").base
    assert isinstance(base, BootstrappedBase)
    [deb] = base.debs
    [file] = required_files([plans.changed(an_image("one"), base=base)]).files
    assert (file.kind, file.file, file.sha256, file.bytes, file.address) == (
        "deb", deb.file, deb.sha256, deb.bytes, deb.path
    )  # fmt: skip


def test_the_packages_of_a_base_are_put_where_it_is_made(machine: Gathering, tmp_path: Path) -> None:
    content = b"a package"
    deb = Deb("tiny", "1", sha256(content), len(content), "pool/main/t/tiny/tiny_1_amd64.deb")
    machine.server.put(content, deb.file)
    base = BootstrappedBase("bakehouse/debian:12-00000000", "bookworm", (), (deb,))
    plan = required_files([plans.changed(an_image("one"), base=base)])
    environment = {"HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    with open_fetcher(machine.project, print, environment=environment) as fetcher:
        prefetch.download_packages(Downloads(plan, fetcher), [deb], tmp_path / "repository")
        assert (tmp_path / "repository" / deb.file).read_bytes() == content

        missing = replace(deb, sha256="0" * 64)
        with pytest.raises(BuildError, match="1 file could not be downloaded"):
            prefetch.download_packages(Downloads(plan, fetcher), [missing], tmp_path / "repository")


def test_a_directory_that_was_named_and_is_not_there_is_refused(machine: Gathering, tmp_path: Path) -> None:
    named = prefetch.start_downloads(
        [],
        machine.project,
        EmptyEngine(lambda spec: fake_engine.Run()),
        fake_engine.HOST,
        print,
        source=f"{tmp_path}/none",
        offline=True,
    )
    with pytest.raises(UsageError) as caught, named:
        pass
    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: `{tmp_path}/none` is not a directory or a mirror URL\n\n"
        "hint: create one with `bake build IMAGE --download-only --to DIRECTORY`\n"
    )
