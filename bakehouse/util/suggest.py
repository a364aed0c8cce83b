"""Suggestions for misspelt words."""

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean …?` for the nearest known word in any case, or all known words if they are few."""
    candidates = sorted(known)
    lower = {candidate.lower(): candidate for candidate in reversed(candidates)}
    near = difflib.get_close_matches(word.lower(), lower, 1, 0.7)
    if near:
        return f"did you mean `{lower[near[0]]}`?"
    if 0 < len(candidates) < 8:
        return "known here: " + ", ".join(f"`{name}`" for name in candidates)
    return ""
