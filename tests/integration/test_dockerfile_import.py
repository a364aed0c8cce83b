"""The import of Dockerfiles, by its results: `docker build` and the proposed recipe give the same files."""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.commands.dockerfile_import import init
from bakehouse.lock.base_description import component_text
from tests.commands.dockerfile_import.random_programs import instructions_of
from tests.integration import bases
from tests.support.programs import BAKE


def tree(image: str) -> list[str]:
    """Return the files below /w with modes, owners, links and contents."""
    listing = "find . -printf '%p %m %u %g %y %l\\n' | sort"
    command = f"cd /w && {listing} && find . -type f -print0 | sort -z | xargs -0 sha256sum"
    shown = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--entrypoint", "sh", image, "-c", command],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return shown.stdout.splitlines()


@pytest.fixture
def bootstrapped_base() -> str:
    """Return the base of Debian 12, made if the engine lacks it."""
    subprocess.run([*BAKE, "build", "debian-12"], cwd=HOME, check=True, capture_output=True)
    return bases.base().reference


@pytest.mark.engine
def test_random_programs_write_the_same_files(
    tmp_path: Path, bootstrapped_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("BAKEHOUSE_SEED", "1"))
    lines = [f"FROM {bootstrapped_base}", *instructions_of(random.Random(seed))]
    (tmp_path / "Dockerfile").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    content = {"debian": "12", "glibc": "2.36", "python": "3.11"}
    created = init.run(
        tmp_path,
        "random",
        "Dockerfile",
        bootstrapped_base,
        lambda image: (component_text(image, content), ""),
    )
    recipe = tmp_path / "training-images/images/random.yaml"
    recipe.write_text(re.sub(r"(?m)^components:\n(?:  .*\n)*", "", recipe.read_text()))
    environment = os.environ | {"PYTHONPATH": str(HOME)}
    subprocess.run([*BAKE, "render", "random"], check=True, env=environment)
    for name, directory in (("original", "."), ("recipe", "images/random")):
        subprocess.run(
            [
                "docker",
                "build",
                "-q",
                "-t",
                f"bakehouse/import-{name}",
                "-f",
                f"{directory}/Dockerfile",
                directory,
            ],
            check=True,
        )
    try:
        assert [row for row in created.untranslated if "may use the network" not in row.detail] == []
        assert tree("bakehouse/import-recipe") == tree("bakehouse/import-original")
    finally:
        subprocess.run(
            ["docker", "rmi", "-f", "bakehouse/import-recipe", "bakehouse/import-original"], check=False
        )
