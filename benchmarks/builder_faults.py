"""Faults of remote builders: what Bakehouse and bare buildx report, after how long, and what is repeated.

python benchmarks/builder_faults.py --json faults.json
python benchmarks/builder_faults.py --only expired_server --only frozen_in_step

It needs root and an engine with the base of `mpi-cpu`. A second engine in a network of its own is the
builder, behind a bridge to BuildKit's API. A bare build that takes longer than `--limit` seconds is killed.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from bakehouse.engine import builder_preflight, builder_watch, docker
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BakehouseError
from benchmarks import harness
from tests.integration import projects
from tests.integration.offline_engine import engine
from tests.integration.remote_builder import RemoteBuilder, remote_builder
from tests.integration.remote_project import IMAGE, RemoteProject
from tests.support import tls
from tests.support.tls import Authority, Pair

DAY = timedelta(days=1)
HERE = "127.0.0.1"
TRANSFERRED = 20_000_000
"""Bytes after which a transfer is interrupted."""
SHORT = "unknown_builder"
_CHANGES = 1000
"""More than the changes of digests that Bakehouse makes."""
STEPS = """\
RUN sleep 1 && echo {} > /first
RUN sleep 20 && echo second
"""


@dataclass(frozen=True)
class Result:
    """Behavior of one program with one fault."""

    fault: str
    program: str
    named: bool
    """The output names the fault."""
    seconds: float
    hangs: bool
    resumed: str
    said: str


@dataclass(frozen=True)
class Run:
    """A build that ended."""

    code: int
    output: str
    seconds: float
    hangs: bool = False


# Faults that prevent a connection


@dataclass
class Endpoint:
    """A builder `broken`, as its definition in a directory names it."""

    directory: Path
    ca: Authority
    server: Pair
    client: Pair
    stack: contextlib.ExitStack

    def options(self, pair: Pair | None = None, **changes: str) -> dict[str, str]:
        pair = pair or self.client
        return {"cacert": str(self.ca.cert), "cert": str(pair.cert), "key": str(pair.key)} | changes

    def at(self, port: int, options: Mapping[str, str], host: str = HERE) -> None:
        path = self.directory / "instances/broken"
        path.parent.mkdir(exist_ok=True)
        endpoint = f"tcp://{host}:{port}"
        node = {"Name": "broken0", "Endpoint": endpoint, "Platforms": None, "DriverOpts": dict(options)}
        content = {"Name": "broken", "Driver": "remote", "Nodes": [node], "Dynamic": False}
        path.write_text(json.dumps(content))

    def serve(
        self,
        answer: Callable[[socket.socket], None] = tls.greet,
        pair: Pair | None = None,
        *,
        has_tls: bool = True,
    ) -> int:
        """Return the port of a server with the certificates of the builder."""
        context = tls.server_context(pair or self.server, self.ca.cert) if has_tls else None
        return self.stack.enter_context(tls.serve(answer, context))


def no_client_certificate(end: Endpoint) -> None:
    end.at(end.serve(), {"cacert": str(end.ca.cert)})


def foreign_client(end: Endpoint) -> None:
    end.at(end.serve(), end.options(Authority(end.directory, "other").issue("foreign")))


def expired_client(end: Endpoint) -> None:
    end.at(end.serve(), end.options(end.ca.issue("old", start=-3 * DAY, end=-DAY)))


def other_key(end: Endpoint) -> None:
    end.at(end.serve(), end.options(key=str(end.ca.issue("second").key)))


def missing_file(end: Endpoint) -> None:
    end.at(end.serve(), end.options(cert=str(end.directory / "absent.pem")))


def other_address(end: Endpoint) -> None:
    end.at(end.serve(pair=end.ca.issue("elsewhere", host="builder.example")), end.options())


def other_server_name(end: Endpoint) -> None:
    end.at(end.serve(), end.options(servername="other.example"))


def foreign_server(end: Endpoint) -> None:
    end.at(end.serve(pair=Authority(end.directory, "strange").issue("strange-server")), end.options())


def expired_server(end: Endpoint) -> None:
    end.at(end.serve(pair=end.ca.issue("stale", start=-3 * DAY, end=-DAY)), end.options())


def early_server(end: Endpoint) -> None:
    end.at(end.serve(pair=end.ca.issue("early", start=DAY, end=2 * DAY)), end.options())


def plain_port(end: Endpoint) -> None:
    end.at(end.serve(has_tls=False), end.options())


def plain_client(end: Endpoint) -> None:
    end.at(end.serve(), {})


def _dockerd(connection: socket.socket) -> None:
    is_ping = connection.recv(4096).startswith(b"GET /_ping")
    body = b"HTTP/1.1 200 OK\r\nApi-Version: 1.45\r\nServer: Docker/26.1.5 (linux)\r\n\r\nOK"
    connection.sendall(body if is_ping else b"HTTP/1.1 400 Bad Request\r\n\r\n")


def dockerd_port(end: Endpoint) -> None:
    end.at(
        end.stack.enter_context(tls.serve(_dockerd, tls.server_context(end.server, end.ca.cert, ()))),
        end.options(),
    )


def other_program(end: Endpoint) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    end.at(end.serve(answer, has_tls=False), {})


def closed_port(end: Endpoint) -> None:
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
    end.at(port, end.options())


def dropped_packets(end: Endpoint) -> None:
    # The queue of a server that does not accept is soon full: further connections get no answer.
    server = end.stack.enter_context(socket.socket())
    server.bind((HERE, 0))
    server.listen(0)
    for _ in range(4):
        client = end.stack.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(server.getsockname())
    end.at(server.getsockname()[1], end.options())


def unknown_host(end: Endpoint) -> None:
    end.at(1234, end.options(), host="builder.invalid")


def unknown_builder(end: Endpoint) -> None:
    """Leave the builder undefined."""


def empty_proxy(end: Endpoint) -> None:
    end.at(end.serve(lambda connection: None), end.options())


def silent_daemon(end: Endpoint) -> None:
    end.at(end.serve(lambda connection: time.sleep(200)), end.options())


CONNECTION: Mapping[str, tuple[Callable[[Endpoint], None], str, str]] = {
    "no_client_certificate": (
        no_client_certificate,
        "no client certificate",
        r"`?cert`?, `?key|certificate required",
    ),
    "foreign_client": (
        foreign_client,
        "client certificate of another CA",
        r"rejected the client|unknown certificate authority",
    ),
    "expired_client": (expired_client, "expired client certificate", r"it expired|expired certificate"),
    "other_key": (
        other_key,
        "client key of another certificate",
        r"not the key of|private key does not match",
    ),
    "missing_file": (missing_file, "missing certificate file", r"no such file"),
    "other_address": (
        other_address,
        "certificate for another address",
        r"not for the name|doesn't contain any IP|valid for",
    ),
    "other_server_name": (other_server_name, "wrong `servername`", r"not for the name|is valid for"),
    "foreign_server": (
        foreign_server,
        "builder's certificate of an unknown CA",
        r"did not sign|unknown authority",
    ),
    "expired_server": (expired_server, "expired certificate of the builder", r"expired"),
    "early_server": (early_server, "builder's certificate not valid yet", r"not valid yet|not yet valid"),
    "plain_port": (plain_port, "TLS to a port without TLS", r"does not use TLS|not look like a TLS"),
    "plain_client": (plain_client, "no TLS to a port with TLS", r"requires TLS"),
    "dockerd_port": (dockerd_port, "dockerd's own port", r"dockerd's own port"),
    "other_program": (other_program, "port of another program", r"is not BuildKit's port|HTTP/2|http2"),
    "closed_port": (closed_port, "closed port", r"nothing listens|connection refused"),
    "dropped_packets": (dropped_packets, "packets dropped by a firewall", r"is unreachable|i/o timeout"),
    "unknown_host": (
        unknown_host,
        "unknown host name",
        r"host name .* is unknown|no such host|lookup builder\.invalid",
    ),
    "unknown_builder": (unknown_builder, "unknown builder name", r"unknown builder|no builder"),
    "empty_proxy": (empty_proxy, "proxy without a daemon", r"closes connections"),
    "silent_daemon": (silent_daemon, "daemon that does not answer", r"does not answer"),
}
"""Function that makes the fault, its title, and a pattern of messages that name it."""


def connection_results(name: str, limit: float, directory: Path) -> Iterator[Result]:
    """Yield the results of Bakehouse's preflight, with which each build begins, and of a bare build."""
    make, _, pattern = CONNECTION[name]
    directory.mkdir(parents=True)
    ca = Authority(directory)
    with contextlib.ExitStack() as stack:
        make(Endpoint(directory, ca, ca.issue("server"), ca.issue("client"), stack))
        environment = {**os.environ, "BUILDX_CONFIG": str(directory)}
        start, said = time.monotonic(), "no fault was found"
        try:
            builder_preflight.require_builder("broken", environment)
        except BakehouseError as error:
            said = text_of(error)
        yield Result(name, "bakehouse", is_named(pattern, said), time.monotonic() - start, False, "", said)
        (directory / "Dockerfile").write_text("FROM scratch\nLABEL a=b\n")
        run = BareBuild(directory, "broken", environment, []).run(limit)
        yield Result(
            name, "buildx", is_named(pattern, run.output), run.seconds, run.hangs, "", last_line(run)
        )


# Faults during a build


@dataclass
class BareBuild:
    """A build by buildx alone."""

    directory: Path
    builder: str
    environment: Mapping[str, str]
    contexts: Sequence[str]

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def run(self, limit: float) -> Run:
        command = ["docker", "buildx", "build", "--builder", self.builder, "--progress=plain"]
        command += [word for each in self.contexts for word in ("--build-context", each)]
        command += [f"--output=type=oci,dest={self.directory / 'image.tar'}", str(self.directory)]
        start, hangs = time.monotonic(), False
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                hangs = True
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        return Run(code, self.log.read_text(), time.monotonic() - start, hangs)

    def reached(self) -> bool:
        return self.log.is_file() and "RUN sleep 20" in self.log.read_text()

    def repeated(self, run: Run, *, is_same_run: bool = False) -> bool:
        """Return whether a run after the fault repeated the first step."""
        step = re.search(r"^#(\d+) \[[^]]+\] RUN sleep 1 ", run.output, re.MULTILINE)
        return not (step and re.search(rf"^#{step[1]} CACHED", run.output, re.MULTILINE))


@dataclass
class BakehouseBuild:
    """A build by Bakehouse, with the watch that `bake build --builder` has."""

    project: RemoteProject
    builder: str

    def run(self, limit: float) -> Run:
        del limit  # It ends by itself.
        start = time.monotonic()
        before = len(self.project.log())
        try:
            self.project.build(self.builder, interval=builder_watch.INTERVAL_SECONDS)
        except BakehouseError as error:
            return Run(1, self.project.log()[before:] + text_of(error), time.monotonic() - start)
        return Run(0, self.project.log()[before:], time.monotonic() - start)

    def reached(self) -> bool:
        return "part 3/3: RUN" in self.project.log()

    def repeated(self, run: Run, *, is_same_run: bool = False) -> bool:
        """Return whether a run after the fault, or after it in the same run, repeated the first step."""
        return run.output.count("part 2/3: RUN") > is_same_run


@dataclass
class Scene:
    """A builder whose engine can be killed and started again."""

    builder: RemoteBuilder
    stack: contextlib.ExitStack
    started: list[str] = field(default_factory=list)

    def kill(self) -> None:
        pid = int((self.builder.home / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        # Another daemon does not start while the process exists.
        os.waitpid(pid, 0)
        self.stack.callback(self._unmount)

    def _unmount(self) -> None:
        """Remove what the killed daemon left mounted."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in mounts:
            if mount.startswith(f"{self.builder.home}/"):
                subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)

    def start(self) -> None:
        time.sleep(1)
        self.started.append(self.stack.enter_context(engine(self.builder.network, self.builder.home)))

    def prune(self) -> None:
        host = f"unix://{self.builder.home}/docker.sock"
        subprocess.run(
            ["docker", "--host", host, "builder", "prune", "--all", "--force"],
            check=True,
            capture_output=True,
        )


Inject = Callable[[Scene], None]


def _none(scene: Scene) -> None:
    """Repair nothing."""


RUNNING: Mapping[str, tuple[str, str, Inject, Inject, str]] = {
    "frozen_at_start": (
        *("connection frozen before the build", "start"),
        *(lambda scene: scene.builder.bridge.freeze(), lambda scene: scene.builder.bridge.thaw()),
        r"does not answer|stopped answering",
    ),
    "frozen_in_step": (
        *("connection frozen in a step", "step"),
        *(lambda scene: scene.builder.bridge.freeze(), lambda scene: scene.builder.bridge.thaw()),
        r"stopped answering",
    ),
    "frozen_in_transfer": (
        *("connection frozen in a transfer", "transfer"),
        *(lambda scene: scene.builder.bridge.freeze(), lambda scene: scene.builder.bridge.thaw()),
        r"stopped answering",
    ),
    "cut_in_step": (
        "connection cut in a step",
        "step",
        lambda scene: scene.builder.bridge.cut(),
        _none,
        r"stopped answering|connection error|error reading|EOF|transport",
    ),
    "cut_in_transfer": (
        "connection cut in a transfer",
        "transfer",
        lambda scene: scene.builder.bridge.cut(),
        _none,
        r"stopped answering|connection error|error reading|EOF|transport",
    ),
    "killed_in_step": (
        "daemon killed in a step",
        "step",
        Scene.kill,
        Scene.start,
        r"stopped answering|connection error|error reading|EOF|transport",
    ),
}
"""Title, moment, fault, repair, and a pattern of messages that name the fault."""


def running_result(
    name: str, program: str, build: BakehouseBuild | BareBuild, scene: Scene, limit: float
) -> Result:
    """Cause a fault at its moment, then repair it, and build again."""
    _, moment, inject, repair, pattern = RUNNING[name]
    bridge = scene.builder.bridge
    if moment == "transfer":
        scene.prune()
    ended = threading.Event()
    caused: list[float] = []

    def wait() -> None:
        first = bridge.received + TRANSFERRED
        while not (build.reached() if moment == "step" else bridge.received > first):
            if ended.wait(0.1):
                return
        inject(scene)
        caused.append(time.monotonic())

    thread = threading.Thread(target=wait)
    if moment == "start":
        inject(scene)
        caused.append(time.monotonic())
    else:
        thread.start()
    run = build.run(limit)
    end = time.monotonic()
    ended.set()
    if thread.ident:
        thread.join()
    repair(scene)
    if not caused:
        return Result(name, program, False, 0.0, False, "the fault did not occur", last_line(run))
    seconds = end - caused[0]
    named = is_named(pattern, run.output)
    last, said, is_same_run = run, last_line(run), True
    if run.code:
        last, is_same_run = build.run(limit), False
    if last.code:
        resumed = f"no: {last_line(last)}"
    else:
        resumed = "by itself" if is_same_run else "next run"
        if moment == "step" and build.repeated(last, is_same_run=is_same_run):
            resumed += ", repeating a finished step"
    return Result(name, program, named, seconds, run.hangs, resumed, said)


def running_results(names: Sequence[str], limit: float, directory: Path) -> Iterator[Result]:
    with contextlib.ExitStack() as stack:
        builder = stack.enter_context(remote_builder(directory / "builder"))
        os.environ.update(builder.environment)
        scene = Scene(builder, stack)
        (directory / "project").mkdir()
        project = RemoteProject(directory / "project", ["remote"])
        stack.callback(project.close)
        for number, name in enumerate(names):
            project.write({"remote": STEPS.format(uuid4()) + IMAGE})
            build = BakehouseBuild(project, builder.name)
            yield running_result(name, "bakehouse", build, scene, limit)
            files = directory / f"bare-{name}"
            files.mkdir()
            (files / "Dockerfile").write_text("FROM base\n" + STEPS.format(uuid4()))
            context = f"base={_base(directory / 'layouts' / name, _CHANGES + number)}"
            bare = BareBuild(files, builder.name, dict(os.environ), [context])
            yield running_result(name, "buildx", bare, scene, limit)


def _base(directory: Path, changes: int) -> str:
    """Return the base as a context with layers of its own.

    BuildKit keeps a part of an interrupted transfer by digest, and fails later transfers of that digest.
    """
    layout = OciLayout(directory)
    with contextlib.closing(docker.connect()) as connected:
        stored = connected.image(projects.base())
        assert stored, "build the base with `bake build mpi-cpu`"
        return layout.context(layout.add_image(stored.digest, connected, changes))


# The report


def text_of(error: BakehouseError) -> str:
    return "\n".join(
        " ".join([each.message, *(f"{name} {text}" for name, text in each.facts)])
        for each in error.diagnostics
    )


def is_named(pattern: str, output: str) -> bool:
    return re.search(pattern, output) is not None


def last_line(run: Run) -> str:
    lines = [line for line in run.output.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else ""


def table(results: Sequence[Result]) -> str:
    """Return the results as a table in Markdown, one line for each fault."""
    titles = {name: entry[1] for name, entry in CONNECTION.items()} | {
        name: entry[0] for name, entry in RUNNING.items()
    }
    lines = ["| fault | Bakehouse | then | bare buildx | then |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(result.fault for result in results):
        cells = []
        for program in ("bakehouse", "buildx"):
            [result] = [each for each in results if (each.fault, each.program) == (name, program)]
            seconds = f"{result.seconds:.1f} s" if result.seconds > 0.1 else "< 0.1 s"
            verdict = "hangs" if result.hangs else seconds
            cells += [f"{'named' if result.named else 'not named'}, {verdict}", result.resumed or "-"]
        lines.append(f"| {titles[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=[*CONNECTION, *RUNNING], help="a fault; repeatable"
    )
    parser.add_argument("--limit", type=float, default=100.0, help="seconds for each bare build")
    parser.add_argument("--json", type=Path, help="file for the results")
    harness.add_short(parser)
    options = parser.parse_args()
    names = [SHORT] if options.short else options.only or [*CONNECTION, *RUNNING]
    results: list[Result] = []

    def add(result: Result) -> None:
        results.append(result)
        print(
            f"{result.fault} {result.program}: named {result.named}, {result.seconds:.1f} s, "
            f"hangs {result.hangs}, resumed {result.resumed!r}: {result.said}",
            file=sys.stderr,
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in results], indent=2) + "\n")

    with tempfile.TemporaryDirectory(prefix="bakehouse-builders-") as directory:
        for name in (name for name in names if name in CONNECTION):
            for result in connection_results(name, options.limit, Path(directory, name)):
                add(result)
        if running := [name for name in names if name in RUNNING]:
            for result in running_results(running, options.limit, Path(directory)):
                add(result)
    print(table(results))
    if options.short:
        named = {result.program: result.named for result in results}
        print(harness.require_same("named fault", named, {"bakehouse": True, "buildx": True}))


if __name__ == "__main__":
    main()
