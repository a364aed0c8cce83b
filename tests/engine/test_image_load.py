"""`docker load` with a fake docker command."""

import io
import tarfile
from pathlib import Path

import pytest

from bakehouse.engine.image_load import add_entry, load
from bakehouse.errors import BuildError, Diagnostic
from tests.support.errors import raised
from tests.support.fake_commands import put


def write(archive: tarfile.TarFile) -> None:
    add_entry(archive, "manifest.json", io.BytesIO(b"[]"), 2)


def test_the_engine_reads_the_archive_from_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, docker=f'cat > {tmp_path}/loaded.tar; echo "$@" > {tmp_path}/arguments')
    load(write, "not loaded")

    assert (tmp_path / "arguments").read_text() == "load --quiet\n"
    with tarfile.open(tmp_path / "loaded.tar") as archive:
        [entry] = archive.getmembers()
    assert (entry.name, entry.size, entry.mtime, entry.mode) == ("manifest.json", 2, 0, 0o644)


@pytest.mark.parametrize("reads", ["cat > /dev/null", ":"])
def test_an_engine_that_fails_or_stops_reading_gives_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    put(tmp_path, monkeypatch, docker=f"{reads}; echo no space left on device >&2; exit 1")

    def write_much(archive: tarfile.TarFile) -> None:
        add_entry(archive, "layer.tar", io.BytesIO(bytes(10**6)), 10**6)

    error = raised(BuildError, load, write_much, "the engine could not load `a`", "check `docker system df`")
    assert error.diagnostics == (
        Diagnostic(
            "the engine could not load `a`",
            tail=("no space left on device",),
            hint="check `docker system df`",
        ),
    )
