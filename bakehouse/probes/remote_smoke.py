"""Run smoke checks in the containers of a job on other machines, one container per host.

Bakehouse appends a call of `main` with the plan to this file and sends the file with the job. The first host
leads: it starts each check, on other hosts through a TCP connection, and writes the results of all hosts.
Each check has a directory of its own instead of /opt/ml. The script only needs the standard library of Python
3.8 or later.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import hashlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

PORT = 7780
ML = "/opt/ml"
RESOURCES = Path(ML, "input/config/resourceconfig.json")
RESULTS = Path(ML, "model/smoke-results.json")
MARK = "bakehouse-smoke-results "
"""Start of the lines of standard output that contain the results of a job without a results file."""
LINE = 8000
MAX_LOG = 400_000
"""Bytes at the end of each log that are kept."""
GRACE = 3.0
_SET_CHILD_SUBREAPER = 36
LOST = 255
"""Exit code of a check on a host that was lost."""


class Interrupted(BaseException):
    """The job was stopped, or one of its hosts is missing."""


class Task:
    """A check on this host."""

    def __init__(self, plan: Mapping[str, Any], check: Mapping[str, Any], host: str, work: Path) -> None:
        self.base = work / check["name"]
        self.answers: BinaryIO | None = None
        shutil.rmtree(self.base, ignore_errors=True)
        for name in ("input/config", "input/data", "output", "model", "checkpoints"):
            (self.base / name).mkdir(parents=True)
        if check["own_code"] and Path(ML, "code").is_dir():
            shutil.copytree(Path(ML, "code"), self.base / "code", symlinks=True)
        if check["answers"]:
            self.answers = (self.base / "answers").open("wb")
        for path, blob in check["files"][host].items():
            self._place(path, base64.b64decode(plan["blobs"][blob]))
        # The toolkit's launcher on an earlier host would end because of the file of an earlier check.
        for done in Path("/tmp").glob("done.*"):
            done.unlink()
        self.started = time.monotonic()
        command = [self._here(word) for word in check["command"]]
        if shutil.which(command[0]) is None:
            command = ["sh", "-c", 'echo "$0: not found" >&2; exit 127', command[0]]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.answers or subprocess.PIPE,
            stderr=subprocess.PIPE if self.answers else subprocess.STDOUT,
            env=self._environment(check, host),
            start_new_session=True,
        )
        self.stopped = False
        self.output = threading.Thread(target=self._tee, daemon=True)
        self.output.start()

    def ended(self) -> bool:
        reap_orphans(self.process.pid)
        return self.process.poll() is not None

    def stop(self) -> None:
        """End the check; its exit code will be None."""
        if not self.ended():
            self.stopped = True
            self._kill(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)

    def result(self) -> dict[str, Any]:
        """End what the check left running, and return its result on this host."""
        self._kill(signal.SIGKILL)
        code = self.process.wait()
        kill_descendants()
        seconds = time.monotonic() - self.started
        # A process in another session could keep the pipe open.
        self.output.join(GRACE)
        failure = self.base / "output/failure"
        model = {
            str(path.relative_to(self.base / "model")): path.stat().st_size
            for path in sorted((self.base / "model").rglob("*"))
            if path.is_file()
        }
        return {
            "exit_code": None if self.stopped else 128 - code if code < 0 else code,
            "seconds": round(seconds, 2),
            "success": (self.base / "output/success").exists(),
            "failure": failure.read_text(errors="replace")[:MAX_LOG] if failure.exists() else None,
            "model": model,
            "events": [_tail(path) for path in sorted((self.base / "output/data/ranks").glob("*"))],
            "log": _tail(self.base / "log"),
            "answers": _tail(self.base / "answers") if self.answers else "",
        }

    def _here(self, text: str) -> str:
        # Probes of the image itself look at its own paths.
        return text if self.answers else text.replace(ML, str(self.base))

    def _place(self, path: str, content: bytes) -> None:
        target = Path(self._here(path))
        if path.startswith(f"{ML}/input/config/"):
            content = self._here(content.decode()).encode()
        if path == str(RESOURCES):
            content = _with_real_hosts(json.loads(content))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def _environment(self, check: Mapping[str, Any], host: str) -> dict[str, str]:
        if self.answers:
            # The entry point and sshd find no hosts there to exchange keys with.
            return {**os.environ, "SAGEMAKER_BASE_DIR": str(self.base)}
        interface = _resources().get("network_interface_name")
        return {
            **{name: self._here(value) for name, value in os.environ.items()},
            **({"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface} if interface else {}),
            "NCCL_DEBUG": "INFO",
            **{name: self._here(value) for name, value in check["environment"].items()},
            "HOSTNAME": host,
            "SAGEMAKER_BASE_DIR": str(self.base),
            "SM_OUTPUT_DATA_DIR": str(self.base / "output/data"),
        }

    def _tee(self) -> None:
        pipe = self.process.stderr if self.answers else self.process.stdout
        assert pipe
        with (self.base / "log").open("wb", buffering=0) as log:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                log.write(chunk)
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()

    def _kill(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class HostConnection:
    """The leader's connection to another host."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._results: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._result: dict[str, Any] | None = None
        self._is_lost = False
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, check: str, startup: str) -> None:
        self._result = _lost() if self._is_lost else None
        self._send({"start": check, "startup": startup})

    def ended(self) -> bool:
        self._receive(0)
        return self._result is not None

    def stop(self) -> None:
        if not self.ended():
            self._send({"stop": True})
            self._receive(60)

    def result(self) -> dict[str, Any]:
        return self._result or _lost()

    def _receive(self, seconds: float) -> None:
        """Wait for the result of the check, unless it has arrived."""
        if self._result is None:
            with contextlib.suppress(queue.Empty):
                result = self._results.get(timeout=seconds)
                self._is_lost = result is None
                self._result = result or _lost()

    def _send(self, message: Mapping[str, object]) -> None:
        # The reader notices a lost connection.
        with contextlib.suppress(OSError):
            self._file.write(json.dumps(message) + "\n")
            self._file.flush()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._file:
                self._results.put(json.loads(line))
        self._results.put(None)


class Leader:
    """The first host: it runs the checks and collects the results."""

    def __init__(self, plan: Mapping[str, Any], hosts: list[str], work: Path) -> None:
        self.plan = plan
        self.hosts = hosts
        self.work = work
        self.links: dict[str, HostConnection] = {}
        self.startup = ""
        self.results: dict[str, Any] = {}
        self.keys: list[list[str]] = []
        self.interrupted = ""

    def run(self, address: tuple[str, int]) -> None:
        """Run all checks. An interrupt is recorded."""
        try:
            self.keys = private_keys(self.plan)
            words = subprocess.run(["sh", "-c", self.plan["startup"]], stdout=subprocess.PIPE, check=False)
            self.startup = " ".join(words.stdout.decode().split())
            self._meet(address)
            for check in self.plan["variants"][self.startup]:
                self._check(check)
        except Interrupted as reason:
            self.interrupted = str(reason)

    def document(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return {
            "id": self.plan["id"],
            "image": self.plan["image"],
            "startup": self.startup,
            "keys": self.keys,
            "results": self.results,
            "interrupted": self.interrupted,
            "finished": int(time.time()),
        }

    def _meet(self, address: tuple[str, int]) -> None:
        """Wait for the other hosts. Each sends its name and the token of the plan."""
        missing = set(self.hosts[1:])
        if not missing:
            return
        until = time.monotonic() + self.plan["join_seconds"]
        with socket.create_server(address) as server:
            server.settimeout(1)
            while missing and time.monotonic() < until:
                with contextlib.suppress(OSError, ValueError):
                    connection, _ = server.accept()
                    connection.settimeout(10)
                    token, _, host = _line(connection).partition(" ")
                    if token == self.plan["token"] and host in missing:
                        connection.settimeout(None)
                        self.links[host] = HostConnection(connection)
                        missing.remove(host)
        if missing:
            message = f"{', '.join(sorted(missing))} did not join within {self.plan['join_seconds']:g} s"
            raise Interrupted(message)

    def _check(self, check: Mapping[str, Any]) -> None:
        name, members = check["name"], self.hosts[: check["hosts"]]
        say(f"{name} started")
        started = time.monotonic()
        until = started + check["seconds"]
        for host in members[1:]:
            self.links[host].start(name, self.startup)
        tasks: dict[str, Task | HostConnection] = {host: self.links[host] for host in members[1:]}
        own = tasks[members[0]] = Task(self.plan, check, members[0], self.work)
        has_failed = False
        try:
            while not all(task.ended() for task in tasks.values()) and time.monotonic() < until:
                time.sleep(0.1)
                if not has_failed and any(task.ended() and _failed(task) for task in tasks.values()):
                    has_failed = True
                    until = min(until, time.monotonic() + check["grace"])
            running = [host for host, task in tasks.items() if not task.ended()]
            seconds = time.monotonic() - started
        finally:
            for task in tasks.values():
                task.stop()
            own_result = own.result()
        hosts = {host: own_result if host == members[0] else tasks[host].result() for host in members}
        timed_out = bool(running) and not has_failed
        self.results[name] = {"seconds": round(seconds, 2), "timed_out": timed_out, "hosts": hosts}
        codes = ", ".join(f"{host} {result['exit_code']}" for host, result in hosts.items())
        say(f"{name} ended after {seconds:.1f} s; exit codes: {codes}")


def follow(plan: Mapping[str, Any], host: str, work: Path, address: tuple[str, int]) -> None:
    """Run the checks that the leader starts, until it closes the connection."""
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()
    connection = _connect(address, plan["join_seconds"])
    stream = connection.makefile("rw", encoding="utf-8", newline="\n")
    stream.write(f"{plan['token']} {host}\n")
    stream.flush()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                commands.put(json.loads(line))
        commands.put(None)

    threading.Thread(target=read, daemon=True).start()
    task: Task | None = None
    while True:
        command: dict[str, Any] | None = {}
        with contextlib.suppress(queue.Empty):
            command = commands.get(timeout=0.1)
        if command is None:
            if task:
                task.stop()
                task.result()
            return
        if "start" in command:
            checks = {check["name"]: check for check in plan["variants"][command["startup"]]}
            say(f"{command['start']} started")
            task = Task(plan, checks[command["start"]], host, work)
        if "stop" in command and task:
            task.stop()
        if task and (task.stopped or task.ended()):
            stream.write(json.dumps(task.result()) + "\n")
            stream.flush()
            task = None


def kill_descendants() -> None:
    """End what a check left running, such as sshd in a session of its own."""
    for _ in range(20):
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError):
                # The name of the program, in brackets, can contain spaces.
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        family = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        family.remove(os.getpid())
        if not family:
            return
        for pid in family:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def reap_orphans(but: int) -> None:
    """Reap ended processes that this process adopted. The toolkit waits until its launcher's are gone."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid == but:
                return
            os.waitpid(ended.si_pid, 0)


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ended, as process 1 of a container is."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def private_keys(plan: Mapping[str, Any]) -> list[list[str]]:
    """Return the path and the sha256 of each private key in the image, before a check makes some."""
    keys = []
    for directory in plan["key_directories"]:
        for path in sorted(Path(directory).rglob("*")):
            with contextlib.suppress(OSError):
                if path.is_file() and plan["key_mark"].encode() in path.read_bytes():
                    keys.append([str(path), hashlib.sha256(path.read_bytes()).hexdigest()])
    return keys


def say(text: str) -> None:
    print(f"bakehouse: {text}", file=sys.stderr, flush=True)


def _failed(task: Task | HostConnection) -> bool:
    return bool(task.process.returncode if isinstance(task, Task) else task.result()["exit_code"])


def _lost() -> dict[str, Any]:
    log = "the connection to this host was lost\n"
    fields: dict[str, Any] = {"success": False, "failure": None, "model": {}, "events": [], "answers": ""}
    return {"exit_code": LOST, "seconds": 0.0, "log": log, **fields}


def _line(connection: socket.socket) -> str:
    """Read a line byte by byte: what follows belongs to the connection's reader."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 1000:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def _connect(address: tuple[str, int], seconds: float) -> socket.socket:
    until = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection(address, timeout=10)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
        else:
            connection.settimeout(None)
            return connection


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LOG))
        return file.read().decode(errors="replace")
    return ""


def _resources() -> dict[str, Any]:
    """Return the job's own configuration; empty outside SageMaker."""
    try:
        return dict(json.loads(RESOURCES.read_text()))
    except OSError:
        return {}


def _with_real_hosts(config: dict[str, Any]) -> bytes:
    """Return the configuration of a check with the job's own instance type and network interface."""
    real = _resources()
    if "current_instance_type" in real:
        config["current_instance_type"] = real["current_instance_type"]
        for group in config["instance_groups"]:
            group["instance_type"] = real["current_instance_type"]
    if "network_interface_name" in real:
        config["network_interface_name"] = real["network_interface_name"]
    return json.dumps(config, indent=2, sort_keys=True).encode()


def _interrupt(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    message = "the time limit was reached" if number == signal.SIGALRM else f"stopped by {name}"
    raise Interrupted(message)


def _write(document: Mapping[str, Any], out: Path | None) -> None:
    text = json.dumps(document, sort_keys=True)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        return
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    pieces = [packed[start : start + LINE] for start in range(0, len(packed), LINE)]
    for number, piece in enumerate(pieces, 1):
        print(f"{MARK}{number}/{len(pieces)} {piece}", flush=True)


def main(plan_text: str, exit: Callable[[int], None] = sys.exit) -> None:
    """Run the checks of a plan, which is base64 of compressed JSON."""
    real = _resources()
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default=real.get("current_host", "algo-1"))
    parser.add_argument("--hosts", default=",".join(real.get("hosts", ["algo-1"])))
    parser.add_argument("--address", default="", help="address of the first host")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--work", type=Path, default=Path("/tmp/bakehouse-smoke"))
    parser.add_argument("--out", type=Path, default=RESULTS if real else None)
    parser.add_argument("--seconds", type=int, default=0, help="time limit of all checks; 0 is none")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _interrupt)
    signal.alarm(options.seconds)
    adopt_orphans()
    plan = json.loads(zlib.decompress(base64.b64decode(plan_text)))
    # In the order of their numbers, so that `algo-10` is not the second
    hosts = sorted(options.hosts.split(","), key=lambda host: (len(host), host))
    if options.host != hosts[0]:
        try:
            follow(plan, options.host, options.work, (options.address or hosts[0], options.port))
        except Interrupted as reason:
            say(str(reason))
        exit(0)
        return
    leader = Leader(plan, hosts, options.work)
    leader.run((options.address, options.port))
    _write(leader.document(), options.out)
    if leader.interrupted:
        say(leader.interrupted)
        if real:
            Path(ML, "output/failure").write_text(leader.interrupted)
    exit(1 if leader.interrupted else 0)
