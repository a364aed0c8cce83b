"""Combinations of options in which each pair of values occurs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any

_TRIES = 40
"""Random combinations to choose each next one from."""


def pairwise(
    options: Mapping[str, Sequence[Any]], is_possible: Callable[[Mapping[str, Any]], bool], seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield possible combinations, most new pairs of values first, until random ones add no pair."""
    dice = Random(seed)
    seen: set[tuple[str, int, str, int]] = set()
    while True:
        best: tuple[set[tuple[str, int, str, int]], dict[str, Any]] = (set(), {})
        for _ in range(_TRIES):
            indices = {name: dice.randrange(len(values)) for name, values in options.items()}
            pairs = {(*one, *other) for one, other in combinations(indices.items(), 2)} - seen
            chosen = {name: options[name][index] for name, index in indices.items()}
            if len(pairs) > len(best[0]) and is_possible(chosen):
                best = pairs, chosen
        if not best[0]:
            return
        seen |= best[0]
        yield best[1]
