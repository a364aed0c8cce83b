"""The audit command of the platform team."""

import subprocess


def installed():
    return "1.0"


def check_audit_prints_a_team():
    output = subprocess.run(["audit"], capture_output=True, text=True, check=True).stdout
    assert output.startswith("built by "), output
