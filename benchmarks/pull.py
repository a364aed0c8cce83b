"""P13: pull and unpack of an image from a registry, compared with the same layers compressed by BuildKit.

.venv/bin/python benchmarks/pull.py pytorch-cpu

The image must be built. It is pushed twice to a registry on loopback: by Bakehouse, and by BuildKit with its
gzip (`--output type=image,compression=gzip,push=true`). An engine of its own pulls both alternately; before
each pull its images are removed. Needs root.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bakehouse.builder.pack import Packer
from bakehouse.engine.open_engine import open_engine
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.publish.push import PushOptions, publish
from bakehouse.registry.registry import NamedRegistry
from benchmarks import harness
from benchmarks.cold_engine import ColdEngine, cold_engine
from benchmarks.harness import ROOT, Measure, Result, Spent
from benchmarks.layer_push import layer_bytes
from benchmarks.push_sharing import free_port
from tests.integration import tiny_images


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def buildkit_pushes(stored: str, name: str) -> None:
    """Push the layers of an image as BuildKit compresses them."""
    output = f"type=image,name={name},push=true,compression=gzip,force-compression=true,oci-mediatypes=false"
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "Dockerfile").write_text(f"FROM {stored}\n")
        harness.output(["docker", "buildx", "build", "--provenance=false", "--output", output, directory])
    # The exporter also leaves it in the engine.
    harness.output(["docker", "image", "rm", "--force", name])


def pull(engine: ColdEngine, name: str) -> Spent:
    """Return the times of one pull into an engine without images; the removal is not counted."""
    spent = harness.command(["docker", "pull", "--quiet", name], env=engine.environment)
    engine.docker("image", "rm", "--force", name)
    engine.docker("image", "prune", "--all", "--force")
    return spent


def unpacked_layers(engine: ColdEngine, name: str) -> list[str]:
    """Pull an image, and return the digests of its unpacked layers."""
    engine.docker("pull", "--quiet", name)
    layers = engine.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name)
    engine.docker("image", "rm", "--force", name)
    return list(json.loads(layers))


def measured(options: argparse.Namespace) -> Result:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/lib")))
        image = options.image
        if options.short:
            (directory / "image").mkdir()
            image = harness.SMALL
            built = stack.enter_context(tiny_images.built(directory / "image", image))
            stack.callback(harness.remove_images, image)
            harness.output(["docker", "tag", built.stored, built.image.reference])
        else:
            (built,) = ensure_built(select(open_workspace(ROOT), [image]), say)
        local = stack.enter_context(harness.local_registry(directory, free_port()))
        connected = stack.enter_context(open_engine(say))
        publication = PushOptions(day=datetime.now(UTC).date(), locks=directory / "locks", candidate=True)
        untested = KnownChecks(built.image.name, built.content)
        published = publish(
            built, untested, NamedRegistry(local.host, say), Packer(connected, directory), publication, say
        )
        names = {
            "ours": f"{local.host}/{published.repository}:{published.tags[0]}",
            "BuildKit": f"{local.host}/buildkit/{image}:gzip",
        }
        buildkit_pushes(built.image.reference, names["BuildKit"])
        engine = stack.enter_context(cold_engine(directory))
        jobs = {key: lambda name=name: pull(engine, name) for key, name in names.items()}
        rounds = harness.interleaved(jobs, options.rounds)
        sizes = {key: layer_bytes(name) for key, name in names.items()}
        same = harness.require_same(
            "unpacked layers", *(unpacked_layers(engine, name) for name in names.values())
        )
    return Result(
        (
            Measure(
                "P13",
                f"pull and unpack of {image}",
                harness.wall(rounds["ours"]),
                harness.wall(rounds["BuildKit"]),
                most_ratio=1.0,
            ),
            Measure("P13", "its layers", sizes["ours"], sizes["BuildKit"], "bytes", most_ratio=1.0),
        ),
        rounds,
        same=(same,),
    )


if __name__ == "__main__":
    given = harness.parser(__doc__, rounds=3)
    given.add_argument("image", nargs="?", default="pytorch-cpu", help="a built image (pytorch-cpu)")
    harness.run("pull", given, measured)
