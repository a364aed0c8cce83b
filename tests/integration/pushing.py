"""Publishes one tiny image in a process of its own: `python -m tests.integration.pushing HOST DIGEST …`.

What docker's own configuration says of logins counts, and nothing is shared between two such processes but
what their DIRECTORY holds.
"""

import contextlib
import json
import signal
import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.cli import diagnostics
from bakehouse.engine import docker
from bakehouse.errors import BakehouseError
from bakehouse.publish.push import PushOptions, publish
from bakehouse.registry.destination import docker_login
from bakehouse.registry.registry import NamedRegistry
from bakehouse.util.oci import Digest
from tests.integration.tiny_images import image, passed
from tests.support.built_images import CONTENT

DAY = date(2026, 11, 20)
NAME = "mpi-cpu"
TAG = f"{NAME}-20261120-7c1e44b0"


@dataclass(frozen=True)
class PushCommand:
    """The command line of such a process."""

    host: str
    digest: str
    stored: str
    directory: Path
    prefix: str = "bakehouse"
    deadline: float = 0.0

    def command(self) -> list[str]:
        arguments = (
            self.host,
            self.digest,
            self.stored,
            str(self.directory),
            self.prefix,
            str(self.deadline),
        )
        return [sys.executable, "-P", "-m", "tests.integration.pushing", *arguments]


def main(
    host: str, digest: str, stored: str, directory: str, prefix: str, deadline: str, settle: str = ""
) -> int:
    built = BuiltImage(image(NAME), Digest(digest), Digest(stored), 1, CONTENT)
    state = Path(directory)
    publication = PushOptions(day=DAY, locks=state / "locks", prefix=prefix)
    if settle:
        publication = replace(publication, settle=float(settle))
    if seconds := float(deadline):
        publication = replace(publication, until=time.monotonic() + seconds)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        registry = NamedRegistry(host, docker_login)
        with contextlib.closing(docker.connect()) as engine:
            packer = Packer(engine, state)
            published = publish(built, passed(built), registry, packer, publication, say)
    except BakehouseError as error:
        diagnostics.write_failure(error, sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    say(f"{'was there' if published.was_there else 'pushed'}: {published.digest}")
    return 0


def serve(host: str, digest: str, stored: str, directory: str, settle: str) -> None:
    """Push it under each prefix that comes, and tell how that ended: such a process is started once."""
    for line in sys.stdin:
        print(
            json.dumps({"code": main(host, digest, stored, directory, line.strip(), "60", settle)}),
            flush=True,
        )


if __name__ == "__main__":
    # A shell lets what it starts in the background ignore it, and Python leaves it at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]))
