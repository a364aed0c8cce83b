"""When the compatibility libraries of NVIDIA are used, with a fake driver and fake libraries."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FILES = Path(__file__).parents[2] / "recipes/components/cuda-compat/files"
LIBRARIES = "/usr/local/cuda-12.8/compat"


class Host:
    """An image of CUDA 12.8 on a host with some driver."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.driver = directory / "version"
        self.directory = f"{self.root}{LIBRARIES}"
        Path(self.directory).mkdir(parents=True)
        Path(self.directory, "libcuda.so.570.211.01").touch()
        Path(self.directory, "libcuda.so.1").symlink_to("libcuda.so.570.211.01")
        short = self.root / "usr/local/cuda-12"  # NVIDIA's images have such a link
        short.symlink_to("cuda-12.8")
        branches = self.root / "usr/local/lib/cuda-compat/branches"
        branches.parent.mkdir(parents=True)
        branches.write_text("470 535 550 560 565\n")
        self.environment = {
            **os.environ,
            "CUDA_COMPAT_ROOT": str(self.root),
            "CUDA_COMPAT_DRIVER_FILE": str(self.driver),
            "LD_LIBRARY_PATH": "/opt/libs",
        }

    def run(self, driver: str, *command: str) -> tuple[str, str]:
        """Return its output and its warnings for a line of the file of the driver."""
        if driver:
            self.driver.write_text(f"NVRM version: {driver}\nGCC version:  gcc version 12.3.0\n")
        program = FILES / "start-job-hook"
        result = subprocess.run(
            ["sh", program, *command], env=self.environment, capture_output=True, text=True, check=True
        )
        return result.stdout, result.stderr


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


OLDER = "NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
OLDER_OPEN = "NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build  (dvs-builder)"
SAME = "NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)"
NEWER = "NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (dvs-builder)"
UNSUPPORTED = "NVIDIA UNIX x86_64 Kernel Module  545.23.08  Mon Nov  6 23:49:37 UTC 2023"


@pytest.mark.parametrize("driver", [OLDER, OLDER_OPEN])
def test_an_older_driver_gets_the_libraries_before_all_others(host: Host, driver: str) -> None:
    printed, warnings = host.run(driver)
    assert printed == f"LD_LIBRARY_PATH={host.directory}:/opt/libs\n"
    assert "using 570.211.01" in warnings


@pytest.mark.parametrize("driver", [SAME, NEWER])
def test_a_driver_of_that_branch_or_a_newer_one_keeps_its_own(host: Host, driver: str) -> None:
    assert host.run(driver) == ("", "")


def test_a_branch_that_nvidia_does_not_support_is_reported(host: Host) -> None:
    printed, warnings = host.run(UNSUPPORTED)
    assert not printed
    assert "545.23.08" in warnings
    assert "470 535 550 560 565 only: left out" in warnings


def test_a_missing_gpu_is_accepted(host: Host) -> None:
    assert host.run("") == ("", "")


def test_an_unreadable_version_and_missing_libraries_are_reported(host: Host) -> None:
    assert host.run("something else") == ("", f"cuda-compat: {host.driver} names no driver version\n")
    shutil.rmtree(host.directory)
    assert host.run(OLDER) == ("", "cuda-compat: there are no compatibility libraries in this image\n")


def test_it_becomes_the_command(host: Host) -> None:
    printed, _ = host.run(OLDER, "sh", "-c", 'echo "$LD_LIBRARY_PATH $1"', "sh", "a b")
    assert printed == f"{host.directory}:/opt/libs a b\n"
    assert host.run(NEWER, "sh", "-c", "echo $LD_LIBRARY_PATH") == ("/opt/libs\n", "")


def test_a_path_that_has_them_stays_as_it_is(host: Host) -> None:
    host.environment["LD_LIBRARY_PATH"] = f"{host.directory}:/opt/libs"
    assert host.run(OLDER) == ("", "")


def test_bash_has_the_path_without_the_entry_point(host: Host, tmp_path: Path) -> None:
    program = FILES / "start-job-hook"
    text = (FILES / "bash-env").read_text()
    settings = tmp_path / "bash-env"
    settings.write_text(text.replace("/usr/local/lib/start-job.d/cuda-compat", f"sh {program}"))
    host.run(OLDER)
    environment = {**host.environment, "BASH_ENV": str(settings)}
    command = ["bash", "-c", "echo $LD_LIBRARY_PATH; bash -c 'echo $LD_LIBRARY_PATH'"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == f"{host.directory}:/opt/libs\n" * 2
