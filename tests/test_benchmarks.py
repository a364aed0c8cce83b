"""The benchmarks: their frame (medians, the table, the JSON file, rounds that take turns), and each once."""

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bakehouse.plan.model import Plan
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import open_workspace, plan_images
from benchmarks import catalogue_load, harness, layer_push, plan_time, report_page, resolve_render
from benchmarks.harness import Measure, Result, Spent
from tests.support.browser import find_program
from tests.support.fake_commands import put
from tests.support.programs import BAKE


def spent(wall: float, cpu: float = 0.0) -> Spent:
    return Spent(wall, cpu, 0.0)


def test_medians_are_of_the_wall_and_of_the_cpu() -> None:
    rounds = [spent(3.0, 0.1), spent(1.0, 0.9), spent(2.0, 0.2)]
    assert (harness.wall(rounds), harness.cpu(rounds)) == (2.0, 0.2)


def test_each_round_does_every_job_once_and_begins_with_another() -> None:
    jobs: list[str] = []

    def job(name: str) -> Spent:
        jobs.append(name)
        return spent(float(len(jobs)))

    messages: list[str] = []
    costs = harness.interleaved(
        {name: functools.partial(job, name) for name in "abc"}, rounds=3, report=messages.append
    )
    assert "".join(jobs) == "abcbcacab"
    assert [cost.wall for cost in costs["a"]] == [1.0, 6.0, 8.0]
    assert messages[3] == "round 2 of 3: b 4.00 s"


def test_a_job_s_cpu_is_that_of_its_processes_too() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    cost = harness.command([sys.executable, "-c", busy])
    assert cost.cpu >= 0.3
    assert cost.wall >= 0.3


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

    def measured(arguments: argparse.Namespace) -> Result:
        assert arguments.rounds == 2
        return Result((Measure("P3", "nothing changed", 1.5, 1.0, most_ratio=1.5),), rounds, ("A note.",))

    path = tmp_path / "there" / "x.json"
    harness.run("x", harness.parser("A benchmark.", rounds=5), measured, ["--rounds=2", f"--json={path}"])
    document = json.loads(path.read_text())
    assert document["name"] == "x"
    assert document["asked"]["rounds"] == "2"
    assert document["rounds"] == {"ours": [asdict(cost) for cost in took], "bytes": [1, 2]}
    assert document["measures"][0]["ratio"] == 1.5
    assert document["measures"][0]["is_reached"] is True
    assert document["notes"] == ["A note."]
    machine = harness.machine()
    assert document["machine"] | asdict(machine) == document["machine"]
    assert {"load_began", "load_ended"} < set(document["machine"])
    printed = capsys.readouterr().out
    assert printed.startswith(harness.table([Measure("P3", "nothing changed", 1.5, 1.0, most_ratio=1.5)]))
    assert "\nA note.\n" in printed
    assert f"commit {machine.commit[:12]}" in printed


def test_without_a_path_the_numbers_go_below_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    harness.run("x", harness.parser("", rounds=1), lambda _: Result(()), [])
    assert (tmp_path / "build" / "benchmarks" / "x.json").is_file()


def test_a_processor_that_is_not_named_is_unknown() -> None:
    assert harness.cpu_model("processor\t: 0\nmodel name\t: Xeon 8\n\nmodel name\t: Xeon 9\n") == "Xeon 8"
    assert harness.cpu_model("processor\t: 0\n") == "unknown"


@pytest.fixture
def without_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `./bake` be this Python: the wrapper would make an environment where there is none."""
    monkeypatch.setattr(harness, "BAKE", BAKE)
    monkeypatch.setenv("PYTHONPATH", str(harness.ROOT))


@pytest.mark.usefixtures("without_wrapper")
def test_resolving_and_rendering_is_measured_beside_hpccm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reference = {"version": "26.5.0", "lines": 78, "milliseconds": [0.4]}
    monkeypatch.setattr(resolve_render, "peer", lambda: "")
    monkeypatch.setattr(resolve_render, "hpccm", lambda python, count: (reference, spent(0.2, 0.2)))
    report = report_of(resolve_render.main, tmp_path, "mpi-cpu", "mpi5-cpu")
    assert [measure["id"] for measure in report["measures"] if measure["id"]] == ["P4", "P4", "P5"]
    assert report["measures"][0]["what"] == "an image, 2 in a row, CPU"
    assert report["measures"][0]["against"] == 0.4
    assert [len(times) for times in report["rounds"]["alone"]] == [2]


def test_what_is_planned_is_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = open_workspace(harness.ROOT)
    plans: list[Plan] = []

    def kept(*arguments: Any) -> Plan:
        plans.append(make_plan(*arguments))
        return plans[-1]

    monkeypatch.setattr(resolve_render, "make_plan", kept)
    resolve_render.timed(workspace.recipes["mpi-cpu"], workspace)
    assert plans[0].images == plan_images(workspace, ["mpi-cpu"]).images


def test_the_catalogue_is_measured_anew_and_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    report = report_of(catalogue_load.main, tmp_path)
    assert [measure["most"] for measure in report["measures"]] == [300.0, 80.0, None]


@pytest.mark.usefixtures("without_wrapper")
def test_plans_of_every_count_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    report = report_of(plan_time.main, tmp_path, "--counts", "1", "2")
    assert [measure["what"] for measure in report["measures"]] == [
        "plan, each of 1 images, CPU",
        "plan, each of 2 images, CPU",
        "each of 2 against each of 1",
        "`./bake plan` of 2 YAML files, as a process",
    ]
    assert all(measure["ours"] > 0 for measure in report["measures"])


@pytest.mark.skipif(find_program() is None, reason="no Chromium on this machine")
def test_the_page_is_measured_in_a_browser(tmp_path: Path) -> None:
    report = report_of(report_page.main, tmp_path, "--images", "3")

    assert [measure["what"] for measure in report["measures"]] == [
        "the page, 3 images",
        "the same, CPU",
        "the view of an image, 3 images",
        "the same, CPU",
        "the timeline, 3 images",
        "the same, CPU",
        "the changes since a commit, 3 images",
        "the same, CPU",
        "the list, filtered by name, 3 images",
        "the same, CPU",
        "size of the page, 3 images",
    ]
    # The CPU time of a short step can be less than a tick of the clock
    assert all(measure["ours"] > 0 for measure in report["measures"] if measure["id"])


def test_generated_images_are_taken_evenly_and_differ() -> None:
    recipes = list(open_workspace(harness.ROOT).recipes.values())
    generated = plan_time.generated(recipes, 2)
    assert [recipe.name for recipe in generated] == ["generated-0000", "generated-0001"]
    assert generated[1].components == recipes[len(recipes) // 2].components
    assert generated[1].content.environment[-1] == ("GENERATED", "1")
    assert len(plan_time.generated(recipes[:3], 7)) == 7


@pytest.mark.parametrize("name", ["noop_build", "push_sharing", "smoke_suite"])
def test_what_needs_an_engine_has_a_command_line_that_tells_what_it_does(name: str) -> None:
    command = [sys.executable, str(harness.ROOT / "benchmarks" / f"{name}.py"), "--help"]
    env = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    assert "--rounds" in output
    assert "--json" in output


def report_of(main: Callable[[list[str]], None], directory: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON report of a benchmark with one round."""
    main(["--rounds=1", f"--json={directory / 'found.json'}", *arguments])
    report: dict[str, Any] = json.loads((directory / "found.json").read_text())
    return report


def test_a_push_benchmark_that_is_interrupted_leaves_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        layer_push, "EmbeddedRegistry", lambda *_: contextlib.nullcontext(SimpleNamespace(host="registry"))
    )
    monkeypatch.setattr("bakehouse.engine.docker.connect", lambda: None)
    put(tmp_path, monkeypatch, docker=f'echo "$@" >> {tmp_path}/asked')

    def interrupted_build(*command: str) -> str:
        output = run(*command)
        if command[1] == "build":
            raise KeyboardInterrupt
        return output

    run = layer_push.run
    monkeypatch.setattr(layer_push, "run", interrupted_build)
    (tmp_path / "library").write_bytes(b"")
    monkeypatch.setattr(layer_push, "BYTES", 100)

    with pytest.raises(KeyboardInterrupt), layer_push.bench(tmp_path / "library", os.getpid()) as way:
        way.plain()

    commands = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    [name] = [command[command.index("--tag") + 1] for command in commands if command[0] == "build"]
    assert ["image", "rm", "--force", name] in commands
