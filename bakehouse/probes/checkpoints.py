"""A job that is killed between two checkpoints, starts again, and resumes from the last whole one.

After an interruption, SageMaker starts a job again with the files that were in /opt/ml/checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from job_record import recorded  # type: ignore[import-not-found]

EPOCHS, KILLED_IN = 5, 3


def train(directory: Path, killed_in: int) -> None:
    """Add each epoch to a sum; in epoch `killed_in`, die like an interrupted host, with half a checkpoint."""
    last = directory / "last.json"
    state = json.loads(last.read_text()) if last.exists() else {"epoch": 0, "sum": 0}
    print(f"starts after epoch {state['epoch']}", flush=True)
    for epoch in range(state["epoch"] + 1, EPOCHS + 1):
        state = {"epoch": epoch, "sum": state["sum"] + epoch, "first": state.get("first", epoch)}
        text = json.dumps(state)
        part = directory / "last.json.part"
        if epoch == killed_in:
            part.write_text(text[: len(text) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        part.write_text(text)
        part.replace(last)
    Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps(state))


def main() -> None:
    directory = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints")
    if sys.argv[1:2] == ["--killed-in"]:
        train(directory, int(sys.argv[2]))
        return
    with recorded("0", "1") as rank:
        rank.arrived()
        codes = [
            subprocess.run([sys.executable, __file__, "--killed-in", epoch], check=False).returncode
            for epoch in (str(KILLED_IN), "0")
        ]
        state = json.loads(Path(os.environ["SM_MODEL_DIR"], "model.json").read_text())
        expected = {"epoch": EPOCHS, "sum": sum(range(EPOCHS + 1)), "first": 1}
        if codes != [-signal.SIGKILL, 0] or state != expected:
            message = f"the runs ended with {codes}, and the model is {state}, not {expected}"
            raise RuntimeError(message)
        print(f"resumed after epoch {KILLED_IN - 1} and finished epoch {EPOCHS}", flush=True)


if __name__ == "__main__":
    main()
