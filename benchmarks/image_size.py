"""Size of an image compared with the same image on a base that contains CUDA, cuDNN and NCCL again.

.venv/bin/python benchmarks/image_size.py pytorch-cu130

The base of comparison contains the parts of NVIDIA's development image that are available as wheels: the CUDA
toolkit, cuDNN and NCCL, in the versions that PyTorch's wheels require. It lacks the large static libraries
and the profiler, so it is smaller than NVIDIA's image. Its layer is compressed with gzip at Bakehouse's level
and measured without storing it. The image must be built on this machine; its size is that of `bake sizes`.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.plan import image_lock
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.registry.compression import BLOCK_BYTES, compressor
from benchmarks import harness
from benchmarks.harness import Measure, Result
from tests.support.wheels import wheel

WHEELS = ("cuda-toolkit[all]==13.0.3.0", "nvidia-cudnn-cu13==9.20.0.48", "nvidia-nccl-cu13==2.29.7")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
MOST_RATIO, MOST_BYTES = 0.5, 4.6e9


@dataclass(frozen=True)
class Weight:
    """Sizes of a layer in bytes."""

    stored: int
    unpacked: int


class _Scale(io.RawIOBase):
    """File object that only counts the bytes of its compressed content."""

    def __init__(self) -> None:
        self.bytes = 0
        self._block = bytearray()
        self._compress = compressor("gzip")

    def write(self, data: Any) -> int:
        self._block += data
        if len(self._block) >= BLOCK_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        self.bytes += len(self._compress(bytes(self._block)))
        self._block.clear()


def layer(pins: Iterable[str], is_included: Callable[[str], bool] = lambda _: True) -> Weight:
    """Return the size of a layer of wheels, or of selected files."""
    scale, unpacked = _Scale(), 0
    with tarfile.open(fileobj=scale, mode="w|", bufsize=BLOCK_BYTES) as archive:
        for pin in pins:
            with tempfile.TemporaryDirectory() as directory:
                command = (*PIP, "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:")
                subprocess.run((*command, "--dest", directory, pin), check=True)
                for path in Path(directory).glob("*.whl"):
                    unpacked += _add(archive, path, is_included)
            print(f"{pin}: {unpacked:,} bytes, {scale.bytes:,} compressed", file=sys.stderr, flush=True)
    scale.flush()
    return Weight(scale.bytes, unpacked)


def _add(archive: tarfile.TarFile, wheel: Path, is_included: Callable[[str], bool]) -> int:
    unpacked = 0
    with zipfile.ZipFile(wheel) as files:
        for member in files.infolist():
            if not member.is_dir() and is_included(member.filename):
                entry = tarfile.TarInfo(f"usr/local/{member.filename}")
                entry.size, entry.mode = member.file_size, 0o755
                with files.open(member) as file:
                    archive.addfile(entry, file)
                unpacked += member.file_size
    return unpacked


def pins(requirements: Iterable[str]) -> list[str]:
    """Download packages and their dependencies, as pip resolves them."""
    command = (*PIP, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", "-")
    output = subprocess.run((*command, *requirements), check=True, capture_output=True, text=True).stdout
    packages = (item["metadata"] for item in json.loads(output)["install"])
    return [f"{package['name']}=={package['version']}" for package in packages]


def measured(options: argparse.Namespace) -> Result:
    if not options.short:
        result = measured_in(harness.ROOT, options.image, WHEELS)
        return replace(result, same=(require_same_versions(options.image),))
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        harness.write_small_project(project)
        path = wheel(
            project / "wheels", "some_library", "1.0", files={"some_library.so": "0123456789" * 10_000}
        )
        with zipfile.ZipFile(path) as files:
            members = sum(member.file_size for member in files.infolist())
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(project / "wheels"))
        try:
            harness.command([*harness.BAKE, "build", harness.SMALL], cwd=project)
            result = measured_in(project, harness.SMALL, ("some-library",))
        finally:
            harness.remove_images(harness.SMALL)
    unpacked = result.rounds["base"].unpacked
    same = harness.require_same("bytes of wheels, unpacked", unpacked, members)
    return replace(result, same=(same, require_same_versions("pytorch-cu130")))


def require_same_versions(image: str) -> str:
    """Compare the wheels of the base with those of the image."""
    versions = {
        requirement.partition("==")[0].partition("[")[0]: requirement.partition("==")[2]
        for requirement in WHEELS
    }
    return harness.require_same("versions of CUDA, cuDNN and NCCL", locked_versions(image), versions)


def locked_versions(image: str) -> dict[str, str]:
    """Return the versions of the base's packages that the image also contains."""
    [planned] = select(open_workspace(harness.ROOT), [image]).plan.images
    lock = image_lock.text(planned)
    names = [requirement.partition("==")[0].partition("[")[0] for requirement in WHEELS]
    matches = {name: re.search(rf'"name": "{name}", "version": "([^"]+)"', lock) for name in names}
    return {name: match[1] for name, match in matches.items() if match}


def measured_in(root: Path, name: str, wheels: Iterable[str]) -> Result:
    output = harness.output([*harness.BAKE, "sizes", name, "--json"], cwd=root)
    (image,) = json.loads(output)["images"]
    base = layer(pins(wheels))
    stored, unpacked = image["stored"] + base.stored, image["unpacked"] + base.unpacked
    measures = (
        Measure("P6", "as pushed", image["stored"], stored, "bytes", MOST_BYTES, MOST_RATIO),
        Measure("P6", "unpacked", image["unpacked"], unpacked, "bytes", MOST_BYTES, MOST_RATIO),
        Measure("", "the base's CUDA, cuDNN and NCCL: as pushed, of its bytes unpacked", base.stored,
                base.unpacked, "bytes"),
    )  # fmt: skip
    return Result(measures, {"base": base}, ("Whether it works on a GPU is not seen here.",))


if __name__ == "__main__":
    given = harness.parser(__doc__, rounds=1)
    given.add_argument("image", nargs="?", default="pytorch-cu130", help="a built image (pytorch-cu130)")
    harness.run("image_size", given, measured)
