"""Fine-tune an adapter of a tiny random language model on all ranks, and load what was saved.

SFTTrainer of trl trains a LoRA adapter of peft with torch.distributed over Gloo, without the Hub.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1", "TOKENIZERS_PARALLELISM": "false"}

from job_record import Rank, recorded  # type: ignore[import-not-found]

WORDS = ["[PAD]", "[UNK]", "[EOS]", *"0123456789+="]
STEPS = 20


def tiny() -> tuple[Any, Any]:
    """Return a model with the same random weights on every rank, and its tokenizer."""
    import torch  # type: ignore[import-not-found]
    from tokenizers import Tokenizer, models, pre_tokenizers  # type: ignore[import-not-found]
    from transformers import (  # type: ignore[import-not-found]
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    marks = {"pad_token": "[PAD]", "eos_token": "[EOS]", "unk_token": "[UNK]"}
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config), PreTrainedTokenizerFast(tokenizer_object=words, **marks)


def fine_tune(rank: Rank, directory: str) -> None:
    """Train an adapter; raise if the loss does not fall, ranks differ, or the saved one is another."""
    import torch
    import torch.distributed as dist  # type: ignore[import-not-found]
    from datasets import Dataset  # type: ignore[import-not-found]
    from peft import LoraConfig, PeftModel  # type: ignore[import-not-found]
    from trl import SFTConfig, SFTTrainer  # type: ignore[import-not-found]

    model, tokenizer = tiny()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            output_dir=scratch,
            max_steps=STEPS,
            learning_rate=0.05,
            use_cpu=True,
            bf16=False,
            ddp_backend="gloo",
            save_strategy="no",
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            max_length=16,
        )
        trainer = SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list([{"text": f"{n}+{n}={n + n}"} for n in range(10)] * 32),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"
            ),
        )
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert sum(losses[-3:]) < sum(losses[:3]), f"the loss did not fall: {losses}"
    weights = torch.cat([value.flatten() for value in trainer.model.parameters() if value.requires_grad])
    others = [torch.zeros_like(weights) for _ in range(rank.size)]
    dist.all_gather(others, weights.detach())
    assert all(torch.equal(other, weights) for other in others), "the ranks have different adapters"
    if rank.rank == 0:
        trainer.model.save_pretrained(directory)
        row = tokenizer("1+1=", return_tensors="pt").input_ids
        expected = trainer.model.eval()(row).logits
        loaded = PeftModel.from_pretrained(tiny()[0], directory).eval()(row).logits
        assert torch.allclose(loaded, expected, atol=1e-5), "the saved adapter gives other results"
        print(f"{rank.size} ranks: loss {losses[0]:.2f} to {losses[-1]:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    with recorded(os.environ["RANK"], os.environ["WORLD_SIZE"]) as rank:
        rank.arrived()
        fine_tune(rank, os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))


if __name__ == "__main__":
    main()
