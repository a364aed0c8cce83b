"""Speed-up of a second remote builder, for images that share a stage.

python benchmarks/two_builders.py

Both builders run on this machine, so that steps with CPU work could not be faster. The steps sleep instead,
and hold a lock of their builder: a builder runs one of them at a time, as if its processors were busy.
Images are received, and not loaded into the engine of this machine, which takes the same time for both.
"""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock
from uuid import uuid4

from bakehouse.builder import build_log
from bakehouse.builder.remote import RemoteBuild
from bakehouse.engine import docker
from bakehouse.engine.buildx import BakedImage
from bakehouse.util.oci import Digest
from benchmarks import harness
from benchmarks.harness import Measure, Result
from tests.integration.remote_builder import remote_builder
from tests.integration.remote_project import RemoteProject

LOCK = "--mount=type=cache,id=bench,target=/lock,sharing=locked"
STAGES = """\
RUN {lock} sleep {shared} && echo {run}
FROM base AS own
RUN {lock} sleep {seconds} && mkdir -p /out && echo {run} > /out/{name}
FROM base AS image
COPY --link --from=part /out/ /
COPY --link --from=own /out/ /
"""


def compare(
    project: RemoteProject, names: Sequence[str], seconds: Mapping[str, int], shared: int, rounds: int
) -> Result:
    """Build the images of a project on all builders, and on the first one."""
    with contextlib.closing(docker.connect()) as engine:
        base = engine.image(project.base)
    assert base
    steps: dict[str, int] = {}

    def build(job: str, *builders: str, lock: str = LOCK) -> None:
        run = uuid4().hex
        project.write(
            {
                name: STAGES.format(lock=lock, shared=shared, seconds=length, run=run, name=name)
                for name, length in seconds.items()
            }
        )
        began = datetime.now(UTC).replace(microsecond=0).isoformat()
        project.build(*builders)
        times = build_log.Build(began, ", ".join(builders), project.progress.steps())
        build_log.record_build(times, project.root / "state")
        keys = [(step.stage, step.position, step.text) for step in project.steps()]
        assert len(keys) == len(set(keys)), "a step ran twice"
        steps[job] = sum(step.stage == "own" for step in project.steps())

    instead = mock.patch.object(
        RemoteBuild, "_load", lambda *given: BakedImage(Digest(base.digest), given[2].config)
    )
    with instead:
        for name in names:
            # Sends the base, and measures each stage while nothing waits
            build(f"first on {name}", name, lock="")
        costs = harness.interleaved(
            {
                "two builders": lambda: harness.spent(lambda: build("two", *names)),
                "one builder": lambda: harness.spent(lambda: build("one", names[0])),
            },
            rounds,
        )
    same = harness.require_same("number of images' own steps", steps["two"], steps["one"])
    two, one = (harness.wall(costs[name]) for name in costs)
    what = f"{len(seconds)} images on two builders; reference: on one"
    return Result((Measure("", what, two, one, most_ratio=1 / 1.7),), costs, same=(same,))


def measured(asked: argparse.Namespace) -> Result:
    if asked.short:
        asked.shared, asked.seconds = 1, [1, 1]
    seconds = {f"image{number}": length for number, length in enumerate(asked.seconds)}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench")))
        os.environ["BUILDX_CONFIG"] = str(directory / "buildx")
        names = [
            stack.enter_context(remote_builder(directory / name, name, directory / "buildx")).name
            for name in ("far", "near")
        ]
        (directory / "project").mkdir()
        project = stack.enter_context(contextlib.closing(RemoteProject(directory / "project", [*seconds])))
        return compare(project, names, seconds, asked.shared, asked.rounds)


if __name__ == "__main__":
    parser = harness.parser(__doc__, rounds=1)
    parser.add_argument("--shared", type=int, default=10, help="seconds of the shared step")
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 15, 20, 25, 30, 35, 40, 45])
    harness.run("two_builders", parser, measured)
