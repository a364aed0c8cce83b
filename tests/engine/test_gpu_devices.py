"""Requests of a container with GPUs to an engine."""

import socket
from pathlib import Path

from bakehouse.engine.gpu_devices import device_arguments


def test_the_nvidia_runtime_gets_the_gpus_by_their_ids(tmp_path: Path) -> None:
    info = {"Runtimes": {"nvidia": {}, "runc": {}}, "CDISpecDirs": ["/etc/cdi"]}

    [request] = device_arguments(info, ("0", "GPU-5c1e"), tmp_path)["device_requests"]
    assert request["DeviceIDs"] == ["0", "GPU-5c1e"]
    assert request["Capabilities"] == [["gpu"]]


def test_an_engine_with_cdi_alone_gets_names_of_devices(tmp_path: Path) -> None:
    info = {"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}

    [request] = device_arguments(info, ("0", "2"), tmp_path)["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=0", "nvidia.com/gpu=2"])


def test_hosts_get_the_efa_devices_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "uverbs0").touch()
    arguments = device_arguments({"Name": socket.gethostname()}, ("0",), tmp_path)

    assert arguments["devices"] == [f"{tmp_path}/uverbs0:{tmp_path}/uverbs0:rw"]
    [limit] = arguments["ulimits"]
    assert (limit.name, limit.soft, limit.hard) == ("memlock", -1, -1)


def test_an_engine_elsewhere_gets_no_device_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "uverbs0").touch()

    assert device_arguments({"Name": "gpu-host"}, ("0",), tmp_path).keys() == {"device_requests"}
