from pathlib import Path

from bakehouse.util import owners
from bakehouse.util.tempdir import private_folder


def test_nobody_else_may_read_it_and_it_is_gone_afterwards(tmp_path: Path) -> None:
    with private_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "secret").write_text("x")
    assert list((tmp_path / "private").iterdir()) == []


def test_what_a_killed_run_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    machine, _, _ = owners.mine().split("-")
    left = tmp_path / "private" / f"{machine}-999999-1.abc"
    (left / "deep").mkdir(parents=True)

    with private_folder(tmp_path) as first, private_folder(tmp_path) as second:
        assert sorted((tmp_path / "private").iterdir()) == sorted((first, second))
