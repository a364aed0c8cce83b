"""The settings of an engine that lacks nothing."""

from bakehouse.engine.daemon_info import Daemon

ENGINE = Daemon(
    endpoint="unix:///var/run/docker.sock",
    name="builder-1",
    version="26.1.5",
    platform="linux/amd64",
    store="overlayfs",
    containerd_store=True,
    rootless=False,
    selinux=False,
    bridge="172.17.0.1",
    interface="br0",
    buildx="0.13.1",
    data_root="/var/lib/docker",
    cores=2,
    memory=25_276_502_016,
    memory_limit=True,
    cpu_limit=True,
    native_diff=True,
    runtimes=("runc",),
    cdi_directories=(),
    registry="https://registry.example/v1/",
)
