"""Suggestions for misspelt words."""

import difflib
from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean …?` for the nearest known word, or the known words themselves when they are few."""
    candidates = sorted(known)
    near = difflib.get_close_matches(word, candidates, 1, 0.7)
    if near:
        return f"did you mean `{near[0]}`?"
    if 0 < len(candidates) < 8:
        return "known here: " + ", ".join(f"`{name}`" for name in candidates)
    return ""
