"""Stubs of base images: a bootstrapped Debian with the paths and version answers of the real base.

They contain the files that templates may look for: CUDA's directories, libraries that report their version,
packages to purge, the Python of the real base. The libraries have no other function.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from bakehouse.builder.file_server import STUB_HOST
from bakehouse.catalog.project import HOME
from bakehouse.maintain.stub_files import GENERIC, debian_package, make, unpacked
from bakehouse.maintain.stub_plan import BASES, OUTPUT, StubBase, StubFile, python_of
from bakehouse.plan.dockerfile import RenderedFile, filled
from bakehouse.plan.model import InstalledComponent
from bakehouse.util.archive import Tree
from bakehouse.util.files import make_directory, read_bytes, read_text, write_whole
from bakehouse.util.oci import EPOCH

_CODENAMES = {"18.04": "bionic", "20.04": "focal", "22.04": "jammy", "24.04": "noble", "26.04": "resolute"}
PROGRAMS = (
    "curl",
    "gcc",
    "g++",
    "libc6-dev",
    "make",
    "patchelf",
    "openssh-client",
    "openssh-server",
    "xz-utils",
)
"""Build tools, which AWS's images contain."""
_PACKAGES = {"pytorch": "torch", "smddp": "smdistributed-dataparallel", "smp": "smdistributed-modelparallel"}
"""Components whose Python package has another name."""
_PYTHON_PACKAGES = re.compile(
    "pytorch|tensorflow|torch.*|smddp|smp|neuronx-cc|sagemaker-.*|mpi4py|horovod|deepspeed|numpy|nvidia-dali.*"
)
"""Components of a base that are Python packages."""


def reference(need: StubBase, debian: str) -> str:
    """Return the name of a base stub, which changes with its content."""
    files = context(need, debian)
    content_hash = hashlib.sha256()
    for file in files:
        content_hash.update(
            f"{file.path}\0{len(file.content)}\0{file.is_executable}\0".encode() + file.content
        )
    part = need.part
    words = filter(None, (part.version, part.variant, "build" if need.is_build_base else ""))
    tag = re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(words))[:110]
    return f"{BASES}/{part.component}:{tag}-{content_hash.hexdigest()[:8]}"


def write(need: StubBase, debian: str, root: Path) -> Path:
    """Write the build context of a base stub; return its bake file, relative to `root`."""
    name = reference(need, debian)
    directory = Path("bases", name.removeprefix(f"{BASES}/").replace("/", "-").replace(":", "-"))
    for file in context(need, debian):
        file.write(root / directory)
    make_directory(root / directory / "tree")
    make_directory(root / directory / "debs")
    target = {
        "context": str(directory),
        "platforms": ["linux/amd64"],
        "tags": [name],
        "output": [OUTPUT],
        "args": {"SOURCE_DATE_EPOCH": str(EPOCH)},
        "attest": [],
    }
    path = root / directory / "docker-bake.json"
    write_whole(path, json.dumps({"target": {target_name(name): target}}, indent=2) + "\n")
    return directory / "docker-bake.json"


def target_name(name: str) -> str:
    """Return the bake target of a base stub."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.removeprefix(f"{BASES}/"))


def context(need: StubBase, debian: str) -> tuple[RenderedFile, ...]:
    """Return the Dockerfile of a base stub and the files that it copies."""
    provides = dict(need.part.provides)
    tree = {} if need.bootstrapped else _tree(need, provides)
    packages = () if need.bootstrapped else _distribution_packages(need, provides)
    dockerfile = filled(
        read_text(GENERIC / "base" / "Dockerfile.j2"),
        need=need,
        debian=debian,
        host=STUB_HOST,
        python=python_of(provides),
        libraries=[] if need.bootstrapped else _libraries(need, provides),
        packages=packages,
        environment=_environment(need, provides),
        cuda=".".join(provides["cuda"].split(".")[:2]) if "cuda" in provides else "",
        prefix=_prefix(dict(need.facts)) if "python" in provides else "",
        programs=PROGRAMS,
        is_equipped=need.part.component != "nvidia-cuda",
        is_amazon="amazon-linux" in provides,
    )
    code = sorted((GENERIC / "base").glob("*.py"))
    return (
        RenderedFile("Dockerfile", dockerfile.encode()),
        *(RenderedFile(path.name, read_bytes(path)) for path in code),
        *(
            RenderedFile(f"tree/{path}", data, is_executable=bool(mode & 0o100))
            for path, (data, mode) in sorted(tree.items())
        ),
        *(RenderedFile(f"debs/{name}.deb", debian_package(name, version)) for name, version in packages),
    )


def _tree(need: StubBase, provides: Mapping[str, str]) -> Tree:
    tree: Tree = {"usr/lib/os-release": (_os_release(provides).encode(), 0o644)}
    if "cuda" in provides:
        tree |= _cuda(need, provides)
    if "python" in provides:
        tree |= _python(need, provides)
    if "efa" in provides:
        text = f"# EFA installer version: {provides['efa']}\n# a stub\n"
        tree["opt/amazon/efa_installed_packages"] = (text.encode(), 0o644)
    if "open-mpi" in provides:
        for name in ("mpirun", "orted"):
            text = f'#!/bin/sh\necho "{name} (Open MPI) {provides["open-mpi"]}"\n'
            tree[f"opt/amazon/openmpi/bin/{name}"] = (text.encode(), 0o755)
    return tree


def _os_release(provides: Mapping[str, str]) -> str:
    ubuntu, amazon = provides.get("ubuntu"), provides.get("amazon-linux")
    if ubuntu:
        name = f'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="{ubuntu}"\n'
        return f"{name}VERSION_CODENAME={_CODENAMES.get(ubuntu, 'unknown')}\n"
    if amazon:
        return f'NAME="Amazon Linux"\nID="amzn"\nID_LIKE="fedora"\nVERSION_ID="{amazon}"\n'
    return 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'


def _cuda(need: StubBase, provides: Mapping[str, str]) -> Tree:
    minor = ".".join(provides["cuda"].split(".")[:2])
    directory = f"usr/local/cuda-{minor}"
    tree: Tree = {
        f"{directory}/version.json": (json.dumps({"cuda": {"version": provides["cuda"]}}).encode(), 0o644),
        "etc/apt/sources.list.d/cuda.list": (b"# NVIDIA's own packages would come from here\n", 0o644),
        "etc/ld.so.conf.d/988_cuda.conf": (b"/usr/local/cuda/targets/x86_64-linux/lib\n", 0o644),
    }
    if need.is_build_base or "devel" in need.part.variant:
        for name in ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "nvml.h"):
            tree[f"{directory}/include/{name}"] = (b"/* a stub */\n", 0o644)
        text = f'#!/bin/sh\necho "Cuda compilation tools, release {minor}, a stub: $*"\n'
        tree[f"{directory}/bin/nvcc"] = (text.encode(), 0o755)
    return tree


def _python(need: StubBase, provides: Mapping[str, str]) -> Tree:
    """Return the Python of the base with its declared packages."""
    facts = dict(need.facts)
    prefix = _prefix(facts)
    minor = python_of(provides)
    home = "home = /usr/lib/bakehouse-rehearsal/bin\ninclude-system-site-packages = true\n"
    text = f"{home}version = {minor}.99\n"
    tree: Tree = {f"{prefix}/pyvenv.cfg": (text.encode(), 0o644)}
    site = f"{prefix}/lib/python{minor}/site-packages"
    for package, version in _python_packages(provides).items():
        name = next((name for name, other in _PACKAGES.items() if other == package), package)
        stem = package.replace("-", "_")
        file = f"{stem}-{version}-py3-none-any.whl"
        part = InstalledComponent(name, version, "", provides=tuple(sorted(provides.items())))
        directory = HOME / "recipes" / "components" / name
        wheel = make(StubFile("wheel", part, directory, package, version, file))
        tree |= {f"{site}/{path}": entry for path, entry in unpacked(wheel).items()}
    return tree


def _python_packages(provides: Mapping[str, str]) -> dict[str, str]:
    """Return the Python packages that a base provides. Frameworks install cuDNN and NCCL as packages."""
    packages = {
        _PACKAGES.get(name, name): version
        for name, version in sorted(provides.items())
        if _PYTHON_PACKAGES.fullmatch(name)
    }
    for name in ("cudnn", "nccl"):
        if name in provides and "cuda" in provides:
            packages[f"nvidia-{name}-cu{provides['cuda'].split('.')[0]}"] = provides[name]
    return packages


def _prefix(facts: Mapping[str, str]) -> str:
    """Return the prefix of the base's Python, from the facts of its component."""
    for value in facts.values():
        if match := re.search(r"(/opt/[\w.-]+)/bin/(?:python|pip)", value):
            return match[1].lstrip("/")
    return "opt/conda"


def _libraries(need: StubBase, provides: Mapping[str, str]) -> list[tuple[str, str, list[str]]]:
    """Return libraries that report their version: path, code, links; the last link is the loader's name."""
    libraries = []
    multiarch = "/usr/lib/x86_64-linux-gnu"
    if "cuda" in provides:
        major, minor = (int(number) for number in (*provides["cuda"].split("."), "0")[:2])
        directory = f"/usr/local/cuda-{major}.{minor}/targets/x86_64-linux/lib"
        code = f"int cudaRuntimeGetVersion(int *v) {{ *v = {major * 1000 + minor * 10}; return 0; }}"
        links = [f"{directory}/libcudart.so.{major}" if major > 11 else f"{directory}/libcudart.so.{major}.0"]
        if need.is_build_base or "devel" in need.part.variant:
            links.insert(0, f"{directory}/libcudart.so")
        libraries.append((f"{directory}/libcudart.so.{provides['cuda']}.0", code, links))
        compat = f"/usr/local/cuda-{major}.{minor}/compat"
        libraries.append(
            (f"{compat}/libcuda.so.1.0", "int cuInit(int f) { return 100; }", [f"{compat}/libcuda.so.1"])
        )
    if "cudnn" in provides and "cuda" in provides:
        numbers = [int(number) for number in re.findall(r"\d+", provides["cudnn"])]
        major = numbers[0]
        scale = (1000, 100, 1) if major < 9 else (10000, 100, 1)
        number = sum(part * unit for part, unit in zip([*numbers, 0, 0], scale, strict=False))
        code = f"unsigned long cudnnGetVersion(void) {{ return {number}; }}"
        libraries.append((f"{multiarch}/libcudnn.so.{major}.0.0", code, [f"{multiarch}/libcudnn.so.{major}"]))
    if "nccl" in provides or _has_nccl(need):
        numbers = [int(number) for number in provides.get("nccl", "2.9.9").split(".")[:3]]
        number = numbers[0] * 10000 + numbers[1] * 100 + (numbers[2] if len(numbers) > 2 else 0)
        code = f"int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}"
        libraries.append((f"{multiarch}/libnccl.so.2.0.0", code, [f"{multiarch}/libnccl.so.2"]))
    return libraries


def _has_nccl(need: StubBase) -> bool:
    """Return whether this variant of NVIDIA's image contains NCCL; all except `base` do."""
    return need.part.component == "nvidia-cuda" and re.search("runtime|devel", need.part.variant) is not None


def _distribution_packages(need: StubBase, provides: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return packages of NVIDIA's images that templates may hold, upgrade or purge."""
    if "cuda" not in provides or need.part.component != "nvidia-cuda":
        return ()
    numbers = provides["cuda"].split(".")
    names = [f"cuda-cudart-{numbers[0]}-{numbers[1]}", f"cuda-compat-{numbers[0]}-{numbers[1]}"]
    if _has_nccl(need):
        names += ["libnccl2", *(["libnccl-dev"] if need.is_build_base else [])]
    if "cudnn" in provides:
        major = provides["cudnn"].split(".")[0]
        names.append(f"libcudnn{major}" if major == "8" else f"libcudnn{major}-cuda-{numbers[0]}")
    return tuple((name, "0~rehearsal") for name in names)


def _environment(need: StubBase, provides: Mapping[str, str]) -> dict[str, str]:
    path = [f"/{_prefix(dict(need.facts))}/bin"] if "python" in provides else []
    if "open-mpi" in provides or "efa" in provides:
        path.append("/opt/amazon/openmpi/bin")
    if "cuda" not in provides:
        return {"PATH": ":".join([*path, "$PATH"])} if path else {}
    return {
        "CUDA_VERSION": provides["cuda"],
        "PATH": ":".join([*path, "/usr/local/nvidia/bin:/usr/local/cuda/bin:$PATH"]),
        "NVIDIA_VISIBLE_DEVICES": "all",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    }
