"""Making of a base, with a fake docker command whose build step returns the tree that it was given."""

import base64
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder import base_image
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.catalog.apt_lock import Deb
from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import BakehouseError, BuildError
from bakehouse.plan.model import BootstrappedBase
from bakehouse.util import terminal
from tests.support.data import text_of
from tests.support.deb_archives import write_deb
from tests.support.errors import raised
from tests.support.fake_commands import only, put
from tests.support.fake_engine import FakeEngine, Run

PACKAGES = {
    "base-files": {"Essential": "yes", "Pre-Depends": "awk"},
    "base-passwd": {"Essential": "yes"},
    "ca-certificates": {"Depends": "openssl"},
    "dash": {"Essential": "yes"},
    "mawk": {"Provides": "awk"},
    "openssl": {},
}
DEBS = tuple(
    Deb(name, "1", f"{number:064}", 100, f"pool/{name}_1_all.deb") for number, name in enumerate(PACKAGES)
)
BASE = BootstrappedBase("bakehouse/debian:12-12345678", "bookworm", ("ca-certificates",), DEBS)
DOCKER = text_of(__file__, "docker")
"""A docker command that records its builds; arguments: the directory of its files, docker's arguments."""
OUTPUT = b"dpkg: error processing archive openssl\nErrors were encountered while processing:\n openssl\n"
FAILS = r"""
cat >&2 <<'END'
{"vertexes": [{"digest": "d", "name": "[base 2/2] RUN --network=none <<\"END\"", "error": "exit code: 1",
 "started": "2026-11-21T01:19:31Z", "completed": "2026-11-21T01:19:32Z"}],
 "logs": [{"vertex": "d", "stream": 1, "timestamp": "2026-11-21T01:19:31Z",
 "data": "OUTPUT"}]}
END
exit 1
""".replace("OUTPUT", base64.b64encode(OUTPUT).decode())
"""A failed step, with the output of dpkg."""


class Engine(FakeEngine):
    """Engine with the images that the fake `docker load` received."""

    def __init__(self, directory: Path) -> None:
        super().__init__(lambda spec: Run())
        self.loaded = directory / "loaded.tar"

    def image(self, reference: str) -> StoredImage | None:
        return StoredImage("sha256:0", 1) if self.loaded.exists() else None


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    (tmp_path / "docker.py").write_text(DOCKER)
    put(tmp_path, monkeypatch, docker=f'exec {sys.executable} {tmp_path}/docker.py {tmp_path} "$@"')
    return Engine(tmp_path)


def get(debs: Sequence[Deb], directory: Path) -> None:
    for deb in debs:
        fields = {"Package": deb.name, **PACKAGES[deb.name]}
        write_deb(directory / deb.file, fields, {f"./bin/{deb.name}": deb.name.encode()})


def ensure(
    engine: Engine,
    directory: Path,
    messages: list[str] | None = None,
    base: BootstrappedBase = BASE,
    builders: RemoteBuilders | None = None,
) -> None:
    report = (messages if messages is not None else []).append
    base_image.ensure_base(base, engine=engine, state=directory, report=report, get=get, builders=builders)


def failure(engine: Engine, directory: Path, base: BootstrappedBase = BASE) -> str:
    error = raised(BakehouseError, ensure, engine, directory, base=base)
    assert isinstance(error, BuildError)
    return failure_text(error.diagnostics[0])


def builds(directory: Path) -> list[dict[str, object]]:
    path = directory / "builds"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def loaded(engine: Engine) -> dict[str, bytes]:
    with tarfile.open(engine.loaded) as archive:
        contents = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: stream.read() for name, stream in contents.items() if stream}


def test_a_build_step_gets_the_unpacked_packages_and_their_order(engine: Engine, tmp_path: Path) -> None:
    messages: list[str] = []
    ensure(engine, tmp_path, messages)
    [build] = builds(tmp_path)
    assert "RUN --network=none " in str(build.pop("dockerfile"))
    assert build == {
        "builder": "",
        "platforms": ["linux/amd64"],
        "files": [
            "Dockerfile",
            "docker-bake.json",
            *sorted(["packages/first", "packages/others", *(f"packages/{deb.file}" for deb in DEBS)]),
            "tree.tar",
        ],
        "first": ["./base-passwd_1_all.deb", "./base-files_1_all.deb"],
        "others": [
            "./dash_1_all.deb",
            "./mawk_1_all.deb",
            "./ca-certificates_1_all.deb",
            "./openssl_1_all.deb",
        ],
    }
    [message] = messages
    assert re.fullmatch(r"base bakehouse/debian:12-12345678: made in [0-9.]+ s, 20 kB", message)


def test_verbose_output_has_the_steps_of_a_base(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    messages: list[str] = []
    ensure(engine, tmp_path, messages)
    assert messages[:-1] == [
        "base bakehouse/debian:12-12345678: unpacking 6 Debian packages",
        "base bakehouse/debian:12-12345678: installing the packages in a build step",
        "base bakehouse/debian:12-12345678: 20 kB; loading",
    ]
    assert list((tmp_path / "private").iterdir()) == []


def test_the_engine_is_given_one_layer_and_a_fixed_configuration(engine: Engine, tmp_path: Path) -> None:
    ensure(engine, tmp_path)
    files = loaded(engine)
    [listed] = json.loads(files["manifest.json"])
    [described] = json.loads(files["index.json"])["manifests"]
    assert listed["RepoTags"] == [BASE.reference]
    assert described["annotations"] == {"io.containerd.image.name": f"docker.io/{BASE.reference}"}
    layer = files[listed["Layers"][0]]
    assert json.loads(files[listed["Config"]]) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["bash"],
            "Labels": {"org.bakehouse.base": BASE.reference},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "Debian bookworm"}],
    }
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        names = archive.getnames()
    assert "usr/bin/mawk" in names
    assert "usr/bin/openssl" not in names, "dpkg installs the others"


def test_a_base_for_another_platform_is_made_for_it(engine: Engine, tmp_path: Path) -> None:
    ensure(engine, tmp_path, base=replace(BASE, platform="linux/arm64"))
    assert builds(tmp_path)[0]["platforms"] == ["linux/arm64"]
    files = loaded(engine)
    [listed] = json.loads(files["manifest.json"])
    assert json.loads(files[listed["Config"]])["architecture"] == "arm64"


def test_two_makings_are_the_same_bytes(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(engine, tmp_path)
    first = engine.loaded.read_bytes()
    engine.loaded.unlink()
    for name, value in {"HOME": "/nowhere", "TZ": "Asia/Tokyo", "LC_ALL": "tr_TR.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    before = os.umask(0o077)
    try:
        ensure(engine, tmp_path)
    finally:
        os.umask(before)
        monkeypatch.undo()
        time.tzset()
    assert engine.loaded.read_bytes() == first


def test_the_state_may_be_a_relative_path(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ensure(engine, Path("state"))
    assert loaded(engine)


def test_a_base_that_the_engine_has_is_not_made(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.loaded.touch()
    only(tmp_path, monkeypatch)
    ensure(engine, tmp_path)


def test_of_two_at_once_one_makes_it(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLEEP", "0.5")
    messages: list[str] = []
    threads = [threading.Thread(target=ensure, args=(engine, tmp_path, messages)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds(tmp_path)) == 1
    assert "waiting for another run that makes a base" in messages


def test_remote_builders_run_the_step(engine: Engine, tmp_path: Path) -> None:
    @contextmanager
    def watch(name: str) -> Iterator[Watch]:
        yield Watch(name)

    builders = RemoteBuilders(("far",), print, require=lambda name: None, watch=watch)
    ensure(engine, tmp_path, builders=builders)
    assert [build["builder"] for build in builds(tmp_path)] == ["far"]
    assert loaded(engine)


def test_nothing_is_left_of_a_step_that_failed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker=FAILS)
    assert failure(engine, tmp_path) == (
        f"""\
error: base `bakehouse/debian:12-12345678` could not be made: stage `base` failed with exit code 1
  log  {tmp_path}/logs/bookworm-base.log
    | dpkg: error processing archive openssl
    | Errors were encountered while processing:
"""
    )
    assert not engine.loaded.exists()
    assert list((tmp_path / "private").iterdir()) == []


def test_a_full_disk_of_the_engine(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, docker="echo 'ERROR: failed to solve: no space left on device' >&2; exit 1")
    assert failure(engine, tmp_path) == (
        "error: base `bakehouse/debian:12-12345678` could not be made: the disk is full\n"
        "\n"
        "hint: check `docker system df`; `docker builder prune` removes unused build cache\n"
    )


def test_a_base_without_a_lock(engine: Engine, tmp_path: Path) -> None:
    assert failure(engine, tmp_path, replace(BASE, debs=(), platform="linux/arm64")) == (
        "error: base `bakehouse/debian:12-12345678` needs a lock of the packages of `bookworm-arm64`\n"
        "\n"
        "hint: run `bake lock`\n"
    )
    assert builds(tmp_path) == []


def test_an_engine_that_refuses_the_base(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = (tmp_path / "commands/docker").read_text()
    put(
        tmp_path, monkeypatch, docker=f'[ "$1" != load ] || {{ echo "Error: refused" >&2; exit 1; }}\n{build}'
    )
    assert failure(engine, tmp_path) == (
        """\
error: the engine of this machine could not load `bakehouse/debian:12-12345678`
    | Error: refused

hint: check `docker system df`, then run the same command again
"""
    )


def test_the_archive_is_a_plain_tar(engine: Engine, tmp_path: Path) -> None:
    ensure(engine, tmp_path)
    with tarfile.open(fileobj=io.BytesIO(engine.loaded.read_bytes()), mode="r:") as archive:
        assert {entry.mtime for entry in archive} == {0}
