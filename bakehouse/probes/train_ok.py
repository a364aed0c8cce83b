"""A training job as SageMaker expects it: it reads its channel and saves a checkpoint and a model."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path

from job_record import recorded  # type: ignore[import-not-found]


def processes() -> set[str]:
    """Return the names of all processes in this container."""
    names = set()
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            names.add((directory / "comm").read_text().strip())
    return names


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--channel", required=True)
    arguments = parser.parse_args()
    if len(json.loads(os.environ["SM_HOSTS"])) == 1 and "sshd" in processes():
        message = "sshd runs in a job of one host, which needs no logins"
        raise RuntimeError(message)
    channel = Path(os.environ[f"SM_CHANNEL_{arguments.channel.upper()}"])
    total = arguments.epochs * sum(json.loads((channel / "numbers.json").read_text()))
    base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
    Path(base, "checkpoints/last.json").write_text(json.dumps({"epoch": arguments.epochs}))
    Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps({"total": total}))


if __name__ == "__main__":
    with recorded("0", "1") as rank:
        rank.arrived()
        main()
