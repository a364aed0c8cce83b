"""An edit of training code: the committed files stay, and the built image has the edited code."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.errors import StaleError
from bakehouse.pipeline import render
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import open_workspace, select
from tests.support.git_repository import commit

pytestmark = pytest.mark.engine
NAME = "tests-training-code"
RECIPE = """summary: Training code
base: {debian: "12"}
components: {python: "3.11"}
code: {directory: ../../src, entry_point: train.py}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    for path, text in {
        "pyproject.toml": '[tool.bakehouse]\nrecipes = ["recipes"]\n',
        ".gitignore": "/build/\n",
        f"recipes/images/{NAME}.yaml": RECIPE,
        "src/train.py": "print(1)\n",
        # A context has no `.dockerignore` of its own: the code was selected before
        "src/data/notes.txt": "kept\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    yield tmp_path
    names = subprocess.run(
        ["docker", "images", "--quiet", f"bakehouse/{NAME}"], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run(["docker", "rmi", "--force", *set(names)], check=False, capture_output=True)


def built(project: Path) -> BuiltImage:
    [image] = build(select(open_workspace(project), [NAME]), print)
    return image


def code_of(image: BuiltImage) -> dict[str, str]:
    """Return the files below /opt/ml/code by name."""
    script = "import json, pathlib; d = pathlib.Path('/opt/ml/code'); "
    script += "print(json.dumps({str(p.relative_to(d)): p.read_text() for p in d.rglob('*') if p.is_file()}))"
    command = ["docker", "run", "--rm", "--network=none", image.image.reference, "python", "-c", script]
    files: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return files


def layers(reference: str) -> str:
    command = ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", reference]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_edit_changes_the_image_and_no_committed_file(project: Path) -> None:
    first = built(project)
    commit(project, {})
    files = code_of(first)

    (project / "src/train.py").write_text("print(2)\n")
    (project / "src/data/notes.txt").unlink()
    second = built(project)

    status = ["git", "-C", str(project), "status", "--short", "--untracked-files=all"]
    changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    assert changed == [" D src/data/notes.txt", " M src/train.py"]
    assert render.check(select(open_workspace(project), [NAME]), print).endswith("are up to date\n")
    assert files == {"train.py": "print(1)\n", "data/notes.txt": "kept\n"}
    assert code_of(second) == {"train.py": "print(2)\n"}
    assert first.image.key != second.image.key


def test_docker_alone_builds_the_checked_copy_and_refuses_an_empty_stage(project: Path) -> None:
    image = built(project)
    directory = str(project / "images" / NAME)
    plain = f"bakehouse/{NAME}:plain"
    command = ["docker", "build", "--progress=plain", "--build-arg=SOURCE_DATE_EPOCH=1767225600"]

    empty = subprocess.run([*command, directory], capture_output=True, text=True, check=False)
    context = f"--build-context=code={project / 'build/code' / NAME}"
    subprocess.run([*command, context, "--tag", plain, directory], capture_output=True, check=True)

    assert empty.returncode != 0
    assert f"error: the stage code is empty: run bake build {NAME}" in empty.stderr
    assert layers(plain) == layers(image.image.reference)


def test_an_edit_of_files_of_the_recipe_is_stale_until_it_is_rendered(project: Path) -> None:
    recipe = project / "recipes/images" / f"{NAME}.yaml"
    recipe.write_text(RECIPE + "files: [{from: ../../src, to: /opt/src/}]\n")
    render.write(select(open_workspace(project), [NAME]), print)
    (project / "src/train.py").write_text("print(3)\n")

    with pytest.raises(StaleError):
        render.check(select(open_workspace(project), [NAME]), print)
