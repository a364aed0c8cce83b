"""Connection to this machine's engine, ready for what a command does with it."""

import contextlib
from collections.abc import Collection, Iterator

from bakehouse.engine import daemon_info, docker, emulation, provision
from bakehouse.engine.daemon_info import Feature
from bakehouse.engine.protocol import Engine
from bakehouse.util.oci import PLATFORM
from bakehouse.util.terminal import Reporter

BUILD_FEATURES = (Feature.PLATFORM, Feature.BRIDGE, Feature.BUILDX)
"""Features of an engine that builds and smoke tests need."""


@contextlib.contextmanager
def open_engine(
    report: Reporter, *features: Feature, platforms: Collection[str] = (PLATFORM,)
) -> Iterator[Engine]:
    """Yield this machine's engine, installed and started if needed, without remains of ended runs.

    With the feature PLATFORM, it must run the programs of all `platforms`.
    """
    daemon = provision.ensure(provision.ask_at_terminal, report)
    # An engine on an Arm machine runs arm64 images
    needed = [feature for feature in features if feature != Feature.PLATFORM or PLATFORM in platforms]
    daemon_info.require(daemon, *needed)
    if Feature.PLATFORM in features:
        emulation.require_platforms(daemon, platforms)
    connected = docker.connect()
    with contextlib.closing(connected):
        connected.sweep()
        yield connected
