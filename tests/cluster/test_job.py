"""Files and names of local jobs."""

from bakehouse.cluster.job import encode_hyperparameters


def test_hyperparameters_of_version_3_are_texts_where_they_are() -> None:
    assert encode_hyperparameters({"lr": 0.1, "name": "adam"}) == {"lr": "0.1", "name": "adam"}
