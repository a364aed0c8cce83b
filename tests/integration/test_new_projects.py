"""Projects that begin in an empty directory with the installed `bake`, taken to their second release."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from uv import find_uv_bin

from bakehouse.builder.verify import Outcome
from bakehouse.catalog.project import find
from bakehouse.cli import main
from tests.integration.journeys import Repository, recorded, remove_images
from tests.integration.ports import kept_port
from tests.support.data import text_of
from tests.support.programs import docker

pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(3600)]

IMAGE = "churn"
TRAIN = text_of(__file__, "train")


def test_a_second_release_is_compared_with_the_first(
    tmp_path: Path, programs: Path, request: pytest.FixtureRequest
) -> None:
    with kept_port() as port:
        user = Repository(tmp_path / IMAGE, programs, port)
        (user.root / "src").mkdir(parents=True)
        (user.root / "requirements.txt").write_text("lightgbm>=4\npolars>=1\nsentence-transformers>=5\n")
        (user.root / "src/train.py").write_text(TRAIN)
        with recorded("new-tabular", user, request.config):
            user.git("init", "--quiet")
            user.bake("init", IMAGE)
            user.append(f"training-images/images/{IMAGE}.yaml", "smoke: {hosts: 2, expect: trained on 2}\n")
            first = _released(user)
            assert "Completed" in user.bake("run", IMAGE, "--instance-count", "2")
            logs = [log.read_text() for log in (user.root / "build/runs").rglob("*.log")]
            assert any("trained on 2 ranks with lightgbm" in log for log in logs), logs

            user.append("requirements.txt", "emoji\n")
            user.append("src/train.py", 'print("with emoji")\n')
            second = _released(user)
            assert second != first
            user.bake("registry", "stop")
        remove_images(user, IMAGE)


def test_an_image_has_the_versions_of_uv_lock(
    tmp_path: Path, programs: Path, request: pytest.FixtureRequest
) -> None:
    with kept_port() as port:
        user = Repository(tmp_path / IMAGE, programs, port)
        user.root.mkdir()
        uv = [find_uv_bin(), "--quiet"]
        for words in (
            ["init", "--bare", "--python", "3.11"],
            ["add", "pandas>=2", "python-dateutil<3"],
            ["add", "--group", "train", "scikit-learn>=1.6"],
            ["add", "--group", "dev", "emoji"],
        ):
            no_sync = ["--no-sync"] if words[0] == "add" else []
            subprocess.run([*uv, *words, *no_sync], cwd=user.root, check=True)
        (user.root / "src").mkdir()
        (user.root / "src/train.py").write_text("import pandas\nimport sklearn\nprint('trained')\n")
        with recorded("new-uv", user, request.config):
            user.git("init", "--quiet")
            user.bake("init", IMAGE)
            recipe = user.root / f"training-images/images/{IMAGE}.yaml"
            plain = "requirements: ../../uv.lock\n"
            assert plain in recipe.read_text()
            with_group = "requirements: {file: ../../uv.lock, groups: [train]}\n"
            recipe.write_text(recipe.read_text().replace(plain, with_group))
            _released(user)
            pip = ("python", "-m", "pip", "list", "--format=json")
            listed = docker("run", "--rm", f"bakehouse/{IMAGE}", *pip)
            user.bake("registry", "stop")
        remove_images(user, IMAGE)
    installed = {package["name"].lower(): package["version"] for package in json.loads(listed)}
    exported = subprocess.run(
        [*uv, "export", "--frozen", "--no-hashes", "--no-dev", "--group", "train", "--no-emit-project"],
        cwd=user.root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    pins = [Requirement(line) for line in exported.splitlines() if not line.lstrip().startswith("#")]
    python = {"python_version": "3.13", "python_full_version": "3.13.5", "platform_machine": "x86_64"}
    locked = {
        pin.name: str(pin.specifier).removeprefix("==")
        for pin in pins
        if not pin.marker or pin.marker.evaluate(python)
    }
    assert {"emoji", "churn"}.isdisjoint(installed)
    assert {"numpy", "pandas", "scikit-learn", "scipy", "joblib", "python-dateutil"} <= locked.keys()
    assert {name: installed[name] for name in locked} == locked


def _released(user: Repository) -> str:
    """Lock, render, commit and release the image; return its URI."""
    user.bake("lock", IMAGE)
    user.bake("resolve", IMAGE)
    user.bake("render", IMAGE)
    user.commit("Change the image")
    return user.bake("release", IMAGE).strip()


def test_an_image_passes_its_checks_on_a_machine_without_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user = os.geteuid() or 65534
    maps = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    if subprocess.run(maps, user=user, capture_output=True, check=False).returncode:
        pytest.skip("the kernel refuses user namespaces")
    monkeypatch.chdir(tmp_path)
    with kept_port() as port:
        Path("pyproject.toml").write_text(f"[tool.bakehouse]\nregistry_port = {port}\n")
        assert main.run(("push", "mpi-cpu", "--candidate")) == 0
        capsys.readouterr()
        assert main.run(("smoke", "mpi-cpu", "--on", "bare")) == 0
    written = Path(capsys.readouterr().out.strip())
    machine = tmp_path / "machine"
    shutil.copytree(written, machine)
    for path in (machine, *machine.iterdir()):
        os.chown(path, user, -1)
    for parent in machine.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)

    words = ["sh", str(machine / "smoke.sh")]
    subprocess.run(words, user=user, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True)

    assert main.run(("smoke", "mpi-cpu", "--on", "bare", "--results", f"{machine}/results.json")) == 0
    [path] = (find(Path.cwd()).state / "checks").glob("*.json")
    outcomes = {row["name"]: row["outcome"] for row in json.loads(path.read_text())["rows"]}
    assert {"components.mpi4py", "no_private_keys", "train_success", "train_failure", "mpirun_1x2"} <= {
        *outcomes
    }
    assert {*outcomes.values()} == {Outcome.PASSED}
