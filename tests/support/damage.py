"""Recipes and components with odd values."""

from random import Random

from tests.support.data import text_of
from tests.support.trees import IMAGE

RICH = (
    IMAGE
    + """\
packages: [htop]
environment: {A: "1"}
run: [echo a]
files: [{from: src/train.py, to: /opt/train.py}]
code: {directory: src, entry_point: train.py}
requirements: own.lock
exclude: [cuda]
"""
)
PART = text_of(__file__, "part")
ODD: list[object] = [
    *("", None, [], {}, [[]], [{}], {"a": {"b": []}}, {"": ""}, -1, 0, True, "9" * 30, "x" * 300, "a\nb"),
    *("*", "unknown", "..", ".", "/", "a/b", "a b", "é", "'", '"', "${A}", "src", "===x", ">=2,<1"),
    *("1.0+x", "python", ["python"], {"python": "*"}, {"python": []}, {"version": "1"}, [{"name": "x"}]),
    *({"bootstrap": ""}, {"bootstrap": "sid", "image": "x"}),
]


def damaged(value: object, random: Random, share: float) -> object:
    """A value with some of its parts, or keys, replaced by odd ones."""
    if random.random() < share:
        return random.choice(ODD)
    if isinstance(value, dict):
        keys = [
            random.choice([*value, "requires", "x"]) if random.random() < share / 2 else key for key in value
        ]
        return {key: damaged(item, random, share) for key, item in zip(keys, value.values(), strict=True)}
    if isinstance(value, list):
        return [damaged(item, random, share) for item in value]
    return value
