"""The TensorFlow examples with several ranks or devices, which stubs simulate on one CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet
from tests.integration.jobs import EXAMPLES

STUBS = Path(__file__).with_name("example_stubs")
pytestmark = [pytest.mark.engine, pytest.mark.release]


def run(fleet: Fleet, script: str, **environment: str) -> str:
    """Return the output of a script in the image with TensorFlow."""
    command = ["docker", "run", "--rm", "--network=none", f"--volume={EXAMPLES}:/examples:ro"]
    command += [f"--volume={STUBS}:/stubs:ro", "--env=PYTHONPATH=/stubs", "--env=PYTHONDONTWRITEBYTECODE=1"]
    command += [f"--env={name}={value}" for name, value in environment.items()]
    command += [f"--label=bakehouse=tests-{os.getpid()}"]
    reference = fleet.images["tensorflow-cpu"].image.reference
    completed = subprocess.run(
        [*command, reference, "python", f"/stubs/{script}"], capture_output=True, text=True, check=False
    )
    sys.stderr.write(completed.stderr)
    assert completed.returncode == 0, completed.stdout + completed.stderr[-3000:]
    return completed.stdout


def test_each_rank_of_horovod_prepares_other_images_and_the_first_saves_the_model(fleet: Fleet) -> None:
    first, second = (run(fleet, "shards.py", RANK=rank).splitlines()[-1] for rank in ("0", "1"))

    labels, files = zip(*(line.removeprefix("labels ").split("] [") for line in (first, second)), strict=True)
    assert files == ("'model.keras', 'result.json']", "]")
    numbers = [set(text.strip("[]").split(", ")) for text in labels]
    assert [len(part) for part in numbers] == [3, 3]
    assert set.union(*numbers) == {"0", "1", "2", "3", "4", "5"}


def test_a_worker_with_several_devices_trains_with_parameter_servers(fleet: Fleet) -> None:
    assert "after 200 steps on 1 workers" in run(fleet, "replicas.py")
