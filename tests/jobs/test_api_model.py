"""The model of the API: the same as botocore's own, read without most of botocore."""

from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session  # type: ignore[import-untyped]

from bakehouse.jobs import api_model

LIMITS = ("min", "max", "pattern")


def test_it_has_what_botocore_has() -> None:
    left: list[tuple[str, Any, Any]] = [("", api_model.request_shape(), _request())]
    seen: set[str] = set()
    while left:
        path, ours, theirs = left.pop()
        same = [ours.name, ours.type_name, ours.enum]
        assert same == [theirs.name, theirs.type_name, getattr(theirs, "enum", [])], path
        assert {key: ours.metadata.get(key) for key in LIMITS} == {
            key: theirs.metadata.get(key) for key in LIMITS
        }
        if ours.name in seen:
            continue
        seen.add(ours.name)
        if ours.type_name == "structure":
            assert [*ours.members] == [*theirs.members]
            assert ours.required_members == theirs.required_members
            left += [(f"{path}.{name}", ours.members[name], theirs.members[name]) for name in ours.members]
        elif ours.type_name == "list":
            left.append((path, ours.member, theirs.member))
        elif ours.type_name == "map":
            left += [(path, ours.key, theirs.key), (path, ours.value, theirs.value)]
    assert len(seen) > 100


def _request() -> Any:
    return get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape


def test_the_model_of_another_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "sagemaker/2099-01-01"
    directory.mkdir(parents=True)
    (directory / "service-2.json").write_text(
        '{"operations": {"CreateTrainingJob": {"input": {"shape": "R"}}},'
        ' "shapes": {"R": {"type": "structure", "members": {"A": {"shape": "T"}}}, "T": {"type": "string"}}}'
    )
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    api_model.request_shape.cache_clear()
    try:
        assert [*api_model.request_shape().members] == ["A"]
    finally:
        monkeypatch.undo()
        api_model.request_shape.cache_clear()
