"""A causal language model with LoRA adapters, and its tokenizer."""

from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

ADAPTER = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def load(directory: Path) -> tuple[PeftModel, PreTrainedTokenizerBase]:
    """Return the model of a directory; a tiny model with random weights without one."""
    if (directory / "config.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(directory)
        return get_peft_model(AutoModelForCausalLM.from_pretrained(directory), ADAPTER), tokenizer
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
    )
    return get_peft_model(LlamaForCausalLM(config), ADAPTER), tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of single characters."""
    characters = " abcdefghijklmnopqrstuvwxyz0123456789"
    vocabulary = {"[PAD]": 0, "[UNK]": 1} | {character: n for n, character in enumerate(characters, 2)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
