"""Live output of several hosts."""

import pytest

from bakehouse.cluster.log_stream import LogStream


def merged(*chunks: tuple[str, bytes], colour: bool = False) -> list[str]:
    lines: list[str] = []
    stream = LogStream({"algo-1": 0, "algo-2": 2}, lines.append, colour=colour)
    for host, data in chunks:
        stream.feed(host, data)
    stream.end()
    return lines


def test_lines_carry_their_hosts() -> None:
    assert merged(("algo-1", b"a\n"), ("algo-2", b"b\n")) == ["algo-1   │ a", "algo-2   │ b"]


def test_a_line_that_comes_in_pieces_is_one_line() -> None:
    assert merged(("algo-1", b"a"), ("algo-2", b"b\n"), ("algo-1", b"c\n")) == [
        "algo-2   │ b",
        "algo-1   │ ac",
    ]


def test_the_last_line_needs_no_end() -> None:
    assert merged(("algo-1", b"a\nrest")) == ["algo-1   │ a", "algo-1   │ rest"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"[1,3]<stdout>:hello\n", "algo-1:3"),
        (b"[prterun-algo-1-17@1,3]<stdout>: hello\n", "algo-1:3"),
        (b"[1,mpirank:3,algo-2]<stderr>:hello\n", "algo-1:3"),
        (b"[default1]:hello\n", "algo-1:1"),
    ],
)
def test_the_launchers_tags_become_ranks(line: bytes, name: str) -> None:
    assert merged(("algo-1", line)) == [f"{name.ljust(9)}│ hello"]


def test_each_host_has_a_colour_of_its_own() -> None:
    first, two = merged(("algo-1", b"a\n"), ("algo-2", b"b\n"), colour=True)

    assert first == "\x1b[36malgo-1   │\x1b[0m a"
    assert two.startswith("\x1b[33m")


def test_torchruns_own_count_of_a_host_becomes_the_rank_in_the_job() -> None:
    assert merged(("algo-2", b"[default1]:hello\n")) == ["algo-2:3 │ hello"]


def test_torchrun_s_tag_stays_if_the_first_rank_is_unknown() -> None:
    lines: list[str] = []
    LogStream({"algo-1": None}, lines.append, colour=False).feed("algo-1", b"[default1]:a\n[1,3]<stdout>:b\n")

    assert lines == ["algo-1   │ [default1]:a", "algo-1:3 │ b"]


def test_the_toolkits_account_of_its_environment_is_left_out_of_a_short_stream() -> None:
    lines: list[str] = []
    stream = LogStream({"algo-1": 0}, lines.append, colour=False, verbose=False)
    stream.feed("algo-1", b"a\n\nTraining Env:\n{}\nInvoking script with the following command:\nb\n")

    assert lines == ["algo-1   │ a", "algo-1   │ Invoking script with the following command:", "algo-1   │ b"]


def test_the_environment_printed_by_the_sdk_s_script_is_omitted_too() -> None:
    lines: list[str] = []
    stream = LogStream({"algo-1": 0}, lines.append, colour=False, verbose=False)
    stream.feed("algo-1", b"++ /opt/venv/bin/python3 --version\nPython 3.11.2\n++ set +x\nb\n")

    assert lines == ["algo-1   │ ++ set +x", "algo-1   │ b"]
