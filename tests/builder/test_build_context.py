"""Context of a build: which engine is restarted."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.catalog.project import ProjectSettings
from bakehouse.util.terminal import Reporter
from tests.support import feeds
from tests.support.fake_engine import FakeEngine, Run


@pytest.mark.parametrize("is_restarted", [True, False])
def test_an_engine_that_lost_a_layer_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    output, restarts = io.StringIO(), list[Reporter]()

    def restart(report: Reporter) -> bool:
        restarts.append(report)
        return is_restarted

    monkeypatch.setattr("bakehouse.engine.provision.restart", restart)
    progress = Progress(output, Mode.LINES)
    engine = FakeEngine(lambda spec: Run())
    context = BuildContext(ProjectSettings(tmp_path, ()), engine, progress, feeds.nothing(tmp_path))

    assert context.restart_engine() is is_restarted
    line = "the engine lost a layer (a BuildKit bug): restarted the engine, building again\n"
    assert output.getvalue().endswith(line) is is_restarted
    remote = replace(context, builders=RemoteBuilders(["far"], print))
    assert remote.restart_engine() is False
    assert len(restarts) == 1
