"""Training examples, from the channel of a job."""

import json
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

SAMPLES = [{"prompt": f"{a} plus {b} is", "completion": f" {a + b}"} for a in range(8) for b in range(8)]


def load(directory: Path, tokenizer: PreTrainedTokenizerBase, length: int) -> Dataset:
    """Return the tokenized rows of all JSON lines in a directory; of built-in samples without one."""
    lines = [line for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines] or SAMPLES

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        texts = [
            prompt + completion
            for prompt, completion in zip(batch["prompt"], batch["completion"], strict=True)
        ]
        return tokenizer(texts, truncation=True, max_length=length)

    return Dataset.from_list(rows).map(encode, batched=True, remove_columns=["prompt", "completion"])
