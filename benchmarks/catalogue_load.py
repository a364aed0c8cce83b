"""Time to read the catalogue and all recipes: from the files, and from the cache.

.venv/bin/python benchmarks/catalogue_load.py
"""

import argparse
import functools
import os
import tempfile
from collections.abc import Callable

from bakehouse.catalog.cache import Loaded
from bakehouse.catalog.cache import load as load_project
from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.recipe import load_recipes
from bakehouse.plan.workspace import conflict_text
from bakehouse.util.yaml_reader import Mapping, Node, Scalar, Sequence, load
from benchmarks import harness
from benchmarks.harness import ROOT, Measure, Result

ROOTS = (ROOT / "recipes",)


def values(node: Node) -> int:
    if isinstance(node, Scalar):
        return 1
    if isinstance(node, Sequence):
        return 1 + sum(values(item) for item in node.items)
    assert isinstance(node, Mapping)
    return 1 + sum(1 + values(value) for _, value in node.entries)


def whole(loaded: Loaded) -> list[str]:
    """Read every value of a project, and return the names of its components."""
    list(loaded.recipes.by_name.values())
    return [component.name for component in loaded.catalog.components.values()]


def measured(options: argparse.Namespace) -> Result:
    files = sorted(path for root in ROOTS for path in root.rglob("*.yaml"))
    count = sum(values(load(path)) for path in files)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        catalog = load_project(ROOTS).catalog
        jobs: dict[str, Callable[[], object]] = {
            "anew": lambda: load_catalog(ROOTS),
            "recipes": lambda: load_recipes(ROOTS, catalog, refusal_of=conflict_text),
            "cached": lambda: load_project(ROOTS),
            "whole": lambda: whole(load_project(ROOTS)),
        }
        kept = load_project(ROOTS)
        assert kept.kept, "files of the catalogue changed in the last seconds"
        names = harness.require_same("components", whole(kept), [*load_catalog(ROOTS).components])
        rounds = harness.interleaved(
            {name: functools.partial(harness.spent, job) for name, job in jobs.items()}, options.rounds
        )
    anew, recipes, cached, all_values = (1000 * harness.cpu(rounds[name]) for name in jobs)
    images = len(load_recipes(ROOTS, catalog, refusal_of=conflict_text))
    variants = sum(
        len(release.variants) for component in catalog.components.values() for release in component.releases
    )
    parts = f"{len(catalog.components)} components, {variants} variants"
    return Result(
        (
            Measure("", "the catalogue read anew, CPU", anew, unit="ms", most=300.0),
            Measure("", "the recipes read anew, CPU", recipes, unit="ms"),
            Measure("", "both from the cache, CPU", cached, unit="ms", most=20.0),
            Measure("", "both from the cache, with every value, CPU", all_values, unit="ms", most=80.0),
        ),
        rounds,
        (f"{parts}, {images} images, {count:,} YAML values.",),
        (names,),
    )


def main(arguments: list[str] | None = None) -> None:
    harness.run("catalogue_load", harness.parser(__doc__, rounds=7), measured, arguments)


if __name__ == "__main__":
    main()
