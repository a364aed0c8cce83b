"""Training code as an archive."""

import io
import tarfile
from pathlib import Path

import pytest

from bakehouse import delivery
from bakehouse.errors import EngineError, UsageError
from bakehouse.report import failure_text


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_a_folder_is_packed_with_its_files_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "deep/more.py").write_text("pass\n")

    assert names(delivery.packed(tmp_path)) == ["deep/more.py", "train.py"]


def test_a_script_alone_is_packed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "other.py").write_text("")

    assert names(delivery.packed(tmp_path / "train.py")) == ["train.py"]


def test_what_is_no_code_stays_behind(tmp_path: Path) -> None:
    for folder in ("__pycache__", ".git", ".venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("")

    assert names(delivery.packed(tmp_path)) == []


def test_a_folder_of_data_is_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_BYTES", 10)
    (tmp_path / "data").write_bytes(b"x" * 11)

    with pytest.raises(UsageError, match="holds more than 0 MB"):
        delivery.packed(tmp_path)


def test_an_address_that_is_not_this_machines_is_told_before_anything_waits_for_it(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught, delivery.in_s3(tmp_path, "192.0.2.1"):
        pass

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: the code can't be offered on `192.0.2.1`, which the hosts reach this machine by\n"
        "  because  Cannot assign requested address (while attempting to bind on address ('192.0.2.1', 0))\n"
        "\n"
        "hint: run jobs on the machine that the engine runs on; `./bake doctor` says what it has\n"
    )
