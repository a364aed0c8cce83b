"""Images that differ from the last build in wheels and code: written here, they are those of BuildKit."""

import io
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.progress import Mode, Progress
from bakehouse.errors import EngineError
from bakehouse.pipeline.build import build
from bakehouse.pipeline.publish import push, release
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.publish.options import PublishOptions
from tests.support.registry import registry_container, registry_image
from tests.support.sdists import hostile, sdist
from tests.support.signing_keys import make_key
from tests.support.wheels import sha256, wheel

pytestmark = pytest.mark.engine
NAME = "tests-composed"
RECIPE = """summary: Composed
base: {debian: "12"}
components: {python: "3.11"}
requirements: own.lock
code: {directory: ../../src, entry_point: train.py}
"""
LONG = "/".join(["deep" * 12] * 4)
FILES = {
    "names/__init__.py": "def main(): print('ran')\n",
    f"names/{LONG}/module.py": "x = 1\n",
    f"names/{'n' * 120}.txt": "",
    "names/é/ü.py": "y = 'é'\n",
    "names-1.0.data/scripts/tool": "#!python\nprint('tool')\n",
    "names-1.0.dist-info/entry_points.txt": "[console_scripts]\nnames = names:main\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "recipes/images").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (tmp_path / f"recipes/images/{NAME}.yaml").write_text(RECIPE)
    write(tmp_path, "1.0", "print(1)\n")
    yield tmp_path
    command = ["docker", "images", "--quiet", f"bakehouse/{NAME}"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "rmi", "--force", *set(names)], check=False, capture_output=True)


def write(project: Path, version: str, code: str, *, more: bool = False) -> None:
    """Write the code, and a lock of a source distribution and wheels, of which one has this version."""
    directory = project / "wheels"
    wheels = [
        wheel(directory, "names", "1.0", files=FILES),
        wheel(directory, "changes", version, files={"changed/module.py": f"value = {version!r}\n"}),
        wheel(directory, "stays", "1.0", files={"stays/a.py": "z = 3\n"}),
        sdist(directory, "built", "1.0", hostile("built", "1.0", directory)),
        *([wheel(directory, "added", "1.0")] if more else []),
    ]
    lines = (
        f"{'=='.join(path.name.removesuffix('.tar.gz').split('-')[:2])} --hash=sha256:{sha256(path)}"
        f"  # {path.name} {path.stat().st_size} from {path}\n"
        for path in wheels
    )
    (project / "recipes/images/own.lock").write_text("".join(lines))
    (project / "src").mkdir(exist_ok=True)
    (project / "src/train.py").write_text(code)


def built(project: Path) -> tuple[BuiltImage, str]:
    """Return the built image and what the build reported."""
    stream = io.StringIO()
    with Progress(stream, Mode.LINES) as progress:
        [image] = build(select(open_workspace(project), [NAME]), progress.report, progress=progress)
    return image, stream.getvalue()


def test_changed_wheels_and_code_give_the_image_of_buildkit(project: Path) -> None:
    _, report = built(project)
    assert "without a build step" not in report

    write(project, "2.0", "print(2)\n", more=True)
    composed, report = built(project)
    # Files and byte code of one group of wheels, and the code
    assert f"{NAME}: wrote 3 layers (" in report
    assert "without a build step\n" in report
    command = ["docker", "run", "--rm", "--network=none", composed.image.reference, "bash", "-c"]
    program = "names; python /opt/venv/bin/tool; python /opt/ml/code/train.py;"
    program += "python -c 'import changed.module, added, built; print(changed.module.value)'"
    output = subprocess.run([*command, program], capture_output=True, text=True, check=False)
    assert output.stdout.split() == ["ran", "tool", "2", "2.0"], output.stderr

    write(project, "2.0", "print(3)\n", more=True)
    composed, report = built(project)
    assert f"{NAME}: wrote 1 layer (" in report

    shutil.rmtree(open_workspace(project).project.state / "built")
    by_buildkit, report = built(project)
    assert "without a build step" not in report
    assert (by_buildkit.stored, by_buildkit.digest) == (composed.stored, composed.digest)


def refusal(project: Path, options: PublishOptions) -> str:
    """Return why a release needs an engine, which the next step looks for."""
    lines: list[str] = []
    with pytest.raises(EngineError):
        release(select(open_workspace(project), [NAME]), lines.append, options, SmokeOptions())
    return next(line for line in lines if "a release without an engine is not possible" in line)


def test_a_release_without_an_engine_has_the_image_of_buildkit(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New wheels and code go on top of a candidate that the same key signed."""
    monkeypatch.setenv("BAKEHOUSE_SIGNING_KEY", str(make_key(tmp_path, "release").private))
    with registry_container(registry_image()) as port:
        first = PublishOptions(registry=f"127.0.0.1:{port}/team", candidate=True)
        later = replace(first, candidate=False)
        lines: list[str] = []
        built(project)
        [before] = push(select(open_workspace(project), [NAME]), lines.append, first)

        write(project, "2.0", "print(2)\n", more=True)
        with monkeypatch.context() as without_engine:
            without_engine.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
            selection = select(open_workspace(project), [NAME])
            [record] = release(selection, lines.append, later, SmokeOptions())
            assert f"{NAME}: not tested here, so it becomes a candidate" in lines
            assert record.candidate
            assert record.digest != before.digest

            without_engine.setenv("BAKEHOUSE_SIGNING_KEY", str(make_key(tmp_path, "other").private))
            assert "no statement of your key names the layers of" in refusal(project, later)
            without_engine.setenv("BAKEHOUSE_SIGNING_KEY", str(tmp_path / "release.pem"))
            recipe = project / f"recipes/images/{NAME}.yaml"
            recipe.write_text(f"{RECIPE}environment: {{A: b}}\n")
            assert f"the base, settings or steps of `{NAME}` changed" in refusal(project, later)
            recipe.write_text(RECIPE)

        shutil.rmtree(open_workspace(project).project.state / "built")
        by_buildkit, _ = built(project)
        [same] = push(select(open_workspace(project), [NAME]), lines.append, first)
        assert (record.config, record.digest) == (by_buildkit.digest, same.digest)
