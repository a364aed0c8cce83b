"""Per-rank logs and events, and the first failure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.cluster.ranks import (
    RankEvent,
    RankFailure,
    RankStep,
    first_failure,
    format_ranks,
    launcher_failures,
    ranks_without,
    read_events,
    split_log,
)

WORDS = st.text(st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029[]<>"), max_size=20)
RANKS = st.integers(0, 40)


def note(rank: int, step: RankStep, at: float, reason: str = "") -> RankEvent:
    return RankEvent(rank, "algo-1", step, at, reason)


@pytest.mark.parametrize(
    "tag",
    [
        "[1,3]<stdout>:",
        "[1,3]<stderr>:",
        "[prterun-algo-1-17@1,3]<stdout>: ",
        "[1,mpirank:3,algo-2]<stdout>:",
    ],
)
def test_every_launcher_s_tags_are_understood(tag: str) -> None:
    log = split_log(f"mpirun says\n{tag}a line\n")

    assert log.ranks == {3: "a line\n"}
    assert log.rest == "mpirun says\n"


def test_torchrun_counts_each_host_s_ranks_from_0() -> None:
    log = split_log("[default1]:hello\nelastic agent\n", first_rank=2)

    assert log.ranks == {3: "hello\n"}
    assert log.rest == "elastic agent\n"


def test_a_line_without_an_end_is_followed_by_the_next_tag() -> None:
    log = split_log("[1,0]<stdout>:no end[1,1]<stderr>:hello\n[1,0]<stderr>:")

    assert log.ranks == {0: "no end", 1: "hello\n"}


@given(st.lists(st.tuples(RANKS, WORDS)), st.lists(WORDS))
def test_splitting_gives_each_rank_its_lines_in_order_and_loses_none(
    lines: list[tuple[int, str]], rest: list[str]
) -> None:
    tagged = "".join(f"[1,{rank}]<stdout>:{line}\n" for rank, line in lines)
    untagged = "".join(f"{line}\n" for line in rest)

    log = split_log(tagged + untagged)

    assert log.rest == untagged
    expected = {
        rank: "".join(f"{line}\n" for other, line in lines if other == rank) for rank, _ in sorted(lines)
    }
    assert log.ranks == expected
    assert list(log.ranks) == sorted(expected)


def test_notes_come_in_the_order_of_time_without_the_torn_ones() -> None:
    def line(rank: int, at: float) -> bytes:
        return json.dumps({"rank": rank, "host": "algo-1", "step": "arrived", "at": at}).encode() + b"\n"

    notes = read_events([line(0, 2.0) + b'{"rank": 0, "host": "al', line(1, 1.0), b'"text"\n{}\n'])

    assert notes == (note(1, RankStep.ARRIVED, 1.0), note(0, RankStep.ARRIVED, 2.0))


def test_the_first_to_fail_is_named_not_those_who_failed_with_it() -> None:
    notes = (
        note(2, RankStep.FAILED, 1.0, "ValueError: boom"),
        note(0, RankStep.FAILED, 1.2, "connection closed"),
    )

    assert first_failure(notes, "") == RankFailure(2, "ValueError: boom")


def test_a_rank_that_a_signal_ended_comes_before_those_who_noticed() -> None:
    notes = (note(1, RankStep.ARRIVED, 0.5), note(0, RankStep.FAILED, 1.2, "connection closed"))
    says = "mpirun noticed that process rank 1 with PID 45 on node algo-1 exited on signal 9 (Killed).\n"

    assert first_failure(notes, says) == RankFailure(1, "exited on signal 9 (Killed)")


def test_a_rank_s_recorded_reason_is_kept() -> None:
    notes = (note(1, RankStep.FAILED, 1.0, "ValueError: boom"),)
    says = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"

    assert first_failure(notes, says) == RankFailure(1, "ValueError: boom")


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
            RankFailure(3, "MPI_ABORT was invoked"),
        ),
        ("  Process name: [[35221,1],2]\n  Exit code:    3\n", RankFailure(2, "exited with 3")),
        ("   Process name: [prterun-algo-1-17@1,1] Exit code:    5\n", RankFailure(1, "exited with 5")),
        (
            "Root Cause (first observed failure):\n[0]:\n  time      : 10:00:00\n  host      : algo-1\n"
            "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 77)\n",
            RankFailure(1, "exited with -9"),
        ),
        ("Error: nothing of the kind\n", None),
    ],
)
def test_what_a_launcher_saw_is_read(says: str, expected: RankFailure | None) -> None:
    assert first_failure((), says) == expected


def test_of_two_torchruns_the_one_whose_rank_failed_first_is_believed() -> None:
    says = "".join(
        f"Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_21:12:{second}\n"
        f"  rank      : {rank} (local_rank: 0)\n  exitcode  : 1 (pid: 39)\n"
        for rank, second in ((0, 14), (1, 13))
    )

    assert first_failure((), says) == RankFailure(1, "exited with 1")


def test_who_did_not_arrive_is_named() -> None:
    notes = (note(0, RankStep.STARTED, 0.0), note(0, RankStep.ARRIVED, 1.0), note(2, RankStep.ARRIVED, 1.0))

    assert ranks_without(notes, RankStep.ARRIVED, 4) == (1, 3)


@given(st.sets(RANKS))
def test_spans_name_each_rank_once(ranks: set[int]) -> None:
    named = [
        rank
        for part in filter(None, format_ranks(ranks).split(", "))
        for low, _, high in [part.partition("-")]
        for rank in range(int(low), int(high or low) + 1)
    ]

    assert named == sorted(ranks)


def test_spans_read_as_a_person_writes_them() -> None:
    assert format_ranks([5, 0, 1, 2]) == "0-2, 5"


def test_a_rank_of_thousands_of_digits_is_text() -> None:
    text = f"[1,{'9' * 5_000}]<stdout>:a\n[default{'9' * 5_000}]:b\n"

    assert split_log(text).ranks == {}
    assert launcher_failures(f"MPI_ABORT was invoked on rank {'9' * 5_000}\n")[0].rank == 999_999_999
