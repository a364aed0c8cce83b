"""Decoding of buildx's raw JSON."""

import base64
import json

import pytest

from bakehouse.engine.buildkit_events import Log, Output, Step, StepTransfer, Tail, events

STATUS = {
    "vertexes": [
        {
            "digest": "sha256:aa",
            "name": "[mpi-cpu metis 2/4] RUN make",
            "started": "2026-11-21T01:19:29.152726877Z",
            "completed": "2026-11-21T01:19:31Z",
        }
    ]
}


def feed(output: Output, text: str) -> list[dict[str, object]]:
    return list(output.feed(text))


def test_objects_of_many_lines_in_pieces_of_any_size() -> None:
    text = json.dumps(STATUS, indent=2) + "\n" + json.dumps({"logs": []}, indent=2) + "\n"
    for size in (1, 7, 50, 10_000):
        output = Output()
        objects = [
            document
            for start in range(0, len(text), size)
            for document in output.feed(text[start : start + size])
        ]
        assert objects == [STATUS, {"logs": []}]


def test_objects_of_one_line() -> None:
    assert feed(Output(), '{"logs": []}\n{"statuses": []}\n') == [{"logs": []}, {"statuses": []}]


def test_plain_text_after_the_objects_is_kept() -> None:
    output = Output()
    feed(output, '{"logs": []}\nDockerfile:8\n----\n  8 | >>> RUN false\nERROR: failed')
    assert output.end() == ("Dockerfile:8", "----", "  8 | >>> RUN false", "ERROR: failed")


def test_a_step_with_its_target_stage_and_position() -> None:
    (step,) = events(STATUS, {"mpi-cpu": "mpi-cpu", "other": "other"})
    assert step == Step(
        digest="sha256:aa",
        target="mpi-cpu",
        stage="metis",
        position="2/4",
        text="RUN make",
        started=1795223969.152726,
        completed=1795223971.0,
    )


def test_a_single_target_is_not_named_by_buildx() -> None:
    (step,) = events({"vertexes": [{"digest": "d", "name": "[metis 2/4] RUN make"}]}, {"mpi-cpu": "mpi-cpu"})
    assert isinstance(step, Step)
    assert (step.target, step.stage, step.position) == ("mpi-cpu", "metis", "2/4")


def test_a_stage_called_as_the_only_target() -> None:
    (step,) = events({"vertexes": [{"digest": "d", "name": "[metis 2/4] RUN make"}]}, {"metis": "metis"})
    assert isinstance(step, Step)
    assert (step.target, step.stage) == ("metis", "metis")


def test_the_export_has_no_stage() -> None:
    (step,) = events({"vertexes": [{"digest": "d", "name": "[a] exporting to image"}]}, {"a": "a", "b": "b"})
    assert isinstance(step, Step)
    assert (step.target, step.stage, step.position, step.text) == ("a", "", "", "exporting to image")


def test_logs_and_transfers() -> None:
    data = base64.b64encode("fünf\n".encode()).decode()
    status = {
        "logs": [{"vertex": "d", "stream": 1, "data": data, "timestamp": "2026-11-21T01:19:31Z"}],
        "statuses": [{"vertex": "d", "id": "transferring context:", "current": 5, "total": 9}],
    }
    assert list(events(status, {"a": "a"})) == [
        StepTransfer("d", "transferring context:", 5, 9, False),
        Log("d", "fünf\n", 1795223971.0),
    ]


def test_a_log_hides_the_login_of_a_proxy() -> None:
    tail = Tail(2)
    tail.add("http_proxy=http://me:sec")
    tail.add("ret@proxy.example:3128\n")

    assert tail.lines() == ("http_proxy=http://*********@proxy.example:3128",)


def test_the_tail_of_a_log_that_comes_in_pieces() -> None:
    tail = Tail(2)
    for text in ("one\ntw", "o\nthree", "\n\n"):
        tail.add(text)
    assert tail.lines() == ("two", "three")


def test_a_tail_ends_with_the_line_that_is_not_finished() -> None:
    tail = Tail(2)
    tail.add("one\ntwo\nthr")
    assert tail.lines() == ("two", "thr")


def test_a_tail_has_no_colours_and_no_overwritten_progress() -> None:
    tail = Tail()
    tail.add("\x1b[31mred\x1b[0m\n 10%\r 50%\r100%\r\n")
    assert tail.lines() == ("red", "100%")


def test_a_damaged_object_is_kept_as_text_and_the_next_one_is_read() -> None:
    output = Output()

    assert feed(output, '{"logs": [}\n{"logs": []}\n') == [{"logs": []}]
    assert feed(output, "[" * 2_000 + "\n" + '{"a":' * 50_000 + "\n") == []
    assert output.end()[0] == '{"logs": [}'


@pytest.mark.timeout(30)
def test_a_long_line_in_many_pieces_is_read_fast() -> None:
    output, line = Output(), json.dumps({"logs": ["x" * 20_000_000]}) + "\n"

    objects = [
        document for start in range(0, len(line), 500) for document in output.feed(line[start : start + 500])
    ]

    assert objects == [json.loads(line)]


def test_entries_in_an_unknown_form_are_left_out() -> None:
    vertex = {"digest": "d", "name": "[metis 2/4] RUN make"}
    entries = [None, 3, {}, {"digest": "d"}, {**vertex, "started": "soon"}, {**vertex, "name": 5}, vertex]

    [step] = events({"vertexes": entries, "logs": [{"vertex": "d", "data": 5}], "statuses": 3}, {"a": "a"})

    assert step == Step("d", "a", "metis", "2/4", "RUN make")
