"""Stubs of base images: what the real base has, the stub has too."""

from bakehouse.maintain import stub_bases
from bakehouse.maintain.stub_plan import StubBase
from bakehouse.plan.model import BootstrappedBase, InstalledComponent
from tests.support.dockerfiles import instructions

DEBIAN = BootstrappedBase("bakehouse/debian:12-0f0f0f0f", "bookworm", ())


def test_a_base_stub_has_the_real_one_s_cuda_and_distribution() -> None:
    provides = (("cuda", "12.8.1"), ("ubuntu", "24.04"))
    need = StubBase(InstalledComponent("nvidia-cuda", "12.8.1", "base-ubuntu24.04", provides=provides), None)
    files = {
        file.path: file.content.decode(errors="replace") for file in stub_bases.context(need, "debian:1")
    }

    assert 'VERSION_ID="24.04"' in files["tree/usr/lib/os-release"]
    assert "ln -s cuda-12.8 /usr/local/cuda" in files["Dockerfile"]
    assert "*v = 12080;" in files["Dockerfile"]
    assert "ENV CUDA_VERSION=12.8.1" in files["Dockerfile"]
    assert not [path for path in files if "nvcc" in path or "libnccl" in path]


def test_a_base_stub_has_the_neuron_packages_of_the_real_one() -> None:
    versions = (("neuronx-cc", "2.25.3371.0"), ("python", "3.12"), ("torch-neuronx", "2.9.0.2.14.27725"))
    need = StubBase(InstalledComponent("aws-neuron-pytorch", "2.9.0", "sdk2.30.0", provides=versions), None)
    paths = {file.path for file in stub_bases.context(need, "debian:1")}

    for name in ("neuronx_cc-2.25.3371.0", "torch_neuronx-2.9.0.2.14.27725"):
        assert any(f"/{name}.dist-info/" in path for path in paths)


def test_the_base_of_build_stages_has_headers_and_a_compiler() -> None:
    part = InstalledComponent("nvidia-cuda", "12.8.1", "base-ubuntu24.04", provides=(("cuda", "12.8.1"),))
    paths = {file.path for file in stub_bases.context(StubBase(part, None, is_build_base=True), "debian:1")}

    assert {"tree/usr/local/cuda-12.8/bin/nvcc", "tree/usr/local/cuda-12.8/include/cuda.h"} <= paths


def test_a_base_that_can_be_made_here_only_gets_a_mark() -> None:
    need = StubBase(InstalledComponent("debian", "12", ""), DEBIAN)
    dockerfile, *_ = stub_bases.context(need, DEBIAN.reference)
    last = dockerfile.content.decode().rpartition("\nFROM ")[2]

    assert last.startswith(f"{DEBIAN.reference}\n")
    assert [instruction.word for instruction in instructions(f"FROM {last}")] == [
        "FROM",
        "COPY",
        "COPY",
        "RUN",
        "LABEL",
    ]
