"""The directory of the mistakes of users."""

from pathlib import Path

MISTAKES = Path(__file__).parents[1] / "mistakes"
