import sys
from pathlib import Path

import pytest

from bakehouse.errors import Diagnostic, PublishError, Reason
from bakehouse.registry.local_registry import EmbeddedRegistry


def test_its_address_is_on_this_machine(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path, 5051).host == "127.0.0.1:5051"


def test_no_login_is_used(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path)
    assert (registry.credentials(renew=True), registry.principal()) == (None, "")


def test_a_disk_with_free_space_is_accepted(tmp_path: Path) -> None:
    assert EmbeddedRegistry(tmp_path).known_problems() == ()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system without room: /proc")
def test_a_full_disk_is_named() -> None:
    reason = Reason("the disk that holds `/proc` has 0 bytes left")
    assert EmbeddedRegistry(Path("/proc")).known_problems() == (reason,)


def test_without_any_program_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PublishError) as caught:
        EmbeddedRegistry(tmp_path, 1).__enter__()
    assert caught.value.diagnostics == (
        Diagnostic(
            "the local registry cannot run",
            reasons=(Reason("neither `docker-registry` nor `docker` is on PATH"),),
            hint="install Debian's package docker-registry, or set `registry` in [tool.bakehouse]",
        ),
    )
