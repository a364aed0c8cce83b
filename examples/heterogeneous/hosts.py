"""Hosts of a job in which one group of instances prepares data for another, and the links between them.

A training host keeps a link to every data host. Both send heartbeats, and the training host sends `DONE` when
training is over. A link that closes or falls silent in another way means that the other host was lost.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

from sagemaker_training import environment

PORT = 6100
BEAT, DONE = b".", b"!"
START_SECONDS, LOST_SECONDS = 600, 10

env = environment.Environment()
CURRENT = env.current_host
# A host name does not contain the group. Without a group called `data`, training hosts prepare all data.
DATA = sorted(env.instance_groups_dict["data"]["hosts"]) if "data" in env.instance_groups_dict else []
TRAINING = sorted(host for host in env.hosts if host not in DATA)


def vcpus() -> float:
    """Return the number of CPUs of this host, or the share of them that its container may use."""
    count = len(os.sched_getaffinity(0))
    files = ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    paths = [path for path in (Path("/sys/fs/cgroup", name) for name in files) if path.exists()]
    quota, period = (" ".join(path.read_text() for path in paths) or "max 1").split()
    return float(count) if quota in ("max", "-1") else min(count, int(quota) / int(period))


def loader_vcpus(devices: int) -> float:
    """Return the number of CPUs of this host that prepare data: each device of a training host keeps one."""
    if CURRENT in DATA:
        return vcpus()
    spare = max(vcpus() - devices, 0.0)
    return spare if DATA else spare or vcpus()


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that happens."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def write_result(seconds: float, steps: int, samples: int, loaders: dict[str, float], **values) -> None:
    """Print and save the speed of a job with `samples` in a step, from the CPUs of its loaders."""
    loader_vcpus = sum(loaders[host] for host in DATA) + len(TRAINING) * loaders.get("localhost", 0)
    speed = steps * samples / seconds
    result = {
        "milliseconds": seconds / steps * 1000,
        "samples_per_second": speed,
        "samples_per_second_and_vcpu": speed / loader_vcpus,
        "loader_vcpus": loader_vcpus,
        "data_hosts": len(DATA),
        **values,
    }
    loader = f"{speed / loader_vcpus:.1f} per vCPU of the loader, which has {loader_vcpus:g}"
    print(
        f"{result['milliseconds']:.1f} ms a step, {speed:.1f} samples/s, {loader}; {len(DATA)} data hosts",
        flush=True,
    )
    Path(os.environ["SM_MODEL_DIR"], "result.json").write_text(json.dumps(result))


def serve(count: int = len(TRAINING)) -> None:
    """Wait on a data host until `count` training hosts are done. The process exits if one was lost."""
    with socket.create_server(("", PORT)) as server:
        server.settimeout(START_SECONDS)
        links = [server.accept()[0] for _ in range(count)]
    for link in links:
        link.sendall(f"{vcpus()}\n".encode())
        threading.Thread(target=_send_beats, args=(link, threading.Event()), daemon=True).start()
    is_complete = False not in [_is_done(link) for link in links]
    print(f"{CURRENT}: training {'is over' if is_complete else 'was lost'}", flush=True)
    if not is_complete:
        raise SystemExit(1)


@contextlib.contextmanager
def connect():
    """Link a training host to all data hosts, and return their CPUs. The job fails when one is lost."""
    links = {host: _connect(host) for host in DATA}
    available = {host: float(link.makefile("rb", buffering=0).readline()) for host, link in links.items()}
    is_over = threading.Event()
    watchers = [
        threading.Thread(target=_watch, args=(host, link, is_over), daemon=True)
        for host, link in links.items()
    ]
    for watcher in watchers:
        watcher.start()
    yield available
    is_over.set()
    for link in links.values():
        link.sendall(DONE)
    for watcher in watchers:
        watcher.join()


def _connect(host):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            link = socket.create_connection((host, PORT), timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            link.settimeout(START_SECONDS)
            return link


def _watch(host, link, is_over):
    threading.Thread(target=_send_beats, args=(link, is_over), daemon=True).start()
    _is_done(link)
    if not is_over.is_set():
        print(f"data host {host} was lost", flush=True)
        # Other threads would wait forever for its data.
        os._exit(1)


def _send_beats(link, is_over):
    with contextlib.suppress(OSError):
        while not is_over.wait(1):
            link.sendall(BEAT)


def _is_done(link):
    """Receive heartbeats until the other host is done. Return False if it was lost."""
    link.settimeout(LOST_SECONDS)
    message = BEAT
    with contextlib.suppress(OSError):
        while message == BEAT:
            message = link.recv(1)
    link.close()
    return message == DONE
