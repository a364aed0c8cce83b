"""Bootstrap of a base, with fake mmdebstrap, apt and docker commands."""

import hashlib
import io
import json
import tarfile
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder import base_image
from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine.buildkit_events import Tail
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import BakehouseError, BuildError, EngineError
from bakehouse.plan.model import BootstrappedBase
from bakehouse.util import terminal
from tests.support import feeds
from tests.support.fake_commands import only, put
from tests.support.fake_engine import FakeEngine, Run

BASE = BootstrappedBase("bakehouse/debian:12-12345678", "bookworm", ("ca-certificates", "python3"))
TARGETS = "echo 'Debian|Debian|http://user:word@mirror.example/debian|bookworm|main'"


class Engine(FakeEngine):
    """Engine with the images that the fake `docker load` received."""

    def __init__(self, directory: Path) -> None:
        super().__init__(lambda spec: Run())
        self.loaded = directory / "loaded.tar"

    def image(self, reference: str) -> StoredImage | None:
        return StoredImage("sha256:0", 1) if self.loaded.exists() else None


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    put(
        tmp_path,
        monkeypatch,
        apt_get=TARGETS,
        apt_config="echo 'Acquire::http::Proxy \"http://proxy.example\";'",
        unshare='while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
        mmdebstrap='echo "I: extracting archives..." >&2; printf "%s\\n" "$@" > "$(dirname "$0")/arguments"; '
        'echo "$SOURCE_DATE_EPOCH" >> "$(dirname "$0")/arguments"; printf layer',
        docker=f"cat > {tmp_path}/loading.tar && mv {tmp_path}/loading.tar {tmp_path}/loaded.tar",
    )
    return Engine(tmp_path)


def ensure(engine: Engine, directory: Path, messages: list[str] | None = None) -> None:
    report = (messages if messages is not None else []).append
    base_image.ensure_base(BASE, engine=engine, state=directory, report=report, get=feeds.get)


def failure(engine: Engine, directory: Path) -> tuple[BakehouseError, str]:
    with pytest.raises(BakehouseError) as caught:
        ensure(engine, directory)
    return caught.value, failure_text(caught.value.diagnostics[0])


def test_a_base_for_another_platform_has_its_packages(engine: Engine, tmp_path: Path) -> None:
    base = replace(BASE, platform="linux/arm64")
    base_image.ensure_base(base, engine=engine, state=tmp_path, report=lambda _: None, get=feeds.get)

    arguments = (tmp_path / "commands/arguments").read_text().splitlines()
    assert {"--architectures=arm64", "--skip=check/qemu"} <= {*arguments}
    with tarfile.open(engine.loaded) as archive:
        streams = {entry.name: archive.extractfile(entry) for entry in archive}
        texts = {name: stream.read() for name, stream in streams.items() if stream}
    (manifest,) = json.loads(texts["manifest.json"])
    assert json.loads(texts[manifest["Config"]])["architecture"] == "arm64"


@pytest.mark.parametrize("verbose", [True, False])
def test_a_silent_step_of_mmdebstrap_is_reported(verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", verbose)
    lines: list[str] = []
    seconds = [0.0]
    log = base_image._LogReader(BASE, Tail(), lines.append, lambda: seconds[-1])
    seconds.append(5.0)
    log.write(b"I: installing remaining packages inside the chroot...\n")
    for now in (9.9, 10.0, 15.0, 20.0):
        seconds.append(now)
        log.beat.tick()
    step = f"base {BASE.reference}: installing remaining packages inside the chroot"
    # Quiet steps are not lines: the time since the last line counts.
    times = ["10 s"] if verbose else ["5.0 s", "15 s"]
    assert lines == [step] * verbose + [f"still running: {step} ({time})" for time in times]


def test_the_environment_of_the_user_does_not_reach_scripts_of_packages(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, mmdebstrap=f"env > {tmp_path}/environment; printf layer")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    monkeypatch.setenv("PYTHONPATH", "/own")
    monkeypatch.setenv("https_proxy", "http://proxy.example")

    ensure(engine, tmp_path)

    variables = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines())
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert variables["https_proxy"] == "http://proxy.example"
    assert "PYTHONPATH" not in variables


def test_the_engine_is_given_one_gzip_layer_and_a_fixed_configuration(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    messages: list[str] = []
    ensure(engine, tmp_path, messages)
    with tarfile.open(engine.loaded) as archive:
        contents = {entry.name: archive.extractfile(entry) for entry in archive}
        texts = {name: stream.read() for name, stream in contents.items() if stream}
    (manifest,) = json.loads(texts["manifest.json"])
    config = texts[manifest["Config"]]
    assert manifest["RepoTags"] == [BASE.reference]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    assert zlib.decompress(texts[manifest["Layers"][0]], 31) == b"layer"
    assert json.loads(config) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["bash"],
            "Labels": {"org.bakehouse.base": BASE.reference},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(b'layer').hexdigest()}"]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "mmdebstrap bookworm"}],
    }
    assert messages == [
        "base bakehouse/debian:12-12345678: bootstrapping Debian bookworm with ca-certificates, python3",
        "base bakehouse/debian:12-12345678: extracting archives",
        "base bakehouse/debian:12-12345678: loading",
        "base bakehouse/debian:12-12345678: made in 0.0 s, 5 bytes, 25 bytes compressed",
    ]


def test_a_base_that_was_made_is_one_line(engine: Engine, tmp_path: Path) -> None:
    messages: list[str] = []
    ensure(engine, tmp_path, messages)
    assert messages == ["base bakehouse/debian:12-12345678: made in 0.0 s, 5 bytes, 25 bytes compressed"]


def test_two_makings_are_the_same_bytes(engine: Engine, tmp_path: Path) -> None:
    ensure(engine, tmp_path)
    first = engine.loaded.read_bytes()
    engine.loaded.unlink()
    ensure(engine, tmp_path)
    assert engine.loaded.read_bytes() == first


def test_mirrors_and_settings_are_the_machines_and_no_credential_is_an_argument(
    engine: Engine, tmp_path: Path
) -> None:
    ensure(engine, tmp_path)
    arguments = (tmp_path / "commands/arguments").read_text().splitlines()
    assert "--variant=minbase" in arguments
    assert "--include=ca-certificates,python3" in arguments
    assert arguments[-1] == "1767225600"
    assert not any("word" in argument for argument in arguments)


def test_a_base_that_is_there_is_not_made(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.loaded.touch()
    only(tmp_path, monkeypatch)
    ensure(engine, tmp_path)


def test_of_two_at_once_one_makes_it(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, mmdebstrap=f"echo made >> {tmp_path}/made; sleep 0.5; printf layer")
    messages: list[str] = []
    threads = [threading.Thread(target=ensure, args=(engine, tmp_path, messages)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "made").read_text() == "made\n"
    assert "waiting for another run that bootstraps a base" in messages


def test_nothing_is_left_of_a_making_that_failed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, mmdebstrap="echo 'E: bad things' >&2; printf half; exit 1")
    error, text = failure(engine, tmp_path)
    assert isinstance(error, BuildError)
    assert text.startswith(
        f"""\
error: base `bakehouse/debian:12-12345678` could not be bootstrapped
  mirror  http://mirror.example/debian
  log     {tmp_path}/logs/base-bookworm.log
    | E: bad things
"""
    )
    assert not engine.loaded.exists()
    assert list((tmp_path / "private").iterdir()) == []


def test_a_mirror_that_does_not_answer(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "Err:1 http://mirror.example bookworm InRelease\\n  Could not resolve 'mirror.example'"
    put(tmp_path, monkeypatch, mmdebstrap=f'printf "%b\\n" "{message}" >&2; exit 1')
    _, text = failure(engine, tmp_path)
    assert text == (
        f"""\
error: base `bakehouse/debian:12-12345678` could not be bootstrapped: a mirror of `bookworm` is not reachable
  mirror  http://mirror.example/debian
  log     {tmp_path}/logs/base-bookworm.log
    | Could not resolve 'mirror.example'

hint: check that `apt-get update` works: the mirrors are those of this machine's apt
"""
    )


def test_a_machine_without_mmdebstrap(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (put(tmp_path, monkeypatch) / "mmdebstrap").unlink()
    only(tmp_path, monkeypatch)
    error, text = failure(engine, tmp_path)
    assert isinstance(error, EngineError)
    assert text == (
        """\
error: base `bakehouse/debian:12-12345678` needs mmdebstrap, which is not installed

hint: run `apt-get install mmdebstrap`, on Debian or Ubuntu
"""
    )


def test_a_machine_that_can_check_no_signature_of_debians(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, mmdebstrap="echo 'W: GPG error: NO_PUBKEY 0E98404D386FA1D9' >&2; exit 1")
    _, text = failure(engine, tmp_path)
    assert text.startswith(
        "error: base `bakehouse/debian:12-12345678` could not be bootstrapped: the signature of a"
        " `bookworm` mirror could not be verified\n"
    )
    assert text.endswith("hint: run `apt-get install debian-archive-keyring`\n")


def test_an_engine_that_refuses_the_base(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker="echo 'Error: no space left on device' >&2; exit 1")
    _, text = failure(engine, tmp_path)
    assert text == (
        """\
error: the engine could not load base `bakehouse/debian:12-12345678`
    | Error: no space left on device
"""
    )


def test_the_archive_is_a_plain_tar(engine: Engine, tmp_path: Path) -> None:
    ensure(engine, tmp_path)
    with tarfile.open(fileobj=io.BytesIO(engine.loaded.read_bytes()), mode="r:") as archive:
        assert [entry.mtime for entry in archive] == [0, 0, 0]
