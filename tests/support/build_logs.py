"""The time at which a recorded build began."""

from datetime import datetime

BEGAN = "2026-11-21T10:00:00+00:00"
TIME = datetime.fromisoformat(BEGAN).timestamp()
