"""Connection to this machine's engine, with checks of the features that a command needs."""

import contextlib
from collections.abc import Collection, Iterator

from bakehouse.engine import daemon_info, docker, emulation, provision
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.protocol import Engine
from bakehouse.util.oci import PLATFORM
from bakehouse.util.terminal import Reporter

BUILD_FEATURES = (Feature.BRIDGE, Feature.BUILDX)
"""Features of an engine that builds and smoke tests need."""


@contextlib.contextmanager
def open_engine(
    report: Reporter, *features: Feature, platforms: Collection[str] = (PLATFORM,)
) -> Iterator[Engine]:
    """Yield this machine's engine, installed and started if needed, without leftovers of ended runs.

    It must run the programs of all `platforms`. Commands that build report the effects of emulation.
    """
    daemon = provision.ensure(provision.ask_at_terminal, report)
    daemon_info.require(daemon, *features)
    emulation.require_platforms(daemon, platforms)
    if Feature.BUILDX in features and (line := emulation.notice(daemon, platforms)):
        report(line)
    connected = docker.connect()
    with contextlib.closing(connected):
        connected.sweep()
        yield connected
