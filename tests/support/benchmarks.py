"""Short runs of the benchmarks, and the tests that run shorter campaigns."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bakehouse.catalog.project import HOME

BENCHMARKS = HOME / "benchmarks"
SHORT_PURE = (
    "catalogue_load",
    "demo",
    "fleet_commands",
    "image_uri",
    "look_ups",
    "plan_time",
    "questions",
    "report_page",
    "resolve_render",
)
"""Benchmarks whose short run needs no engine, in `tests/test_benchmarks.py`."""
QUICK = ("image_uri", "questions", "resolve_render")
"""The daily ones; `./bake test --release` runs all."""
SHORT_WITH_ENGINE = (
    *("fleet_build", "image_size", "layer_push", "noop_build", "own_code", "pull", "push_sharing"),
    *("smoke_suite", "push_faults"),
)
"""Benchmarks whose short run `tests/integration/test_benchmarks.py` starts."""
SHORT_WITHOUT_JSON = ("push_faults",)
"""Benchmarks that print their comparison, but write no JSON file by default."""
CAMPAIGNS = {
    "fill_disks": ("robustness/test_full_disks.py", "integration/test_killed_tasks.py"),
    "hostile_repositories": ("robustness/test_hostile_repositories.py",),
    "key_replay": ("plan/test_key_replay.py",),
    "heterogeneous": ("integration/test_pytorch_launchers.py", "integration/test_tensorflow_launchers.py"),
    "kill_clusters": ("integration/test_killed_clusters.py",),
    "kill_commands": ("robustness/test_killed_commands.py", "integration/test_killed_tasks.py"),
    "mutated_inputs": ("robustness/test_mutated_inputs.py",),
    "push_race": ("integration/test_push_race.py",),
}
"""Campaigns, and the tests that run fewer rounds of them with the same code."""
PARTS = {"hpccm_project": "own_code", "hpccm_recipe": "resolve_render"}
"""Scripts that another benchmark runs."""
_RUN = """
import runpy, sys
from benchmarks import harness
from tests.support.programs import BAKE
# The wrapper would make an environment where there is none.
harness.BAKE = BAKE
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def scripts() -> set[str]:
    """Return the names of all benchmarks that are programs."""
    return {path.stem for path in BENCHMARKS.glob("*.py") if "\nif __name__ == " in path.read_text()}


def imported(path: Path) -> set[str]:
    """Return the modules of tests and benchmarks that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith(("tests.", "benchmarks."))}


def run(name: str, *arguments: str) -> str:
    """Run a benchmark and return its output."""
    command = [sys.executable, "-c", _RUN, str(BENCHMARKS / f"{name}.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "BAKEHOUSE_KEEP_REGISTRY": "0"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def messages_of(name: str) -> str:
    """Return the output of a short run."""
    return run(name, "--short")


def report_of(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON report of a short run."""
    path = directory / "report.json"
    run(name, "--short", f"--json={path}", *arguments)
    report: dict[str, Any] = json.loads(path.read_text())
    return report
