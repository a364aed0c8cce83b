"""P3: overhead of `bake build` over `docker buildx bake` of the same files, without changes.

.venv/bin/python benchmarks/noop_build.py                      # all images that the engine has built
.venv/bin/python benchmarks/noop_build.py mpi-cpu pytorch-cpu

`bake build` reads and resolves the recipes, renders, and looks up the images in the engine. It does not ask
BuildKit about up-to-date images; for the second row its records are removed, so that it does. Images that are
not built yet, or not in the build cache, are built before the measurement, which can take long.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bakehouse.catalog.project import find
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.plan.workspace import open_workspace, render_images, select
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result, Spent


def built_images(root: Path, names: list[str]) -> list[Image]:
    """Return these images, rendered; by default those that the engine has."""
    import docker

    workspace = open_workspace(root)
    if names:
        plan = select(workspace, names).plan
        render_images(workspace, plan, lambda line: None)
        return list(plan.images)
    client = docker.from_env()
    present = {tag for image in client.images.list() for tag in image.tags}
    plan = select(workspace, []).plan
    images = [image for image in plan.images if image.reference in present]
    return [image for image in images if isinstance(image.base, BootstrappedBase)]


def asking(command: list[str], images: list[Image], root: Path) -> Spent:
    """Return the times of the command without records of earlier builds, so that BuildKit is asked."""
    for image in images:
        (find(root).state / "built" / f"{image.name}.json").unlink(missing_ok=True)
    return harness.command(command, cwd=root)


def stored(images: list[Image]) -> list[str]:
    """Return the identifiers of the images in the engine."""
    command = ["docker", "image", "inspect", "--format", "{{.Id}}"]
    return harness.output([*command, *(image.reference for image in images)]).split()


def measured(options: argparse.Namespace) -> Result:
    if not options.short:
        return measured_in(ROOT, options.images, options.rounds)
    with tempfile.TemporaryDirectory() as directory:
        harness.write_small_project(Path(directory))
        try:
            return measured_in(Path(directory), [harness.SMALL], 1)
        finally:
            harness.remove_images(harness.SMALL)


def measured_in(root: Path, patterns: list[str], number: int) -> Result:
    images = built_images(root, patterns)
    if not images:
        sys.exit("the engine has no image of this checkout: name some, to have them built")
    names = [image.name for image in images]
    command = [*harness.BAKE, "build", *names]
    files = [word for name in names for word in ("--file", f"images/{name}/docker-bake.json")]
    bare = ["docker", "buildx", "bake", "--provenance=false", *files, *(image.target for image in images)]
    harness.command(command, cwd=root)
    ours = stored(images)
    harness.command(bare, cwd=root)
    same = harness.require_same("images in the engine", ours, stored(images))
    jobs = {
        "ours": lambda: harness.command(command, cwd=root),
        "asked": lambda: asking(command, images, root),
        "bare": lambda: harness.command(bare, cwd=root),
    }
    if len(names) > 1:
        one_image = [*harness.BAKE, "build", names[0]]
        jobs["one"] = lambda: harness.command(one_image, cwd=root)
        alone = [*bare[:4], *files[:2], images[0].target]
        jobs["bare one"] = lambda: harness.command(alone, cwd=root)
    rounds = harness.interleaved(jobs, number)
    mine, plain, asked_mine = rounds["ours"], rounds["bare"], rounds["asked"]
    rows = [
        Measure(
            "P3",
            f"nothing changed, {len(names)} images, against a bare bake",
            harness.wall(mine),
            harness.wall(plain),
            most_ratio=0.7,
        ),
        Measure(
            "P3", "the same, BuildKit asked", harness.wall(asked_mine), harness.wall(plain), most_ratio=1.2
        ),
        Measure("", "the CPU of the command itself", harness.cpu(mine), harness.cpu(plain)),
    ]
    if "one" in rounds:
        mine, plain = rounds["one"], rounds["bare one"]
        rows.append(Measure("", f"{names[0]} alone", harness.wall(mine), harness.wall(plain)))
    return Result(rows, {**rounds, "images": names}, [f"Images: {', '.join(names)}."], [same])


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=5)
    parser.add_argument("images", nargs="*", help="names; none means all that the engine has")
    harness.run("noop_build", parser, measured, arguments)


if __name__ == "__main__":
    main()
