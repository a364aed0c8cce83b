"""Cost of exporting and pushing a layer of libraries with each compression.

.venv/bin/python benchmarks/layer_push.py libtorch_cpu.so

The layer is the first 400 MB of that library, with a new file each time, so that no compressed or pushed
layer is reused. Each round exports and pushes it in all forms to a registry on loopback. The plain form uses
the defaults of `docker build` and `docker push`. CPU seconds are those of the engine, its child processes and
the registry. Use a separate engine, with `DOCKER_HOST` and `--engine`, if other programs use this one.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.catalog.recipe import Content
from bakehouse.engine import docker
from bakehouse.evidence.known_checks import KnownChecks
from bakehouse.plan.model import Image, ImageKey, InstalledComponent, RegistryBase
from bakehouse.publish.push import PushOptions, publish
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.oci import ContentId, Digest
from benchmarks import harness
from benchmarks.harness import Measure, Result, Spent

BYTES, SHORT_BYTES = 400_000_000, 4_000_000
PLAIN = "plain docker build and push"
DEFAULT = "gzip, our default"
ZSTD = "zstd, `format: oci-zstd`"
FORMS = {DEFAULT: "docker", ZSTD: "oci-zstd"}
"""Formats of recipes."""
IMAGE = Image(
    "benchmark",
    "",
    RegistryBase("scratch", Digest("sha256:" + "0" * 64)),
    (InstalledComponent("scratch", "0", ""),),
    Content(),
    gpu=False,
    launchers=(),
    recipe_key=ImageKey("0" * 64),
    key=ImageKey("0" * 64),
)
EXPORTER = "oci-mediatypes=false,compression=uncompressed,force-compression=true"
BUILD = ("docker", "buildx", "build", "--quiet", "--provenance=false")


@dataclass(frozen=True)
class Way:
    """Export and push of one form."""

    export: Spent
    push: Spent
    bytes: int
    """Size of the pushed layer."""
    reference: str

    @property
    def wall(self) -> float:
        return self.export.wall + self.push.wall

    @property
    def cpu(self) -> float:
        return self.export.cpu + self.push.cpu


class Bench:
    """Directory of the layer, and the registry for its pushes."""

    def __init__(self, directory: Path, registry: str, step: str, engine: int) -> None:
        self._directory, self._registry, self._step = directory, registry, step
        self._engine = engine
        self._packer = Packer(docker.connect(), directory / "state")
        self._names: list[str] = []

    def plain(self) -> Way:
        name = self._fresh()
        command = ("docker", "build", "--quiet", "--tag", name, str(self._directory / "build"))
        export = self._spent(lambda: run(*command))
        push = self._spent(lambda: run("docker", "push", "--quiet", name))
        return self._way(name, export, push)

    def ours(self, form: str) -> Way:
        name, metadata = self._fresh(), self._directory / "metadata.json"
        output = (
            f"type=image,name={name},oci-mediatypes=false,compression=uncompressed,force-compression=true"
        )
        build = str(self._directory / "build")
        command = (*BUILD, "--metadata-file", str(metadata), "--output", output, build)
        export = self._spent(lambda: run(*command))
        digests = json.loads(metadata.read_text())
        config, stored = (Digest(digests[f"containerimage.{kind}digest"]) for kind in ("config.", ""))
        untested = KnownChecks(IMAGE.name, ContentId(""))
        built = BuiltImage(replace(IMAGE, format=form), config, stored, BYTES, untested.content)
        publication = PushOptions(
            date(2026, 11, 20), self._directory, candidate=True, stall=600.0, settle=0.0
        )
        registry = NamedRegistry(self._registry, lambda _: None)

        def push() -> None:
            published.append(publish(built, untested, registry, self._packer, publication, lambda _: None))

        published: list[PublishedImage] = []
        spent = self._spent(push)
        shutil.rmtree(self._directory / "state" / "layers")
        return self._way(f"{registry.host}/{published[0].repository}:{published[0].tags[0]}", export, spent)

    def _fresh(self) -> str:
        """Return the name of an image whose layer exists only uncompressed."""
        (self._directory / "build/layer/new").write_text(secrets.token_hex())
        run(*BUILD, "--output=type=cacheonly", str(self._directory / "build"))
        self._names.append(f"{self._registry}/benchmark:{secrets.token_hex(4)}")
        return self._names[-1]

    def _spent(self, job: Callable[[], object]) -> Spent:
        """Return the times of a job, with the CPU time of the engine and of all child processes."""
        roots = (self._engine, os.getpid())
        before = cpu_seconds(roots)
        cost = harness.spent(job)
        return Spent(cost.wall, cpu_seconds(roots) - before, cost.machine)

    def _way(self, pushed: str, export: Spent, push: Spent) -> Way:
        self.clear()
        return Way(export, push, layer_bytes(pushed), pushed)

    def clear(self) -> None:
        """Remove the built image from the engine: each layer has 400 MB."""
        for name in self._names:
            # An interrupted push may or may not have completed.
            subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)
        self._names.clear()
        cached = run("docker", "buildx", "du", "--verbose")
        for cache_id in re.findall(rf"^ID:\s+(\S+)\n(?:.+\n)*?Description:\s.*{self._step}", cached, re.M):
            run("docker", "builder", "prune", "--force", "--all", "--filter", f"id={cache_id}")


def layer_bytes(reference: str) -> int:
    """Return the size of an image's layers in a registry."""
    return sum(int(layer["size"]) for layer in layers(reference))


def layer_files(reference: str) -> dict[str, int]:
    """Return the sizes of the files in an image's layers in a registry."""
    host, _, rest = reference.partition("/")
    files: dict[str, int] = {}
    for layer in layers(reference):
        url = f"http://{host}/v2/{rest.rpartition(':')[0]}/blobs/{layer['digest']}"
        with urlopen(url) as response:
            content = response.read()
        is_zstd = content.startswith(zstandard.FRAME_HEADER)
        tar = (
            zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
            if is_zstd
            else gzip.decompress(content)
        )
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            files |= {member.name: member.size for member in archive if member.isfile()}
    return files


def layers(reference: str) -> list[dict[str, Any]]:
    """Return the layers of an image in a registry, or of the first image of an index."""
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    kinds = ("oci.image.index.v1", "docker.distribution.manifest.list.v2", "oci.image.manifest.v1",
             "docker.distribution.manifest.v2")  # fmt: skip
    accepted = ", ".join(f"application/vnd.{kind}+json" for kind in kinds)
    url = f"http://{host}/v2/{repository}/manifests/{tag}"
    document = _document(url, accepted)
    if "manifests" in document:
        document = _document(f"{url.rpartition('/')[0]}/{document['manifests'][0]['digest']}", accepted)
    result: list[dict[str, Any]] = document["layers"]
    return result


def _document(url: str, accepted: str) -> Any:
    with urlopen(Request(url, headers={"Accept": accepted})) as response:
        return json.load(response)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU time of processes and all their children."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    left, total = [*roots], 0
    while left:
        pid = left.pop()
        total += ticks.get(pid, 0)
        left += [child for child, parent in parents.items() if parent == pid]
    return total / os.sysconf("SC_CLK_TCK")


def usual_engine() -> int:
    return int(Path("/run/docker.pid").read_text())


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def bench(library: Path, engine: int, size: int = BYTES) -> Iterator[Bench]:
    """Yield the layer, with so many bytes of the library, and a registry."""
    with tempfile.TemporaryDirectory() as temporary, socket.create_server(("127.0.0.1", 0)) as free:
        directory, port = Path(temporary), free.getsockname()[1]
        free.close()
        (directory / "build/layer").mkdir(parents=True)
        shutil.copyfile(library, directory / "build/layer/library")
        os.truncate(directory / "build/layer/library", size)
        step = f"COPY layer /{secrets.token_hex(4)}/"
        (directory / "build/Dockerfile").write_text(f"FROM scratch\n{step}\n")
        with harness.local_registry(directory, port) as registry:
            bench = Bench(directory, registry.host, step, engine)
            try:
                yield bench
            finally:
                bench.clear()


def measured(options: argparse.Namespace) -> Result:
    measurements: dict[str, list[Way]] = {name: [] for name in (PLAIN, *FORMS)}
    library = Path(sys.executable) if options.short else options.library
    if library is None:
        sys.exit("name a library, such as libtorch_cpu.so")
    size = SHORT_BYTES if options.short else BYTES
    with bench(library, options.engine or usual_engine(), size) as way:
        jobs: dict[str, Callable[[], Way]] = {PLAIN: way.plain}
        jobs |= {name: partial(way.ours, form) for name, form in FORMS.items()}

        def job(name: str) -> Spent:
            measurement = jobs[name]()
            measurements[name].append(measurement)
            return Spent(
                measurement.wall, measurement.cpu, measurement.export.machine + measurement.push.machine
            )

        calls = {name: partial(job, name) for name in jobs}
        harness.interleaved(calls, options.rounds)
        plain_files = layer_files(measurements[PLAIN][0].reference)
        same = (
            [
                harness.require_same(
                    f"files in the layer with {name}",
                    sorted(layer_files(measurements[name][0].reference).items()),
                    sorted(plain_files.items()),
                )
                for name in FORMS
            ]
            if options.short
            else []
        )
    wall = {name: median(sample.wall for sample in ways) for name, ways in measurements.items()}
    cpu = {name: median(sample.cpu for sample in ways) for name, ways in measurements.items()}
    plain = measurements[PLAIN][0].bytes
    measures = [
        Measure("P8", "our default: export and push", wall[DEFAULT], wall[PLAIN], most_ratio=0.25),
        Measure("P8", "zstd against the plain way's gzip", wall[ZSTD], wall[PLAIN], most_ratio=0.15),
    ]
    for name, ways in measurements.items():
        exported = median(sample.export.wall for sample in ways)
        measures += [
            Measure("", f"{name}: wall", wall[name], wall[PLAIN]),
            Measure("", f"{name}: of it the export", exported, wall[name]),
            Measure("", f"{name}: CPU", cpu[name], cpu[PLAIN]),
            Measure("", f"{name}: bytes", ways[0].bytes, plain, "bytes"),
        ]
    return Result(tuple(measures), measurements, same=same)


if __name__ == "__main__":
    given = harness.parser(__doc__, rounds=3)
    given.add_argument("library", type=Path, nargs="?")
    given.add_argument(
        "--engine", type=int, default=0, help="dockerd's process, where it isn't the usual one"
    )
    harness.run("layer_push", given, measured)
