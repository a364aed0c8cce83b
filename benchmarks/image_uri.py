"""Time of `image_uris.retrieve` in new processes, including the import.

With `--sdk`, a directory with the installed SageMaker SDK, the SDK's own lookup is measured too.

python benchmarks/image_uri.py [--sdk DIRECTORY]
"""

import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.publish.releases import ReleasedComponent, ReleasedName, ReleasedRegion, ReleaseRecord, text_of

ROOT = Path(__file__).resolve().parent.parent
TIMES = 21
IMAGES, RELEASES = 50, 20
"""Number of ledgers, and of releases in each."""
HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
ASK = """
import time
began, busy = time.perf_counter(), time.process_time()
{ask}
print(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - busy))
"""
LOOKUP_CODE = """
from bakehouse import image_uris
image_uris.retrieve({name!r}, region="eu-west-1", version="2.9", instance_type="ml.p4d.24xlarge")
"""
THEIRS = """
from sagemaker import image_uris
image_uris.retrieve(
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


def milliseconds(ask: str, directory: Path, path: Path) -> tuple[float, float]:
    """Return the median elapsed and CPU time of one lookup in new processes."""
    command = [sys.executable, "-c", ASK.format(ask=ask)]
    times = [
        subprocess.run(
            command, cwd=directory, env={"PYTHONPATH": str(path)}, check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(TIMES)
    ]
    wall, busy = zip(*((float(wall), float(busy)) for wall, busy in times), strict=True)
    return statistics.median(wall), statistics.median(busy)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        ledgers(root)
        rows = {
            "an image's name": (LOOKUP_CODE.format(name="image-0"), ROOT),
            f"a framework, {IMAGES} ledgers of {RELEASES}": (LOOKUP_CODE.format(name="pytorch"), ROOT),
        }
        if sys.argv[1:2] == ["--sdk"]:
            rows["the SageMaker SDK"] = (THEIRS, Path(sys.argv[2]))
        for what, (ask, path) in rows.items():
            wall, busy = milliseconds(ask, root, path)
            print(f"{what:36} {wall:8.1f} ms  {busy:8.1f} ms of CPU")


main()
