"""How long Bakehouse takes to resolve, plan and render an image in process, beside HPCCM rendering one.

HPCCM is installed into `build/hpccm` first. It is told every version; Bakehouse chooses them.

python benchmarks/resolve_render.py
"""

import statistics
import subprocess
import sys
import time
import venv
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse import rendering
from bakehouse.plan import make_plan
from bakehouse.recipe import Recipe
from bakehouse.resolution import resolve
from bakehouse.workspace import Workspace, open_workspace

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "build" / "hpccm"
LIKE_THE_PEERS = "pytorch-2.10-cu128-py312-efa"
TIMES = 9
STEPS = ("resolve", "plan", "render")


def one(recipe: Recipe, workspace: Workspace) -> tuple[float, ...]:
    """Milliseconds of CPU for each step."""
    marks = [time.process_time()]
    resolution = resolve(recipe, workspace.catalog)
    marks.append(time.process_time())
    plan = make_plan([resolution], workspace.templates)
    marks.append(time.process_time())
    rendering.render(plan, workspace.templates)
    marks.append(time.process_time())
    return tuple(1000 * (end - start) for start, end in pairwise(marks))


def alone(recipe: Recipe, workspace: Workspace) -> tuple[float, ...]:
    """The same with nothing rendered before: no stage is taken over from another image."""
    found = []
    for _ in range(TIMES):
        rendering.forget()
        found.append(one(recipe, workspace))
    return tuple(statistics.median(step) for step in zip(*found, strict=True))


def peer() -> str:
    """HPCCM's version, its milliseconds for one image, and the lines it writes."""
    python = str(PEER / "bin" / "python")
    if not Path(python).exists():
        venv.create(PEER, with_pip=True)
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "hpccm", "setuptools"]
        subprocess.run(install, check=True)
    command = [python, str(ROOT / "benchmarks" / "hpccm_recipe.py"), str(10 * TIMES)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    workspace = open_workspace(ROOT)
    recipes = list(workspace.recipes.values())
    for recipe in recipes:
        one(recipe, workspace)
    rendering.forget()
    fleet = [sum(one(recipe, workspace)) for recipe in recipes]
    each = {recipe.name: alone(recipe, workspace) for recipe in recipes}
    totals = sorted(sum(steps) for steps in each.values())
    slowest = max(each, key=lambda name: sum(each[name]))
    version, milliseconds, lines = peer().split()

    print(f"{len(recipes)} images, milliseconds of CPU an image")
    print(f"all after each other   mean {statistics.mean(fleet):.2f}, stages that images share rendered once")
    most = totals[9 * len(totals) // 10]
    print(f"each alone             median {statistics.median(totals):.2f}, 90 % below {most:.2f}")
    for name in (LIKE_THE_PEERS, slowest):
        steps = ", ".join(f"{step} {spent:.2f}" for step, spent in zip(STEPS, each[name], strict=True))
        print(f"{name}: {sum(each[name]):.2f} ({steps})")
    print(f"HPCCM {version}, told every version: {float(milliseconds):.2f} for {lines} lines")
    print(f"ratio for images of the same parts: {sum(each[LIKE_THE_PEERS]) / float(milliseconds):.2f}")


if __name__ == "__main__":
    main()
