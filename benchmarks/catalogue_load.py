"""How long a process takes to have the catalogue: read anew, from the cache; and a whole `render --check`.

python benchmarks/catalogue_load.py
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.catalog import Catalog, load_catalog
from bakehouse.catalogcache import cached_catalog
from bakehouse.errors import Problems
from bakehouse.recipe import load_recipes
from bakehouse.yamlfile import Mapping, Node, Scalar, Sequence, load

ROOT = Path(__file__).resolve().parent.parent
ROOTS = (ROOT / "recipes",)
TIMES = 7


def milliseconds(job: Callable[[], object]) -> float:
    """The median of this process's own time: other programs of the machine don't count."""
    found = []
    for _ in range(TIMES):
        began = time.process_time()
        job()
        found.append(1000 * (time.process_time() - began))
    return statistics.median(found)


def values(node: Node) -> int:
    if isinstance(node, Scalar):
        return 1
    if isinstance(node, Sequence):
        return 1 + sum(values(item) for item in node.items)
    assert isinstance(node, Mapping)
    return 1 + sum(1 + values(value) for _, value in node.entries)


def process(*words: str) -> tuple[float, float]:
    """Seconds of a bake process, and of the processor's time in it."""
    command = [sys.executable, "-P", "-c", "from bakehouse.cli import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before, began = os.times(), time.monotonic()
    subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, spent


def main() -> None:
    files = sorted(path for root in ROOTS for path in root.rglob("*.yaml"))
    count = sum(values(load(path)) for path in files)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        cold = milliseconds(lambda: load_catalog(ROOTS))
        catalog: Catalog = cached_catalog(ROOTS, Problems())
        cached = milliseconds(lambda: cached_catalog(ROOTS, Problems()))
        images = len(load_recipes(ROOTS, catalog))
        recipes = milliseconds(lambda: load_recipes(ROOTS, catalog))
        wall, spent = min(process("render", "--check") for _ in range(3))
        wall_all, spent_all = min(process("render", "--check", "*") for _ in range(3))
    variants = sum(len(release.variants) for one in catalog.components.values() for release in one.releases)
    print(
        f"{len(catalog.components)} components, {variants} variants, {images} images, {count:,} YAML values"
    )
    print(f"catalogue read anew      {cold:7.1f} ms of CPU (300 are allowed)")
    print(f"catalogue from the cache {cached:7.1f} ms of CPU (80 are allowed)")
    print(f"recipes                  {recipes:7.1f} ms of CPU")
    print(f"render --check           {wall:7.2f} s, {spent:.2f} s of CPU (1.5 s are allowed)")
    print(f"render --check '*'       {wall_all:7.2f} s, {spent_all:.2f} s of CPU")


if __name__ == "__main__":
    main()
