"""Customers' projects on a vendor's image, from the first lock to a moved base.

The vendor's image plays AWS's: it is in a registry that wants a login, its apt has sources of its own, and it
contains a Python with packages, SSH host keys and files that are newer than those of steps. A second image
plays the stack that SMP needs.
"""

import base64
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.catalog.project import HOME
from bakehouse.plan.model import Image
from tests.integration.apt_mirror import Mirror, serving_mirror
from tests.integration.journeys import SMP_JOB, Customer, Journey, recorded, remove_images, travel
from tests.integration.ports import kept_port
from tests.support.data import text_of
from tests.support.programs import docker
from tests.support.registry import PASSWORD, registry_container, registry_image
from tests.support.wheels import wheel

pytestmark = [pytest.mark.engine, pytest.mark.release, pytest.mark.timeout(900)]

VENDOR = text_of(__file__, "vendor")
COMPONENT = text_of(__file__, "component")
JOURNEY = Journey(
    "extend-aws",
    "extend-aws",
    "requirements.txt",
    ("--distribution", "mpi", "--instance-count", "2"),
    "torch 2.5.1+vendor on two ranks",
)
FROZEN_STACK = HOME / "tests/integration/stubs/frozen_stack"
FROZEN_COMPONENT = text_of(__file__, "frozen_component")
FROZEN_RECIPE = """\
summary: Trains a large model with SageMaker's model and data parallel libraries, SMP 1.7 and SMDDP 1.4
base: {frozen-stack: "1.0"}
components: {smddp: "1.4.0", smp: "1.7.0"}
requirements: ../../requirements.txt
variants: {smddp: "*-2022-02-18"}
code: {directory: ../../src, entry_point: train.py}
"""
SMP_JOURNEY = Journey(
    "smp-legacy",
    "smp-legacy",
    "requirements.txt",
    (
        *("--instance-type", "ml.p3.16xlarge", "--distribution"),
        json.dumps({**SMP_JOB, "mpi": {"enabled": True, "processes_per_host": 2}}),
    ),
    "loss 0.500 on 2 ranks",
    job=("--instance-type", "ml.p3.16xlarge"),
    code="pipeline_parallel_degree",
)


class Vendor:
    """A vendor that builds its image again under the same tag."""

    def __init__(
        self, base: str, mirror: str, registry: str, directory: Path, dockerfile: str = VENDOR
    ) -> None:
        self.image = f"{registry}/training"
        self._base, self._mirror, self._directory, self._dockerfile = base, mirror, directory, dockerfile

    def release(self, name: str, config: Path) -> None:
        """Push a release with the login in a directory. The engine keeps no image."""
        text = self._dockerfile.format(base=self._base, mirror=self._mirror, release=name)
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
    with registry_container(registry_image(), locked=True) as port:
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


@pytest.mark.release
def test_smp_from_the_first_lock_to_a_moved_base(
    mpi_cpu: tuple[Image, BuiltImage],
    mirror: Mirror,
    registry: str,
    login: Path,
    programs: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The wheels of SMP and SMDDP are stubs in a mirror; the rest of their stack is a stub of a base."""
    mirror.has("1.0", ("hwloc", "jq", "libgomp1", "libnuma1", "libssl1.1"))
    smp = {"smdistributed/modelparallel/torch.py": (FROZEN_STACK / "modelparallel.py").read_text()}
    tag = "cp38-cp38-linux_x86_64"
    wheel(tmp_path / "wheels", "smdistributed_modelparallel", "1.7.0", tag=tag, files=smp)
    # Several builds of it have this name
    builds = tmp_path / "wheels/smdataparallel.s3.amazonaws.com/binary/pytorch/1.10.2/cu113"
    wheel(builds / "2022-02-18", "smdistributed_dataparallel", "1.4.0", tag=tag)
    shutil.copytree(FROZEN_STACK, tmp_path / "vendor")
    dockerfile = (FROZEN_STACK / "Dockerfile").read_text()
    vendor = Vendor(mpi_cpu[0].reference, mirror.url, registry, tmp_path / "vendor", dockerfile)
    with kept_port() as port:
        customer = Customer("smp-legacy", tmp_path, programs, port)
        customer.environment["BAKEHOUSE_MIRRORS"] = str(tmp_path / "wheels")
        component = customer.root / "recipes/components/frozen-stack/component.yaml"
        component.parent.mkdir(parents=True)
        component.write_text(FROZEN_COMPONENT.format(image=vendor.image))
        (customer.root / "recipes/images/smp-legacy.yaml").write_text(FROZEN_RECIPE)
        (customer.root / "requirements.txt").write_text("humanize\n")
        vendor.release("first", login)
        with recorded("smp-legacy", customer, request.config):
            try:
                use_smp(customer, vendor, login)
            finally:
                customer.bake("registry", "stop")
                remove_images(customer, "smp-legacy")


def use_smp(customer: Customer, vendor: Vendor, login: Path) -> None:
    customer.bake("lock", "smp-legacy")
    pins = (customer.root / "recipes/pins.yaml").read_text()
    assert pins.count(".whl: ") == 2
    assert f"{vendor.image}:1.0" in pins
    assert customer.bake("explain", "smp-legacy", "smp").startswith("smp 1.7.0 ")
    customer.bake("render", "smp-legacy")
    customer.commit("Lock")
    travel(SMP_JOURNEY, customer)

    remove_images(customer, "smp-legacy")
    vendor.release("second", login)
    assert "has moved\n" in customer.bake("lock", "--check", "smp-legacy", code=4)
    customer.bake("lock", "--upgrade", "smp-legacy")
    customer.bake("build", "smp-legacy")
    release = ("--entrypoint=", "bakehouse/smp-legacy", "cat", "/opt/vendor/release")
    assert docker("run", "--rm", "--network=none", *release) == "second\n"
