"""What a compression costs when a layer is exported, and what it spares: run it where the image is built.

python benchmarks/layer_compression.py bakehouse/pytorch-cpu:latest \\
    /opt/venv/lib/python3.11/site-packages/torch/lib

The layer is that folder of the image and a file that is new each time: what was compressed once is not
compressed again. Each round exports it in every form, so that all see the same machine.
"""

import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse import pusher
from bakehouse.plan import Digest

EXPORTED = {
    "gzip 6, what BuildKit takes by itself": "oci-mediatypes=false,compression=gzip,compression-level=6",
    "gzip 3, `docker` and `oci`": "oci-mediatypes=false,compression=gzip,compression-level=3",
    "zstd 3, `oci-zstd`": "oci-mediatypes=true,compression=zstd,compression-level=3",
}
ROUNDS = 2


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def exported(folder: Path, options: str) -> tuple[float, int]:
    """Seconds for the export alone, and the layer's bytes."""
    (folder / "layer/new").write_text(secrets.token_hex())
    build = ["docker", "buildx", "build", "--quiet", "--provenance=false"]
    run(*build, "--output=type=cacheonly", str(folder))
    name, told = f"bakehouse/benchmark:{secrets.token_hex(4)}", folder / "told.json"
    began = time.monotonic()
    output = f"type=image,name={name},{options},force-compression=true"
    run(*build, "--metadata-file", str(told), "--output", output, str(folder))
    seconds = time.monotonic() - began
    digest = Digest(json.loads(told.read_text())["containerimage.digest"])
    manifest = pusher.connect(folder / "notes").manifest(digest)
    run("docker", "image", "rm", "--force", name)
    assert manifest, "the engine shows no manifest"
    return seconds, manifest.layer_bytes


def main() -> None:
    image, path = sys.argv[1:]
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in EXPORTED}
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        container = run("docker", "create", image, "true")
        try:
            run("docker", "cp", f"{container}:{path}", str(folder / "layer"))
        finally:
            run("docker", "rm", container)
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY layer /\n")
        unpacked = sum(one.stat().st_size for one in (folder / "layer").rglob("*") if one.is_file())
        for _ in range(ROUNDS):
            for name, options in EXPORTED.items():
                found[name].append(exported(folder, options))
    first = statistics.median(seconds for seconds, _ in found[next(iter(EXPORTED))])
    print(f"{path}: {unpacked:,} bytes")
    for name, pairs in found.items():
        seconds = statistics.median(taken for taken, _ in pairs)
        print(f"{name:40} {seconds:6.1f} s ({seconds / first:.2f})  {pairs[0][1]:,} bytes")


if __name__ == "__main__":
    main()
