"""The benchmarks' frame: medians, the table, the JSON file, and rounds that take turns."""

import argparse
import functools
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Measure, Result, Spent


def spent(wall: float, cpu: float = 0.0) -> Spent:
    return Spent(wall, cpu, 0.0)


def test_medians_are_of_the_wall_and_of_the_cpu() -> None:
    rounds = [spent(3.0, 0.1), spent(1.0, 0.9), spent(2.0, 0.2)]
    assert (harness.wall(rounds), harness.cpu(rounds)) == (2.0, 0.2)


def test_each_round_does_every_job_once_and_begins_with_another() -> None:
    done: list[str] = []

    def job(name: str) -> Spent:
        done.append(name)
        return spent(float(len(done)))

    said: list[str] = []
    found = harness.interleaved(
        {name: functools.partial(job, name) for name in "abc"}, rounds=3, say=said.append
    )
    assert "".join(done) == "abcbcacab"
    assert [one.wall for one in found["a"]] == [1.0, 6.0, 8.0]
    assert said[3] == "round 2 of 3: b 4.00 s"


def test_a_job_s_cpu_is_that_of_its_processes_too() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    found = harness.command([sys.executable, "-c", busy])
    assert found.cpu >= 0.3
    assert found.wall >= 0.3


def test_a_program_that_fails_ends_the_benchmark_with_its_last_words() -> None:
    with pytest.raises(SystemExit) as ended:
        harness.command([sys.executable, "-c", "print('no disk'); raise SystemExit(5)"])
    assert (
        str(ended.value)
        == f"`{sys.executable} -c print('no disk'); raise SystemExit(5)` ended with 5:\nno disk"
    )


@pytest.mark.parametrize(
    ("measure", "reached"),
    [
        (Measure("P3", "a ratio below its goal", 1.4, 1.0, most_ratio=1.5), True),
        (Measure("P3", "a ratio above its goal", 1.6, 1.0, most_ratio=1.5), False),
        (Measure("P5", "seconds at their goal", 1.5, most=1.5), True),
        (Measure("P5", "seconds above their goal", 1.51, most=1.5), False),
        (Measure("P6", "one of two goals", 4.0, 5.0, most=4.6, most_ratio=0.5), False),
        (Measure("P4", "no goal", 4.0, 5.0), None),
        (Measure("P3", "nothing to hold against it", 4.0, most_ratio=1.5), None),
    ],
)
def test_a_goal_is_reached_by_what_is_at_most_it(measure: Measure, reached: bool | None) -> None:
    assert measure.is_reached is reached


def test_the_table_is_markdown_with_its_columns_aligned() -> None:
    measures = (
        Measure("P3", "nothing changed", 2.9, 2.0, most_ratio=1.5),
        Measure("P4", "one image", 1.126, unit="ms", most=1.0),
        Measure("", "a layer", 472_800_000, 1000, unit="bytes"),
    )
    assert harness.table(measures) == (
        "|    | measure         | ours     | against | ratio    | goal        | reached |\n"
        "|----|-----------------|----------|---------|----------|-------------|---------|\n"
        "| P3 | nothing changed | 2.90 s   | 2.00 s  | 1.45     | ≤ 1.5 times | yes     |\n"
        "| P4 | one image       | 1.13 ms  |         |          | ≤ 1.00 ms   | **no**  |\n"
        "|    | a layer         | 472.8 MB | 1.0 kB  | 4.73e+05 |             |         |"
    )


def test_numbers_that_the_goal_is_compared_with_are_not_rounded() -> None:
    assert Measure("P4", "one image", 1.0004, unit="ms", most=1.0).is_reached is False


def test_a_run_writes_what_it_measured_where_and_of_which_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    took = [spent(1.0, 0.5), spent(2.0, 0.6)]
    rounds = {"ours": took, "bytes": [1, 2]}

    def measured(asked: argparse.Namespace) -> Result:
        assert asked.rounds == 2
        return Result((Measure("P3", "nothing changed", 1.5, 1.0, most_ratio=1.5),), rounds, ("Told so.",))

    path = tmp_path / "there" / "x.json"
    harness.run("x", harness.parser("What it is.", rounds=5), measured, ["--rounds=2", f"--json={path}"])
    found = json.loads(path.read_text())
    assert found["name"] == "x"
    assert found["asked"]["rounds"] == "2"
    assert found["rounds"] == {"ours": [asdict(one) for one in took], "bytes": [1, 2]}
    assert found["measures"][0]["ratio"] == 1.5
    assert found["measures"][0]["is_reached"] is True
    assert found["notes"] == ["Told so."]
    here = harness.machine()
    assert found["machine"] | asdict(here) == found["machine"]
    assert {"load_began", "load_ended"} < set(found["machine"])
    printed = capsys.readouterr().out
    assert printed.startswith(harness.table([Measure("P3", "nothing changed", 1.5, 1.0, most_ratio=1.5)]))
    assert "\nTold so.\n" in printed
    assert f"commit {here.commit[:12]}" in printed


def test_without_a_path_the_numbers_go_below_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    harness.run("x", harness.parser("", rounds=1), lambda _: Result(()), [])
    assert (tmp_path / "build" / "benchmarks" / "x.json").is_file()


def test_a_processor_that_is_not_named_is_unknown() -> None:
    assert harness.cpu_model("processor\t: 0\nmodel name\t: Xeon 8\n\nmodel name\t: Xeon 9\n") == "Xeon 8"
    assert harness.cpu_model("processor\t: 0\n") == "unknown"
