"""Stub files: names, structure, version answers, and the same bytes every time."""

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from packaging.utils import parse_wheel_filename

from bakehouse.builder import file_server
from bakehouse.catalog.project import HOME
from bakehouse.maintain import stub_files
from bakehouse.maintain.stub_plan import StubFile
from bakehouse.plan.model import InstalledComponent
from tests.support.fake_engine import HOST

COMPONENTS = HOME / "recipes" / "components"


def need(
    file: str,
    name: str = "source",
    component: str = "thing",
    kind: Literal["wheel", "sdist", "artifact"] = "artifact",
    dropped: tuple[str, ...] = (),
) -> StubFile:
    part = InstalledComponent(
        component, "1.2.3", "", provides=(("libfabric", "2.4.0"), ("open-mpi", "4.1.7"))
    )
    version = "1.2.3" if kind == "artifact" else file.split("-")[1].removesuffix(".tar.gz")
    return StubFile(kind, part, COMPONENTS / component, name, version, file, dropped=dropped)


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive.getmembers()}


@pytest.mark.parametrize(
    "file",
    ["a-1.tar.gz", "a-1.tgz", "a-1.tar.bz2", "a-1.tar.xz", "a-1.zip", "a-1.sh", "a-1-py3-none-any.whl"],
)
def test_the_same_bytes_every_time(file: str) -> None:
    assert stub_files.make(need(file)) == stub_files.make(need(file))


def test_a_wheel_has_the_right_name_tags_and_metadata() -> None:
    file = "some_thing-1.0+cu128-cp38-cp38-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with zipfile.ZipFile(io.BytesIO(stub_files.make(need(file, "some-thing", kind="wheel")))) as wheel:
        info = "some_thing-1.0+cu128.dist-info"
        metadata = wheel.read(f"{info}/METADATA").decode()
        wheel_metadata = wheel.read(f"{info}/WHEEL").decode()
        record = wheel.read(f"{info}/RECORD").decode()
        names = set(wheel.namelist())

    assert "Name: some-thing\nVersion: 1.0+cu128\n" in metadata
    tags = {f"Tag: {tag}" for tag in parse_wheel_filename(file)[3]}
    assert {line for line in wheel_metadata.splitlines() if line.startswith("Tag: ")} == tags
    assert {row.split(",")[0] for row in record.splitlines()} == names


def test_pip_installs_a_wheel_with_what_its_stage_drops(tmp_path: Path) -> None:
    patterns = (
        "opt/venv/lib/python3.11/site-packages/thing/test",
        "opt/venv/bin/*[Tt]ool*",
        "opt/venv/share/a.txt",
    )
    required = need("thing-1.0-py3-none-any.whl", "thing", kind="wheel", dropped=patterns)
    wheel = tmp_path / required.file
    wheel.write_bytes(stub_files.make(required))
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--prefix", "/opt/venv"]
    command += ["--root", str(tmp_path / "out"), "--quiet", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)

    for pattern in patterns:
        assert list((tmp_path / "out").glob(pattern)), pattern


def test_a_source_configures_makes_and_installs(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(stub_files.make(need("thing-1.2.3.tar.gz")))) as archive:
        archive.extractall(tmp_path, filter="data")
    directory = tmp_path / "thing-1.2.3"
    for command in (
        ["./autogen.sh"],
        ["./configure", "--prefix=/opt/thing"],
        ["make"],
        ["make", "install", "DESTDIR=out"],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True)

    note = (directory / "out/opt/thing/share/rehearsed/thing-source").read_text()
    assert note == "thing 1.2.3 from thing-1.2.3.tar.gz\n"


def test_an_installer_of_a_component_is_its_own() -> None:
    data = stub_files.make(need("aws-efa-installer-1.2.3.tar.gz", "installer", "efa"))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        file = archive.extractfile("aws-efa-installer/efa_installer.sh")
        text = file.read().decode() if file else ""

    assert members(data)["aws-efa-installer/efa_installer.sh"].mode == 0o755
    assert "fi_info: 2.4.0" in text
    assert "(Open MPI) 4.1.7" in text
    assert "# EFA installer version: 1.2.3" in text


def test_a_program_says_how_it_was_called(tmp_path: Path) -> None:
    program = tmp_path / "setup.sh"
    program.write_bytes(stub_files.make(need("setup.sh")))
    output = subprocess.run(
        ["sh", str(program), "-b", "/opt"], capture_output=True, text=True, check=True
    ).stdout

    assert output.endswith("called with: -b /opt\n")


def test_stubs_lie_under_their_checksums(tmp_path: Path) -> None:
    required = need("a-1-py3-none-any.whl")
    directories = stub_files.make_all([required], tmp_path)

    assert (tmp_path / directories[required] / required.file).read_bytes() == stub_files.make(required)


def test_dpkg_reads_the_packages_of_the_repository(tmp_path: Path) -> None:
    stub_files.apt_repository({"libssl1.1", "python3.12", "g++-9=9.4.0-1"}, tmp_path)
    listed = (tmp_path / "Packages").read_text()

    assert "Package: libssl1.1\nVersion: 0~rehearsal\n" in listed
    assert "Package: g++-9\nVersion: 9.4.0-1\n" in listed
    assert "Depends: python3 | bakehouse-rehearsal-nothing\n" in listed
    deb = tmp_path / "python3.12_0~rehearsal_amd64.deb"
    assert deb.read_bytes().startswith(b"!<arch>\ndebian-binary ")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    stub_files.apt_repository({"one=1:2"}, tmp_path / "apt")
    (tmp_path / "secret").write_text("no")
    return tmp_path / "apt"


def test_apt_finds_its_repository_through_the_server_as_a_proxy(served: Path) -> None:
    with file_server.serve_stubs(served, HOST) as url:
        text = proxied(url, "apt/./Packages").decode()
        name = next(line.removeprefix("Filename: ./") for line in text.splitlines() if "one_" in line)
        assert proxied(url, f"apt/{name}").startswith(b"!<arch>\n")


@pytest.mark.parametrize(
    "path",
    ["secret", "../secret", "apt/../secret", "apt/%2e%2e%2fsecret", "apt/..", "apt/", "apt", "apt/link"],
)
def test_nothing_else_is_served(served: Path, path: str) -> None:
    (served / "link").symlink_to(served.parent / "secret")
    with file_server.serve_stubs(served, HOST) as url, pytest.raises(HTTPError, match="404"):
        proxied(url, path)


@pytest.mark.parametrize("login", ["", "apt:", "apt:wrong", "wrong"])
def test_stubs_need_the_secret(served: Path, login: str) -> None:
    with file_server.serve_stubs(served, HOST) as url, pytest.raises(HTTPError, match="407"):
        proxied(url.replace(url.removeprefix("http://").partition("@")[0], login), "apt/./Packages")


def test_stubs_can_not_be_replaced(served: Path) -> None:
    before = (served / "Packages").read_bytes()
    with file_server.serve_stubs(served, HOST) as url, pytest.raises(HTTPError, match="501"):
        proxied(url, "apt/Packages", method="PUT")
    assert (served / "Packages").read_bytes() == before


def proxied(url: str, path: str, method: str = "GET") -> bytes:
    """Send a request as apt does, through the server as a proxy."""
    opener = build_opener(ProxyHandler({"http": url}))
    request = Request(f"http://{file_server.STUB_HOST}/{path}", method=method)
    return bytes(opener.open(request, timeout=30).read())


def test_a_package_of_the_distribution_has_what_its_component_says() -> None:
    data = stub_files.make(need("cuda-compat-1-2_3.4_amd64.deb", "package", "cuda-compat"))

    assert b"usr/local/cuda-1.2.3/compat/libcuda.so.999.0.0" in data
    assert b"Package: cuda-compat-1-2\nVersion: 3.4\n" in data


def test_a_python_answers_for_its_version_however_it_is_packed(tmp_path: Path) -> None:
    file = "cpython-3.10.21+20260814-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
    packed = members(stub_files.make(need(file, "python", "python")))
    installer = stub_files.make(need("Miniforge3-26.3.2-3-Linux-x86_64.sh", "python", "python")).decode()

    assert packed["python/bin/python3.10"].issym()
    assert "python/lib/python3.10/_sysconfigdata__linux_x86_64-linux-gnu.py" in packed
    assert "version = 1.2.3.99" in installer


def test_pip_makes_a_wheel_of_a_source_package_without_any_build_tool(tmp_path: Path) -> None:
    required = need("some_thing-1.0.tar.gz", "some-thing", kind="sdist")
    (tmp_path / required.file).write_bytes(stub_files.make(required))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--quiet",
    ]
    command += ["--wheel-dir", str(tmp_path), str(tmp_path / required.file)]
    subprocess.run(command, check=True, capture_output=True)

    with zipfile.ZipFile(tmp_path / "some_thing-1.0-py3-none-any.whl") as wheel:
        assert "Name: some-thing\nVersion: 1.0\n" in wheel.read("some_thing-1.0.dist-info/METADATA").decode()
