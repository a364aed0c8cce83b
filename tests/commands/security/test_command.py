"""Options of `bake security` that do not fit together."""

import pytest

from bakehouse.cli import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fix", "--sign"], "`--fix` cannot be combined with `--sign`"),
        (["--fix", "--json"], "`--fix` cannot be combined with `--json`"),
    ],
)
def test_options_that_do_not_fit_together(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main.run(["security", *options]) == 64
    assert capsys.readouterr().err == f"error: {message}\n"
