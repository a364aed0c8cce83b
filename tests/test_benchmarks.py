"""The benchmarks: their frame (medians, the table, the JSON file, rounds that take turns), and each once."""

import argparse
import contextlib
import functools
import importlib
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan.model import Plan
from bakehouse.plan.planner import make_plan
from bakehouse.plan.workspace import open_workspace, select
from benchmarks import harness, layer_push, plan_time, resolve_render, results_page
from benchmarks.harness import Measure, Result, Spent
from tests.support.benchmarks import (
    BENCHMARKS,
    CAMPAIGNS,
    PARTS,
    QUICK,
    SHORT_PURE,
    SHORT_WITH_ENGINE,
    imported,
    report_of,
    run,
    scripts,
)
from tests.support.browser import find_program
from tests.support.errors import raised
from tests.support.fake_commands import put


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
    error = raised(
        SystemExit, harness.command, [sys.executable, "-c", "print('no disk'); raise SystemExit(5)"]
    )
    assert str(error) == f"`{sys.executable} -c print('no disk'); raise SystemExit(5)` ended with 5:\nno disk"


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


def test_a_recorded_run_replaces_its_section_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(results_page, "PAGE", page)
    results_page.record("plan_time", "another one")
    results_page.record("look_ups", "an earlier run")

    def measured(arguments: argparse.Namespace) -> Result:
        return Result((Measure("P3", "nothing changed", 1.5, 1.0),), notes=("A note.",))

    arguments = ["--record", "--rounds=2", f"--json={tmp_path / 'x.json'}"]
    harness.run("look_ups", harness.parser("", rounds=5), measured, arguments)

    sections = results_page.sections(page.read_text())
    assert sections["plan_time"] == f"another one\n\nKey of the benchmark: {results_page.key('plan_time')}."
    run, table, note, key = sections["look_ups"].split("\n\n")
    assert run.startswith(f"{datetime.now(UTC).date()} ")
    assert f" commit {harness.machine().commit[:12]}" in run
    assert "| P3 | nothing changed | 1.50 s | 1.00 s |" in table
    assert (note, key) == ("- A note.", f"Key of the benchmark: {results_page.key('look_ups')}.")


def test_a_short_run_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        harness.run("x", harness.parser("", rounds=5), lambda _: Result(()), ["--record", "--short"])
    assert "error: --record needs a run without --short" in capsys.readouterr().err


def test_no_recorded_result_is_older_than_its_benchmark() -> None:
    keys = results_page.recorded_keys(results_page.PAGE.read_text())
    assert keys
    older = [name for name, key in keys.items() if key != results_page.key(name)]
    assert not older, "run them again with --record, or remove their sections"


def test_without_a_path_the_numbers_go_below_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    harness.run("x", harness.parser("", rounds=1), lambda _: Result(()), [])
    assert (tmp_path / "build" / "benchmarks" / "x.json").is_file()


def test_a_processor_that_is_not_named_is_unknown() -> None:
    assert harness.cpu_model("processor\t: 0\nmodel name\t: Xeon 8\n\nmodel name\t: Xeon 9\n") == "Xeon 8"
    assert harness.cpu_model("processor\t: 0\n") == "unknown"


def test_each_benchmark_is_run_by_a_test() -> None:
    tested = [*SHORT_PURE, *SHORT_WITH_ENGINE, *CAMPAIGNS, *PARTS]

    assert sorted(tested) == sorted(scripts())
    assert {PARTS[name] for name in PARTS} <= {*SHORT_PURE, *SHORT_WITH_ENGINE}
    for part, script in PARTS.items():
        assert f'"{part}.py"' in (BENCHMARKS / f"{script}.py").read_text()


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_and_its_tests_run_the_same_code(name: str) -> None:
    script = imported(BENCHMARKS / f"{name}.py")
    for path in CAMPAIGNS[name]:
        tests = imported(HOME / "tests" / path)
        # Fixtures and paths are not the code of a campaign.
        assert (script & tests - {"tests.integration.ports"}) or f"benchmarks.{name}" in tests, path

    importlib.import_module(f"benchmarks.{name}")


@pytest.mark.release
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_has_help(name: str) -> None:
    assert "usage: " in run(name, "--help")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.release) for name in SHORT_PURE]
)
def test_a_short_run_compares_the_work_of_both_sides(name: str, tmp_path: Path) -> None:
    if name == "report_page" and find_program() is None:
        pytest.skip("no Chromium on this machine")
    report = report_of(name, tmp_path)

    assert report["same"]
    assert {measure["is_reached"] for measure in report["measures"]} <= {None}
    # The CPU time of a short step can be less than a tick of the clock
    assert all(measure["ours"] > 0 for measure in report["measures"] if measure["id"])


def test_different_work_ends_the_benchmark() -> None:
    assert harness.require_same("packages", ["a", "b"], ["a", "b"]) == "Both sides have the same packages: 2."
    assert harness.require_same("images", 3, 3) == "Both sides have the same images: 3."
    error = raised(SystemExit, harness.require_same, "packages", ["a", "b"], ["a"])
    assert str(error) == "the two sides differ in packages: ['a', 'b'] and ['a']"
    with pytest.raises(AssertionError, match="nothing was compared"):
        harness.require_same("packages", [], [])


def test_a_short_run_without_a_comparison_fails(tmp_path: Path) -> None:
    parser = harness.parser("", rounds=5)

    with pytest.raises(SystemExit, match="the work of both sides was not compared"):
        harness.run("x", parser, lambda _: Result(()), ["--short", f"--json={tmp_path / 'x'}"])

    assert not (tmp_path / "x").exists()


def test_a_short_run_has_one_round_and_reaches_no_goal(tmp_path: Path) -> None:
    def measured(options: argparse.Namespace) -> Result:
        assert options.rounds == 1
        return Result((Measure("P3", "nothing changed", 1.0, 2.0, most_ratio=1.5),), same=("Same.",))

    path = tmp_path / "x"
    harness.run("x", harness.parser("", rounds=5), measured, ["--short", f"--json={path}"])

    document = json.loads(path.read_text())
    assert document["same"] == ["Same."]
    assert document["measures"][0]["ratio"] == 0.5
    assert document["measures"][0]["is_reached"] is None


def test_what_is_planned_is_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = open_workspace(harness.ROOT)
    plans: list[Plan] = []

    def kept(*arguments: Any) -> Plan:
        plans.append(make_plan(*arguments))
        return plans[-1]

    monkeypatch.setattr(resolve_render, "make_plan", kept)
    resolve_render.timed(workspace.recipes["mpi-cpu"], workspace)
    assert plans[0].images == select(workspace, ["mpi-cpu"]).plan.images


def test_generated_images_are_taken_evenly_and_differ() -> None:
    recipes = list(open_workspace(harness.ROOT).recipes.values())
    generated = plan_time.generated(recipes, 2)
    assert [recipe.name for recipe in generated] == ["generated-0000", "generated-0001"]
    assert generated[1].components == recipes[len(recipes) // 2].components
    assert generated[1].content.environment[-1] == ("GENERATED", "1")
    assert len(plan_time.generated(recipes[:3], 7)) == 7


def test_a_push_benchmark_that_is_interrupted_leaves_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        harness, "local_registry", lambda *_: contextlib.nullcontext(SimpleNamespace(host="registry"))
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
