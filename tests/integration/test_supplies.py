"""Inputs of the steps of a real build: files by hash, and packages from an index in a directory."""

import ensurepip
import hashlib
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.builder.build_inputs import Downloads, build_inputs
from bakehouse.catalog import project as projects
from bakehouse.errors import BuildError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.util.oci import Sha256
from tests.integration.projects import Project, base, host
from tests.support.data import text_of
from tests.support.wheels import sha256, wheel

pytestmark = pytest.mark.engine

FETCH = text_of(__file__, "fetch")
INSTALL = """\
FROM {base} AS image
COPY {pip} /tmp/{pip}
COPY wanted.txt /tmp/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \\
    python3 /tmp/{pip}/pip install --require-hashes --target /installed -r /tmp/wanted.txt && echo {unique}
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine whose pip knows one index, in a directory, in the layout that pip's own tools make."""
    file = wheel(tmp_path / "index/files", "tiny_part", "1.2")
    page = tmp_path / "index/simple/tiny-part/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/{file.name}#sha256={sha256(file)}">{file.name}</a>')
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = file://{tmp_path}/index/simple\n")
    return {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path)}


def bake(
    project: Project, name: str, environment: dict[str, str], file: RequiredFile, *mirrors: Path
) -> None:
    messages: list[str] = []
    machine = projects.ProjectSettings(
        project.root,
        (),
        mirrors=tuple(map(str, mirrors)),
        cache_directory=project.root / "cache",
        state_directory=project.root,
    )
    plan = RequiredFiles((file,), {file: (name,)}, ((file,),))
    with (
        open_fetcher(machine, messages.append, environment=environment) as fetcher,
        build_inputs(
            machine,
            messages.append,
            downloads=Downloads(plan, fetcher, host()),
            environment=environment,
        ) as inputs,
    ):
        project.bake(name, secrets=inputs.secrets)
    assert messages == []


def archive(digest: str) -> RequiredFile:
    return RequiredFile("url", "data.bin", Sha256(digest), None, "http://127.0.0.1:1/data.bin")


def test_a_step_fetches_a_file_by_its_hash_from_a_directory(
    project: Project, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mirror/deep").mkdir(parents=True)
    content = uuid4().bytes * 100_000
    (tmp_path / "mirror/deep/data.bin").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    project.add("one", FETCH.format(base=base(), sha256=digest, unique=uuid4().hex))

    bake(project, "one", environment, archive(digest), tmp_path / "mirror")

    assert project.run("one", "sha256sum", "/data.bin") == f"{digest}  /data.bin\n"


def test_a_step_is_not_given_a_file_of_another_hash(
    project: Project, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/data.bin").write_bytes(b"tampered with")
    project.add("one", FETCH.format(base=base(), sha256="0" * 64, unique=uuid4().hex))

    with pytest.raises(BuildError) as caught:
        bake(project, "one", environment, archive("0" * 64), tmp_path / "mirror")

    assert caught.value.diagnostics[0].tail[-1] == "mirror said 404"


def test_pip_in_a_step_installs_from_an_index_in_a_directory(
    project: Project, environment: dict[str, str], tmp_path: Path
) -> None:
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    file = tmp_path / "index/files/tiny_part-1.2-py3-none-any.whl"
    project.add(
        "one",
        INSTALL.format(base=base(), pip=pip.name, unique=uuid4().hex),
        {"wanted.txt": f"tiny-part==1.2 --hash=sha256:{sha256(file)}\n"},
    )
    shutil.copy(pip, project.root / "images/one")

    package = RequiredFile("wheel", file.name, Sha256(sha256(file)), None, "tiny-part==1.2")
    bake(project, "one", environment, package)

    script = "import sys; sys.path.insert(0, '/installed'); import tiny_part; print(tiny_part.__version__)"
    assert project.run("one", "python3", "-c", script) == "1.2\n"


def test_the_content_of_a_secret_is_not_part_of_the_cache_key(
    project: Project, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/data.bin").write_bytes(b"data")
    digest = hashlib.sha256(b"data").hexdigest()
    project.add("one", FETCH.format(base=base(), sha256=digest, unique=uuid4().hex))
    bake(project, "one", environment, archive(digest), tmp_path / "mirror")
    first = project.run("one", "stat", "-c", "%y", "/data.bin")

    bake(project, "one", environment, archive(digest), tmp_path / "mirror")

    assert project.run("one", "stat", "-c", "%y", "/data.bin") == first
