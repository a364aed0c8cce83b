"""The replay of keys over the history, on committed files."""

from bakehouse.catalog.project import HOME
from bakehouse.plan import image_keys as committed
from bakehouse.plan.image_layer import KEY_DIGITS
from benchmarks.key_replay import changes, image_keys

NAME = "mpi-cpu"


def test_the_key_of_the_steps_is_the_committed_key() -> None:
    key = committed.parse((HOME / "images/keys.txt").read_text())[NAME]
    assert key
    keys = image_keys(HOME / "images" / NAME, key.key)

    assert [layer[:KEY_DIGITS] for layer in keys.layers] == [layer.key for layer in key.layers]
    assert (keys.steps, changes({NAME: keys}, {NAME: keys})) == (key.key, (0, 0, 0, 0))
