"""Behavior of push programs under network and registry faults, with a small image and a real registry.

python benchmarks/push_faults.py --json faults.json
python benchmarks/push_faults.py --only stall --pushers ours,docker

It needs root (one fault is a small disk) and Debian's docker-registry, and `skopeo` and the Python package
`oras` to compare them. A push that takes longer than `--deadline` seconds counts as hanging.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bakehouse.catalog.project import HOME
from bakehouse.registry.manifest import KINDS, parse
from benchmarks import harness
from tests.integration.push_faults import (
    FAULTS,
    Layout,
    PushFault,
    Scene,
    docker_configuration,
    layout,
    scene,
)
from tests.integration.pushing import TAG, PushCommand
from tests.integration.tiny_images import built
from tests.support.proxy import Proxy, Request

REPOSITORY = "bakehouse/mpi-cpu"
SHORT_FAULT, SHORT_PUSHERS = "one 503 on the manifest", ("ours", "buildkit")
COMPRESSED = "oci-mediatypes=false,compression=gzip,force-compression=true"


@dataclass(frozen=True)
class Work:
    """Inputs of a push program."""

    location: str
    digest: str
    directory: Path
    layout: Layout
    context: Path
    """Dockerfile of the image."""
    label: str

    @property
    def reference(self) -> str:
        return f"{self.location}/{REPOSITORY}:{TAG}"


@dataclass(frozen=True)
class Cell:
    """Result of one push program with one fault."""

    fault: str
    pusher: str
    verdict: str
    seconds: float
    megabytes: float
    """Bytes that it sent."""
    said: str


def ours(work: Work) -> list[str]:
    image = work.layout.image
    return PushCommand(work.location, image.digest, image.stored, work.directory / "state").command()


def docker_cli(work: Work) -> list[str]:
    tag = f"docker tag {work.layout.image.stored} {work.reference}"
    untag = f"docker rmi {work.reference} >/dev/null"
    return ["sh", "-c", f"{tag} && docker push {work.reference}; code=$?; {untag}; exit $code"]


_SDK = """
import sys, docker
digest, name, tag = sys.argv[1:]
client = docker.from_env()
client.api.tag(digest, name, tag)
try:
    for line in client.api.push(name, tag, stream=True, decode=True):
        if "error" in line:
            sys.exit(line["error"])
finally:
    client.api.remove_image(f"{name}:{tag}", noprune=True)
"""


def docker_sdk(work: Work) -> list[str]:
    return [sys.executable, "-c", _SDK, work.layout.image.stored, *work.reference.rsplit(":", 1)]


def buildkit(work: Work) -> list[str]:
    output = f"type=image,name={work.reference},push=true,{COMPRESSED}"
    return [
        *("docker", "buildx", "build", "--provenance=false", "--progress=plain", "--label", work.label),
        *("--output", output, str(work.context)),
    ]


def skopeo(work: Work) -> list[str]:
    verify = "--dest-tls-verify=false" if work.location.startswith("127.") else "--dest-tls-verify=true"
    source = f"oci:{work.layout.directory}"
    return [
        "skopeo",
        "copy",
        "--insecure-policy",
        verify,
        "--retry-times=3",
        source,
        f"docker://{work.reference}",
    ]


_ORAS = """
import json, sys
from pathlib import Path
import oras.provider
directory, digest, reference, plain, user, token = sys.argv[1:]
registry = oras.provider.Registry(insecure=plain == "plain", auth_backend="basic")
registry.auth.set_basic_auth(user, Path(token).read_text())
container = registry.get_container(reference)
blobs = Path(directory, "blobs", "sha256")
content = (blobs / digest.removeprefix("sha256:")).read_bytes()
manifest = json.loads(content)
for part in (manifest["config"], *manifest["layers"]):
    answer = registry.upload_blob(str(blobs / part["digest"].removeprefix("sha256:")), container, part)
    if answer.status_code not in (200, 201, 202):
        sys.exit(f"{answer.status_code} {answer.reason}: {answer.text}")
# Its own upload_manifest makes new bytes of another media type: that would be another digest.
url = f"{registry.prefix}://{container.manifest_url()}"
headers = {"Content-Type": manifest["mediaType"]}
answer = registry.do_request(url, "PUT", data=content, headers=headers)
if answer.status_code not in (200, 201, 202):
    sys.exit(f"{answer.status_code} {answer.reason}: {answer.text}")
"""


def oras(work: Work) -> list[str]:
    plain = "plain" if work.location.startswith("127.") else "tls"
    layout, token = str(work.layout.directory), str(work.directory / "token")
    return [sys.executable, "-c", _ORAS, layout, work.digest, work.reference, plain, "ci", token]


PUSHERS: dict[str, Callable[[Work], list[str]]] = {
    "ours": ours,
    "docker": docker_cli,
    "docker-sdk": docker_sdk,
    "buildkit": buildkit,
    "skopeo": skopeo,
    "oras": oras,
}


def missing() -> Iterable[str]:
    if not shutil.which("skopeo"):
        yield "skopeo"
    if subprocess.run([sys.executable, "-c", "import oras"], capture_output=True).returncode:
        yield "oras"


def tried(fault: PushFault, pusher: str, layouts: dict[str, Layout], context: Path, wait: float) -> Cell:
    """Run a push program with a fault."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        arranged = stack.enter_context(scene(fault, Path(directory), REPOSITORY, layouts))
        environment = docker_configuration(Path(directory), arranged.token)
        digest = layouts["same"].manifest.digest
        label = f"bakehouse=tests-{os.getpid()}"
        work = Work(arranged.location, digest, Path(directory), layouts["same"], context, label)
        log = Path(directory, "said")
        began = time.monotonic()
        with log.open("wb") as log_file:
            running = subprocess.Popen(
                PUSHERS[pusher](work),
                env={
                    **os.environ,
                    **environment,
                    "PYTHONPATH": os.pathsep.join((str(HOME), os.environ.get("PYTHONPATH", ""))),
                },
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
        try:
            code = running.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            code = None
        seconds = time.monotonic() - began
        text = log.read_text(errors="replace")
        verdict = _verdict(fault, code, text, arranged)
        sent = sum(len(request.body) for request in arranged.proxy.requests) / 1e6
    _forget(work.reference)
    return Cell(fault.name, pusher, verdict, round(seconds, 1), round(sent, 2), _last(text))


def _forget(reference: str) -> None:
    subprocess.run(["docker", "image", "rm", reference], capture_output=True)


def _verdict(fault: PushFault, code: int | None, text: str, arranged: Scene) -> str:
    if code is None:
        return "hangs"
    if code == 0:
        if fault.cause:
            return "WRONG"
        return "ok" if _is_whole(arranged) else "WRONG"
    if not fault.cause:
        return "fails"
    return "named" if re.search(fault.cause, text) else "unnamed"


def _is_whole(arranged: Scene) -> bool:
    """Return whether the registry, asked without the fault, has the tag and all its content."""
    proxy = Proxy(arranged.registry.port)
    reply = proxy.forward(Request("GET", f"/v2/{REPOSITORY}/manifests/{TAG}", _ACCEPT, b"", None))  # type: ignore[arg-type]
    if reply.status != 200:
        return False
    manifest = parse(reply.body)
    parts = [part for part in (manifest.config, *manifest.layers) if part]
    paths = [f"/v2/{REPOSITORY}/blobs/{part.digest}" for part in parts]
    return all(proxy.forward(Request("HEAD", path, {}, b"", None)).status == 200 for path in paths)  # type: ignore[arg-type]


_ACCEPT = {"Accept": ", ".join(KINDS)}


def _last(text: str) -> str:
    """Return the last line of the output, for a table."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "denied" in line] or lines[-1:]
    return " ".join(errors[-1].split())[:300] if errors else ""


def table(cells: Sequence[Cell], pushers: Sequence[str]) -> str:
    """Return a table with a row for each fault and a column for each push program."""
    by_fault = {(cell.fault, cell.pusher): cell for cell in cells}
    lines = ["| fault | " + " | ".join(pushers) + " |", "|---" * (len(pushers) + 1) + "|"]
    for fault in dict.fromkeys(cell.fault for cell in cells):
        row = [by_fault.get((fault, pusher)) for pusher in pushers]
        texts = [f"{cell.verdict}, {cell.seconds:.0f} s" if cell else "-" for cell in row]
        lines.append(f"| {fault} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="faults whose names hold this")
    parser.add_argument("--pushers", default=",".join(PUSHERS))
    parser.add_argument("--deadline", type=float, default=75.0, help="seconds for a cell")
    parser.add_argument("--json", type=Path)
    harness.add_short(parser)
    options = parser.parse_args()
    absent = set(missing())
    pushers = [name for name in options.pushers.split(",") if name not in absent]
    if options.short:
        options.only, pushers = SHORT_FAULT, [*SHORT_PUSHERS]
    cells: list[Cell] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        layouts = {}
        for name in ("same", "other"):
            context = directory / name
            context.mkdir()
            image = stack.enter_context(built(context, "mpi-cpu"))
            layouts[name] = layout(directory / f"{name}-layout", image)
        for fault in (fault for fault in FAULTS if options.only in fault.name):
            for pusher in pushers:
                cells.append(tried(fault, pusher, layouts, directory / "same", options.deadline))
                print(*(str(value) for value in asdict(cells[-1]).values()), sep="  ", flush=True)
                if options.json:
                    options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=2) + "\n")
    print(table(cells, pushers))
    if options.short:
        verdicts = {cell.pusher: cell.verdict for cell in cells}
        # `ok`: the registry has the manifest and all blobs of the same digest.
        print(harness.require_same("verdict", verdicts, dict.fromkeys(SHORT_PUSHERS, "ok")))


if __name__ == "__main__":
    main()
