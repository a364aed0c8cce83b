"""Hyperparameters that a script reads as flags."""

from pathlib import Path

import pytest

from bakehouse.jobs.script_arguments import flag_findings
from tests.support.data import text_of

SCRIPT = text_of(__file__, "script")


def test_flags_are_found(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    names = ("use-amp", "off", "either", "count", "a", "lr", "all", "plain", "no-call-of-argparse", "other")
    findings = list(flag_findings(script, names))

    assert [finding.message.split("`")[3] for finding in findings] == [
        *("--use-amp", "--off", "--either", "--count", "--a")
    ]
    assert (findings[0].message, findings[0].hint, findings[0].is_error) == (
        "`train.py` reads `--use-amp` as a flag, but a hyperparameter always has a value",
        "declare it with a value, such as `type=json.loads`, and set it to true or false",
        False,
    )


@pytest.mark.parametrize("text", ["", "def", "\0", "(" * 2000])
def test_a_script_that_is_not_python_is_not_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.sh").write_text(text)
    assert list(flag_findings(tmp_path / "train.sh", ["a"])) == []
    assert list(flag_findings(tmp_path / "missing.py", ["a"])) == []
