"""Suggestions for misspelt words."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

_FEW = 8


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `did you mean …?` for the nearest known word, or a list of all known words if they are few."""
    candidates = sorted(known)
    if near := nearest(word, candidates):
        return f"did you mean `{near}`?"
    if 0 < len(candidates) < _FEW:
        names = ", ".join(f"`{candidate}`" for candidate in candidates)
        return f"use one of {names}" if len(candidates) > 1 else f"use {names}"
    return ""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return the known word that is most similar to a word, ignoring case; empty if none is similar."""
    # Image URI look-ups import this module, and importing difflib takes longer than a look-up.
    import difflib

    lower = {candidate.lower(): candidate for candidate in sorted(known, reverse=True)}
    text = word.lower()

    def rank(candidate: str) -> tuple[float, bool]:
        """Return the similarity, and whether the first letter is the same, which decides a tie."""
        return difflib.SequenceMatcher(None, candidate, text).ratio(), candidate[:1] == text[:1]

    near = difflib.get_close_matches(text, lower, 3, cutoff)
    return lower[max(near, key=rank)] if near else ""


def nearest_glob(glob: str, known: Iterable[str]) -> str:
    """Return a similar glob that matches a known name; empty if there is none.

    It corrects misspelt words between hyphens, and the case of words with wildcards.
    """
    names = [*known]
    words = {word for name in names for word in name.split("-")}
    corrected = "-".join(
        word.lower() if not word or {*"*?["} & {*word} else nearest(word, words) or word
        for word in glob.split("-")
    )
    return corrected if any(fnmatchcase(name, corrected) for name in names) else ""
