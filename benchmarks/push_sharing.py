"""P7: bytes sent by a push that shares layers with an earlier one, and time of an unchanged push.

.venv/bin/python benchmarks/push_sharing.py [mpi-cpu]

The second image has the components of the first one and its own training code; it is built here as one small
layer. Both go to the embedded registry through a proxy that counts bytes; image sizes are those of the pushed
layers. An unchanged push is timed without the proxy: `publish` uses a running registry, and the whole `bake
push --candidate` is a process that starts the embedded registry.
"""

import argparse
import re
import socket
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine.open_engine import open_engine
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.pipeline.build import ensure_built
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.queue import PushQueue
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.registry import NamedRegistry
from benchmarks import harness, layer_push
from benchmarks.harness import ROOT, Measure, Result
from tests.support.proxy import Proxy

SECOND = "second-image"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_project(directory: Path, image: str, port: int) -> None:
    """Create a project with one image: the components of another, and its own code."""
    harness.write_small_project(
        directory, settings=f'registry_port = {port}\nrepository_prefix = "benchmark"\n'
    )
    own = directory / "own" / "images"
    (own / "code").mkdir(parents=True)
    (own / "code" / "train.py").write_text(f'print("{datetime.now(UTC)}")\n')
    recipes = own if image == harness.SMALL else ROOT / "recipes" / "images"
    text = (recipes / f"{image}.yaml").read_text()
    # A recipe for several platforms is several images.
    text = re.sub(r"^platforms: .*\n", "", text, flags=re.M)
    (own / f"{SECOND}.yaml").write_text(f"{text}code:\n  directory: code\n  entry_point: train.py\n")


def layers(published: PublishedImage, host: str) -> list[str]:
    """Return the digests of the layers that the registry has of an image."""
    reference = f"{host}/{published.repository}:{published.tags[0]}"
    return [layer["digest"] for layer in layer_push.layers(reference)]


def measured(options: argparse.Namespace) -> Result:
    with ExitStack() as stack:
        directory, state = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        port = free_port()
        name = harness.SMALL if options.short else options.image
        write_project(directory, name, port)
        stack.callback(harness.remove_images, harness.SMALL)
        stack.callback(harness.remove_images, SECOND)
        images = ensure_built(select(open_workspace(directory), [name, SECOND]), say)
        first, second = sorted(images, key=lambda build: build.image.name == SECOND)
        publication = PushOptions(
            day=datetime.now(UTC).date(), locks=state / "locks", prefix="b", candidate=True
        )
        engine = stack.enter_context(open_engine(say))
        packer = Packer(engine, state)
        local = stack.enter_context(harness.local_registry(state, free_port()))
        proxy = stack.enter_context(Proxy(int(local.host.rpartition(":")[2])).running())

        # One command that pushes several images knows where the registry has a layer.
        queue = PushQueue()

        def pushed(image: BuiltImage, host: str) -> PublishedImage:
            registry = NamedRegistry(host, lambda _: None)
            untested = KnownChecks(image.image.name, image.content)
            return publish(image, untested, registry, packer, publication, say, queue)

        sent, whole, stored = [], [], []
        for build in (first, second, second):
            before = sum(len(request.body) for request in proxy.requests)
            published = pushed(build, proxy.host)
            whole.append(published.bytes)
            sent.append(sum(len(request.body) for request in proxy.requests) - before)
            stored.append(layers(published, local.host))
        same = [
            harness.require_same("layers of the first image", stored[1][: len(stored[0])], stored[0]),
            harness.require_same("layers, pushed twice", stored[2], stored[1]),
        ]
        command = ["push", "--candidate", SECOND]
        jobs = {
            "publish": lambda: harness.spent(lambda: pushed(second, local.host)),
            "process": lambda: harness.command([*harness.BAKE, *command], cwd=directory),
        }
        jobs["publish"]()
        jobs["process"]()
        rounds = harness.interleaved(jobs, options.rounds)
    rows = (
        Measure("P7", "bytes of a second image that were sent", sent[1], whole[1], "bytes", most_ratio=0.01),
        Measure("", f"bytes of the first, {name}, that were sent", sent[0], whole[0], "bytes"),
        Measure("", "bytes that an unchanged push sends", sent[2], whole[2], "bytes"),
        Measure("P7", "an unchanged push, in process", harness.wall(rounds["publish"]), most=0.3),
        Measure("", "its CPU", harness.cpu(rounds["publish"])),
        Measure("", "`bake push --candidate`, unchanged, the whole process", harness.wall(rounds["process"])),
        Measure("", "its CPU", harness.cpu(rounds["process"])),
    )
    return Result(rows, {**rounds, "sent": sent, "whole": whole}, same=same)


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=7)
    parser.add_argument("image", nargs="?", default="mpi-cpu", help="one of Bakehouse's (mpi-cpu)")
    harness.run("push_sharing", parser, measured, arguments)


if __name__ == "__main__":
    main()
