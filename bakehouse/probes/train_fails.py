"""A training job that fails, to see that the image tells SageMaker so."""

from __future__ import annotations

from job_record import recorded  # type: ignore[import-not-found]

if __name__ == "__main__":
    with recorded("0", "1") as rank:
        rank.arrived()
        message = "this training script fails on purpose"
        raise RuntimeError(message)
