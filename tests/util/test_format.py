import pytest

from bakehouse.util.format import format_bytes, format_count, format_seconds, format_table


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (5_400, "5 kB"), (99_999, "100 kB"),
     (150_000, "0.1 MB"), (83_240_000, "83.2 MB"), (999_940_000, "999.9 MB"), (999_960_000, "1.00 GB"),
     (1_240_000_000, "1.24 GB"), (-83_240_000, "-83.2 MB")],
)  # fmt: skip
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (1.25, "1.2 s"), (9.96, "10 s"), (99.4, "99 s"), (99.6, "1:40"), (119.7, "2:00"),
     (125, "2:05"), (179.7, "3:00"), (3599.6, "1:00:00"), (3725, "1:02:05")],
)  # fmt: skip
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_no_duration_has_sixty_seconds() -> None:
    texts = {format_seconds(tenth / 10) for tenth in range(80_000)}
    assert not [text for text in texts if ":60" in text]


def test_count() -> None:
    assert format_count(1, "file") == "1 file"
    assert format_count(6_394, "file") == "6,394 files"
    assert format_count(2, "entry", "entries") == "2 entries"


def test_table() -> None:
    rows = [("torch", "1.70 GB", "ok"), ("a", "5 kB", "")]
    assert format_table(rows, align="lr", indent="  ") == "  torch  1.70 GB  ok\n  a         5 kB\n"
    assert format_table([]) == ""


def test_long_cells_do_not_widen_a_column() -> None:
    assert format_table([("abcdef", "1"), ("a", "2")], max_width=3) == "abcdef  1\na    2\n"


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("pytorch 2.13.0", "a long reason " * 8), ("x", "short")]
    assert max(map(len, format_table(rows).splitlines())) > 100

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = format_table(rows).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith(" " * len("pytorch 2.13.0  ")) for line in lines[1:-1])
    assert lines[-1] == "x               short"
