"""Inputs of the steps of a real build from the file server: packages and archives, without any index."""

import ensurepip
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.builder.build_inputs import Downloads, build_inputs
from bakehouse.catalog import project as projects
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import Sha256
from tests.integration.projects import Project, base, host
from tests.support.data import text_of
from tests.support.file_server import serving
from tests.support.wheels import sha256, wheel

pytestmark = pytest.mark.engine

CANARY = "canary-4711"
INSTALL = text_of(__file__, "install")


def test_pip_in_a_step_asks_this_machine_alone(project: Project, tmp_path: Path) -> None:
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    file = wheel(tmp_path / "files", "tiny_part", "1.2")
    required = RequiredFile("wheel", file.name, Sha256(sha256(file)), None, "tiny-part==1.2")
    project.add(
        "one",
        INSTALL.format(base=base(), pip=pip.name, canary=CANARY, unique=uuid4().hex),
        {"wanted.txt": f"tiny-part==1.2 --hash=sha256:{required.sha256}\n"},
    )
    shutil.copy(pip, project.root / "images/one")
    messages: list[str] = []
    with serving() as index:
        index.login = f"user:{CANARY}"
        index.files["/simple/tiny-part/"] = f'<a href="/f/{file.name}">x</a>'.encode()
        index.files[f"/f/{file.name}"] = file.read_bytes()
        # On this machine's loopback: no step reaches it.
        address = index.url.replace("//", f"//{index.login}@") + "/simple"
        machine = DownloadConfig((), PipConfig(index_url=address), None, {})
        store = FileCache(tmp_path / "store", messages.append)
        fetcher = Fetcher(store, LocalMirrors((), HashCache(tmp_path / "hashes")), offers=machine.offers)
        plan = RequiredFiles((required,), {required: ("one",)}, ((required,),))
        environment = {"PIP_INDEX_URL": address, "PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}
        inputs = build_inputs(
            projects.ProjectSettings(project.root, (), state_directory=project.root),
            messages.append,
            downloads=Downloads(plan, fetcher, host()),
            environment=environment,
        )
        with fetcher, inputs as supplied:
            project.bake("one", secrets=supplied.secrets)

    script = "import sys; sys.path.insert(0, '/installed'); import tiny_part; print(tiny_part.__version__)"
    assert project.run("one", "python3", "-c", script) == "1.2\n"
    assert (tmp_path / "store" / str(required.sha256) / file.name).is_file()
    assert messages == []


def test_a_users_own_step_installs_a_package_on_a_base_that_names_no_mirror(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["own"]\n')
    (tmp_path / "own/images").mkdir(parents=True)
    name = f"toolbox-{uuid4().hex[:8]}"
    (tmp_path / f"own/images/{name}.yaml").write_text(
        'summary: With a program more\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
        "run: [apt-get update -q && apt-get install -q -y --no-install-recommends tree]\n"
    )
    [built] = build(select(open_workspace(tmp_path), [name]), print)
    try:
        command = ["docker", "run", "--rm", "--network=none", "--entrypoint=tree", built.stored, "--version"]
        assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("tree v")
    finally:
        subprocess.run(["docker", "image", "rm", "--force", *built.image.names], check=True)
