"""Commands that tests run: this checkout's `bake`, and the docker client."""

import subprocess
import sys

BAKE = (sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()")


def docker(*arguments: str) -> str:
    """Run the docker client and return its output."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout
