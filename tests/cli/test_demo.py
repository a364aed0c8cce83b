"""Checks of the demo before its work."""

import http.server
import threading
from dataclasses import replace

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import demo
from bakehouse.engine import provision
from bakehouse.errors import PublishError
from bakehouse.plan.workspace import open_workspace


def test_an_occupied_port_is_found_before_an_engine_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(provision, "ensure", ensure)
    workspace = open_workspace(HOME)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        project = replace(workspace.project, registry_port=server.server_port)
        with pytest.raises(PublishError) as caught:
            demo.run(replace(workspace, project=project), print)
        server.shutdown()
    assert caught.value.diagnostics[0].hint == (
        "set `registry_port` in [tool.bakehouse] or BAKEHOUSE_REGISTRY_PORT to a free port, "
        "or stop the other program"
    )
