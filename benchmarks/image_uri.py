"""Time of `image_uris.retrieve` in new processes, including the import.

With `--sdk`, a directory with the installed SageMaker SDK, the SDK's own lookup is measured too.

python benchmarks/image_uri.py [--sdk DIRECTORY]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.ledger.releases import ReleasedComponent, ReleasedName, ReleasedRegion, ReleaseRecord, text_of
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result

TIMES = 21
IMAGES, RELEASES = 50, 20
"""Number of ledgers, and of releases in each."""
HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
ASK = """
import time
began, busy = time.perf_counter(), time.process_time()
{ask}
print(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - busy), uri)
"""
LOOKUP_CODE = """
from bakehouse import image_uris
uri = image_uris.retrieve({name!r}, region="eu-west-1", version="2.9", instance_type="ml.p4d.24xlarge")
"""
THEIRS = """
from sagemaker import image_uris
uri = image_uris.retrieve(
    "pytorch", region="eu-west-1", version="2.5", py_version="py311", instance_type="ml.p4d.24xlarge",
    image_scope="training",
)
"""


def ledgers(root: Path) -> None:
    """Create a project with many releases, half of them for GPUs."""
    (root / "pyproject.toml").write_text("[tool.bakehouse]\n")
    for number in range(IMAGES):
        name = f"image-{number}"
        records = [record(name, number, release) for release in range(RELEASES)]
        path = root / "images" / name / "releases.json"
        path.parent.mkdir(parents=True)
        path.write_text(text_of(records))


def record(name: str, number: int, release: int) -> ReleaseRecord:
    digest = f"sha256:{number * RELEASES + release:064x}"
    record = ReleaseRecord(
        image=name,
        key="7c1e44b0" * 8,
        digest=digest,
        registry=HOST,
        repository=f"team/{name}",
        tags=(f"{name}-20261120-7c1e44b0",),
        image_uri=f"{HOST}/team/{name}@{digest}",
        date="2026-11-20",
        tested=True,
        transport="nccl",
        checks=(),
        parts=tuple(ReleasedComponent(f"part-{part}", "1.0", "py311") for part in range(20)),
        gpu=number % 2 == 0,
        launchers=("mpirun", "torchrun"),
        training_module="",
        entry_point="",
        media_type="application/vnd.docker.distribution.manifest.v2+json",
        bytes=1,
        regions=(ReleasedRegion("eu-west-1", f"{HOST}/team/{name}@{digest}", f"{name}-20261120-7c1e44b0"),),
        provides=(ReleasedName("pytorch", "2.9.1"), ReleasedName("cuda", "12.8.1")),
    )
    return replace(record, gpu_architecture=">=7.5" if record.gpu else "")


def milliseconds(ask: str, directory: Path, path: Path, times: int) -> tuple[float, float, str]:
    """Return the median elapsed and CPU time of one lookup in new processes, and its result."""
    command = [sys.executable, "-c", ASK.format(ask=ask)]
    lines = [
        subprocess.run(
            command, cwd=directory, env={"PYTHONPATH": str(path)}, check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(times)
    ]
    wall, busy = (statistics.median(float(line[column]) for line in lines) for column in (0, 1))
    [uri] = {line[2] for line in lines}
    return wall, busy, uri


def measured(options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        ledgers(root)
        rows = {
            "an image's name": (LOOKUP_CODE.format(name="image-0"), ROOT),
            f"a framework, {IMAGES} ledgers of {RELEASES}": (LOOKUP_CODE.format(name="pytorch"), ROOT),
        }
        if options.sdk:
            rows["the SageMaker SDK"] = (THEIRS, options.sdk)
        results = {what: milliseconds(ask, root, path, options.rounds) for what, (ask, path) in rows.items()}
    same = [
        harness.require_same(
            "image_uri of `image-0`",
            results["an image's name"][2],
            record("image-0", 0, RELEASES - 1).image_uri,
        )
    ]
    for what, (_, _, uri) in results.items():
        same.append(harness.require_same(f"region, for {what}", uri.split(".")[3], "eu-west-1"))
    measures = [
        measure
        for what, (wall, busy, _) in results.items()
        for measure in (Measure("", what, wall, unit="ms"), Measure("", "its CPU", busy, unit="ms"))
    ]
    return Result(measures, results, same=same)


def main(arguments: list[str] | None = None) -> None:
    parser = harness.parser(__doc__, rounds=TIMES)
    parser.add_argument("--sdk", type=Path, help="directory with the installed SageMaker SDK")
    harness.run("image_uri", parser, measured, arguments)


if __name__ == "__main__":
    main()
