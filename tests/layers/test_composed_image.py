"""New images from the documents of a stored one."""

import json

from bakehouse.engine.content_store import StoredFiles
from bakehouse.layers.composed_image import Layer, compose, stored_layers
from tests.support.stored_images import digest, stored

WHEELS = "COPY /out/files/requirements~a/ / # buildkit"


def test_stored_layers_wheels_are_replaced_in_their_place() -> None:
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="<é> & ü")
    assert stored_layers(before) is None
    before = stored({"base": 1, "COPY x": 2, WHEELS: 3, "ENV A": 0, "COPY y": 4}, label="é & ü")
    assert stored_layers(before) == (
        Layer(digest(1), 1),
        Layer(digest(2), 2),
        Layer(digest(3), 3, "files/requirements~a"),
        Layer(digest(4), 4),
    )

    more = [Layer(digest(7), 7, "files/requirements~a"), Layer(digest(8), 8, "byte-code/requirements~a")]
    after = compose(before, [Layer(digest(1), 1), Layer(digest(2), 2), *more, Layer(digest(5), 5)])

    expected = stored(
        {
            **{"base": 1, "COPY x": 2, WHEELS: 7, "COPY /out/byte-code/requirements~a/ / # buildkit": 8},
            **{"ENV A": 0, "COPY y": 5},
        },
        label="é & ü",
    )
    assert (after.config, after.manifest) == (expected.config, expected.manifest)


def test_documents_in_another_form_are_left_to_buildkit() -> None:
    assert stored_layers(stored({"base": 1, WHEELS: 2}, indent=None)) is None
    files = stored({"base": 1, WHEELS: 2})
    compressed = json.loads(files.manifest)
    compressed["layers"][1]["digest"] = digest(9)
    other = StoredFiles(json.dumps(compressed, indent=2).encode(), files.config, files.data_root)
    assert stored_layers(other) is None
