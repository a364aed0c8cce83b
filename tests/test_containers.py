"""What the door to the engine says when there is none."""

from textwrap import dedent

import pytest

from bakehouse import containers
from bakehouse.errors import EngineError
from bakehouse.report import failure_text


def test_no_engine_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    with pytest.raises(EngineError) as caught:
        containers.connect()

    assert failure_text(caught.value.diagnostics[0]) == dedent("""\
        error: no container engine answers
          wanted to  open unix:///nowhere/docker.sock
          answer     No such file or directory

        hint: see `./bake doctor`
        """)
