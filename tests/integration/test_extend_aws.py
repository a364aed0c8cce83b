"""A customer's project on a vendor's image, from the first lock to a moved base.

The vendor's image plays AWS's: it is in a registry that wants a login, its apt has sources of its own, and it
contains a Python with packages, SSH host keys and files that are newer than those of steps.
"""

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.build.built_image import BuiltImage
from bakehouse.plan.model import Image
from tests.integration.apt_mirror import Mirror, serving_mirror
from tests.integration.ports import kept_port
from tests.integration.test_projects import Customer, Journey, recorded, remove_images, travel
from tests.support.programs import docker
from tests.support.registry import PASSWORD, registry_container, registry_image

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

VENDOR = """\
FROM {base}
RUN rm -r /usr/share/bakehouse /etc/apt/apt.conf.d/20require-sources && \\
    echo "deb [trusted=yes] {mirror}/ /" > /etc/apt/sources.list && \\
    packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \\
    mkdir -p "$packages/torch" "$packages/torch-2.5.1+vendor.dist-info" /opt/vendor && \\
    echo '__version__ = "2.5.1+vendor"' > "$packages/torch/__init__.py" && \\
    printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.5.1+vendor\\n' \\
        > "$packages/torch-2.5.1+vendor.dist-info/METADATA" && \\
    echo "-----BEGIN OPENSSH PRIVATE KEY-----" > /etc/ssh/ssh_host_rsa_key && \\
    head -c 20000000 /dev/zero > /opt/vendor/newer && echo {release} > /opt/vendor/release
"""
COMPONENT = """\
summary: The vendor's image for training on SageMaker
launchers: [mpirun]
frozen: {{torch: pytorch}}
facts: {{pip: "PIP_IGNORE_INSTALLED=1 python3 -m pip"}}
releases:
  - version: "1.0"
    base: {{image: "{image}:1.0", digest: unknown}}
    provides:
      debian: "12"
      glibc: "2.36"
      python: "3.11"
      pytorch: "2.5.1"
      open-mpi: "4.1.8"
      sagemaker-training: "5.1.4"
"""
JOURNEY = Journey(
    "extend-aws",
    "extend-aws",
    "requirements.txt",
    ("--distribution", "mpi", "--hosts", "2"),
    "torch 2.5.1+vendor on two ranks",
)


class Vendor:
    """A vendor that builds its image again under the same tag."""

    def __init__(self, base: str, mirror: str, registry: str, directory: Path) -> None:
        self.image = f"{registry}/training"
        self._base, self._mirror, self._directory = base, mirror, directory

    def release(self, name: str, config: Path) -> None:
        """Push a release with the login in a directory. The engine keeps no image."""
        text = VENDOR.format(base=self._base, mirror=self._mirror, release=name)
        (self._directory / "Dockerfile").write_text(text)
        reference = f"{self.image}:1.0"
        docker("build", "--provenance=false", "--tag", reference, str(self._directory))
        docker("--config", str(config), "push", "--quiet", reference)
        docker("image", "rm", reference)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    (tmp_path / "mirror").mkdir()
    with serving_mirror(tmp_path / "mirror") as mirror:
        mirror.has("1.0")
        yield mirror


@pytest.fixture
def registry() -> Iterator[str]:
    with registry_image() as image, registry_container(image, locked=True) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def login(tmp_path: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the configuration that `docker login` writes."""
    auth = base64.b64encode(f"AWS:{PASSWORD}".encode()).decode()
    directory = tmp_path / "docker"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"auths": {registry: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))
    return directory


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Directory with the `bake` of this checkout."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "bake").write_text(
        f"#!{sys.executable} -P\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from bakehouse.cli.main import main\nmain()\n"
    )
    (directory / "bake").chmod(0o755)
    return directory


def locked(customer: Customer) -> list[str]:
    text = (customer.root / "requirements.txt.lock").read_text()
    return re.findall(r"^([^#=\n]+)==", text, re.MULTILINE)


def container_output(*command: str) -> str:
    return docker("run", "--rm", "--network=none", "--entrypoint=", "bakehouse/extend-aws", *command).strip()


def test_from_the_first_lock_to_a_moved_base(
    mpi_cpu: tuple[Image, BuiltImage],
    mirror: Mirror,
    registry: str,
    login: Path,
    programs: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    (tmp_path / "vendor").mkdir()
    vendor = Vendor(mpi_cpu[0].reference, mirror.url, registry, tmp_path / "vendor")
    with kept_port() as port:
        customer = Customer("extend-aws", tmp_path, programs, port)
        component = customer.root / "training-images/components/vendor-training/component.yaml"
        component.parent.mkdir(parents=True)
        component.write_text(COMPONENT.format(image=vendor.image))
        vendor.release("first", login)
        with recorded("extend-aws", customer, request.config):
            try:
                extend(customer, vendor, login)
            finally:
                customer.bake("registry", "stop")
                remove_images(customer, "extend-aws")


def extend(customer: Customer, vendor: Vendor, login: Path) -> None:
    customer.bake("lock", "extend-aws")
    assert locked(customer) == ["humanize"]
    assert customer.bake("explain", "extend-aws", "humanize")
    customer.bake("render", "extend-aws")
    customer.commit("Lock")
    travel(JOURNEY, customer)
    assert "PRIVATE KEY" in container_output("cat", "/etc/ssh/ssh_host_rsa_key")
    assert container_output("house-editor") == "house-editor 1.0"
    history = docker("image", "history", "--human=false", "--format", "{{.Size}}", "bakehouse/extend-aws")
    assert sum(map(int, history.split()[:8])) < 10_000_000

    # The next build has another name
    remove_images(customer, "extend-aws")
    vendor.release("second", login)
    moved = customer.bake("lock", "--check", "extend-aws", code=4)
    assert f"error: the tag of `{vendor.image}:1.0` has moved\n" in moved
    customer.bake("lock", "--upgrade", "extend-aws")
    assert locked(customer) == ["emoji", "humanize"]
    customer.bake("build", "extend-aws")
    assert container_output("cat", "/opt/vendor/release") == "second"
