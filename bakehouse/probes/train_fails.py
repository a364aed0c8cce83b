"""A training job that fails, to test that the image reports this to SageMaker."""

from __future__ import annotations

from job_record import recorded  # type: ignore[import-not-found]

if __name__ == "__main__":
    with recorded("0", "1") as rank:
        rank.arrived()
        message = "this training script fails on purpose"
        raise RuntimeError(message)
