"""Options of `bake security` that do not fit together."""

import pytest

from bakehouse.cli import main


def test_the_text_of_a_pull_request_is_not_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["security", "--fix", "--json"]) == 64
    assert capsys.readouterr().err == "error: `--fix` cannot be combined with `--json`\n"
