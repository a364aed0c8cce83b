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
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.registry.compression import BLOCK_BYTES, compressor
from benchmarks import harness
from benchmarks.harness import Measure, Result

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
    command = [str(harness.ROOT / "bake"), "sizes", options.image, "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (image,) = json.loads(output)["images"]
    base = layer(pins(WHEELS))
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
    given.add_argument("image")
    harness.run("image_size", given, measured)
