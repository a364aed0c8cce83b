"""The comparison of a Dockerfile's image with that of its recipe, without building them."""

import pytest

from bakehouse.commands.dockerfile_import.compare import differences, require_allowed
from bakehouse.errors import UsageError


@pytest.mark.parametrize(
    ("dockerfile", "variables", "message"),
    [
        ("", {}, "`--compare` needs a Dockerfile"),
        ("Dockerfile", {"GITHUB_EVENT_NAME": "pull_request_target"},
         "a pipeline of a pull request builds no Dockerfile of strangers, and GITHUB_EVENT_NAME is set"),
        ("Dockerfile", {"CI_MERGE_REQUEST_IID": "7"},
         "a pipeline of a pull request builds no Dockerfile of strangers, and CI_MERGE_REQUEST_IID is set"),
    ],
)  # fmt: skip
def test_a_dockerfile_of_anybody_is_not_built(
    dockerfile: str, variables: dict[str, str], message: str
) -> None:
    require_allowed("Dockerfile", {"GITHUB_EVENT_NAME": "push", "BUILDKITE_PULL_REQUEST": "false"})

    with pytest.raises(UsageError) as caught:
        require_allowed(dockerfile, variables)

    assert caught.value.diagnostics[0].message == message


def test_each_kind_of_difference_has_a_line() -> None:
    first = {"path": {"/a": "f 644", "/b": "f 644"}, "package": {"git": "1"}, "variable": {"A": "1"}}
    second = {"path": {"/a": "f 644", "/b": "f 600"}, "package": {"git": "2"}, "variable": {}}

    assert differences(first, second) == [
        "package git: 1, in the recipe 2",
        "variable A: 1, in the recipe none",
        "path /b: f 644, in the recipe f 600",
        "1 paths are the same, 1 differ",
    ]
