"""A remote builder: a second engine in a network without routes, behind a bridge to BuildKit's API."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.integration.offline_engine import OfflineNetwork, engine
from tests.support import tls
from tests.support.buildkit_bridge import BuildkitBridge
from tests.support.tls import Authority


@dataclass(frozen=True)
class RemoteBuilder:
    """A builder, the bridge to it, and the environment that defines it."""

    name: str
    bridge: BuildkitBridge
    environment: Mapping[str, str]
    network: OfflineNetwork
    home: Path
    """Directory of its engine."""


@contextlib.contextmanager
def remote_builder(directory: Path, name: str = "far", config: Path | None = None) -> Iterator[RemoteBuilder]:
    """Start a builder whose files are below a directory, except for sockets, which need short paths.

    `config` is the directory of buildx for several builders.
    """
    certificates = directory / "certificates"
    certificates.mkdir(parents=True)
    authority = Authority(certificates)
    server, client = authority.issue("server"), authority.issue("client")
    home = Path("/tmp", f"bakehouse-{uuid4().hex[:8]}")
    home.mkdir()
    environment = {"BUILDX_CONFIG": str(config or directory / "buildx")}
    try:
        with OfflineNetwork(f"bh{uuid4().hex[:6]}") as nowhere, engine(nowhere, home) as host:
            context = tls.server_context(server, authority.cert)
            bridge = BuildkitBridge(Path(host.removeprefix("unix://")), context)
            with bridge.serve() as port:
                options = f"cacert={authority.cert},cert={client.cert},key={client.key}"
                subprocess.run(
                    ["docker", "buildx", "create", "--name", name, "--driver", "remote",
                     "--driver-opt", options, f"tcp://127.0.0.1:{port}"],
                    env={**os.environ, **environment}, check=True, capture_output=True,
                )  # fmt: skip
                yield RemoteBuilder(name, bridge, environment, nowhere, home)
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=False)
