"""Sentences of botocore's documentation of CreateTrainingJob that may state a condition."""

import hashlib
import os
import re
from collections.abc import Iterator

from botocore.loaders import Loader  # type: ignore[import-untyped]

_WORDS = re.compile(r"\b(only|must|exclusive|exclusively|available values|can't|cannot)\b", re.IGNORECASE)
_TAG, _SPACE, _END = re.compile(r"<[^>]+>"), re.compile(r"\s+"), re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def sentences() -> Iterator[tuple[str, str, str]]:
    """Yield the field, the digest and the text of each sentence."""
    model = Loader().load_service_model("sagemaker", "service-2")
    operation, shapes = model["operations"]["CreateTrainingJob"], model["shapes"]
    texts = {"CreateTrainingJob": operation["documentation"]}
    names, seen = [operation["input"]["shape"]], set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        shape = shapes[name]
        texts[name] = shape.get("documentation", "")
        members = {f"{name}.{key}": member for key, member in shape.get("members", {}).items()}
        members |= {f"{name}.{key}": shape[key] for key in ("member", "key", "value") if key in shape}
        texts |= {path: member.get("documentation", "") for path, member in members.items()}
        names += [member["shape"] for member in members.values()]
    for path, text in sorted(texts.items()):
        for sentence in _END.split(_SPACE.sub(" ", _TAG.sub(" ", text)).strip()):
            if _WORDS.search(sentence):
                yield path, hashlib.sha256(sentence.encode()).hexdigest()[:8], sentence


if __name__ == "__main__":
    print(*(os.linesep.join(f"{digest} {path} | {text}" for path, digest, text in sentences()),), sep="\n")
