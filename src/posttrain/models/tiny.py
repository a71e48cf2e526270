"""A model of a few hundred thousand weights and its tokenizer, made on the spot: for tests and first looks, never for answers.

The directory is an ordinary Hugging Face one (config, safetensors, tokenizer, chat template), so that everything that loads
a real model loads this one by the same path.
"""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from posttrain.errors import UsageError, nearest
from posttrain.models.gguf import quiet

Kind = Literal["llama", "qwen2", "gemma3", "mixtral"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

MARK = ".tiny"  # says that a directory was made here and may be replaced

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Enough text for a few hundred merges; what it says does not matter.
_LINES = (
    "What is 12 + 34? Work step by step. The answer is 46.",
    "Sort these numbers from small to large: 9, 4, 7, 1, 3.",
    'Return a JSON object with the keys "name", "price" and "count".',
    "user assistant system tool question answer reason result value total number list table row column",
    "Select the name of every person who is older than 30 and lives in the town of the shop.",
    "The train leaves at 08:45 on 2024-03-17 and arrives 3 hours and 20 minutes later.",
    "If x + 5 = 12 then x = 7, because 12 - 5 = 7. Check: 7 + 5 = 12.",
    "Write a short sentence with exactly five words and no comma. Convert 3.5 kilometres to metres: 3500 m.",
    "SELECT city, COUNT(*) FROM orders WHERE amount > 100 GROUP BY city ORDER BY city; -- two rows",
    "Solve the equation and give only the final number, without units, after the words Final answer:",
    "Read the document below and quote the passage that supports your claim, with its first and last line.",
    '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call> <tool_response>3</tool_response>',
)


def make_tiny(
    path: str | Path, *, seed: int = 0, kind: Kind = "llama", hidden: int = 64, layers: int = 2, vocab: int = 512
) -> Path:
    """Writes the model into ``path`` (replaced if it holds such a one already) and returns it; a pure function of its arguments.

    ``kind``: "llama" (grouped-query attention, tied embeddings), "qwen2" (biases, untied), "gemma3" (sliding window, query and
    key norms, capped logits), "mixtral" (four experts, two chosen). ``vocab`` counts the special tokens and is at least 300.
    Raises UsageError for an unknown kind, sizes that cannot be, or a directory that holds anything else.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"There is no tiny model of kind {kind!r}.{nearest(kind, get_args(Kind))}")
    if hidden % 8 or hidden < 16 or layers < 1 or vocab < 300:
        raise UsageError(
            f"A tiny model cannot have hidden={hidden}, layers={layers}, vocab={vocab}; "
            "give a hidden size that is a multiple of 8 and at least 16, one layer or more, and 300 tokens or more."
        )
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; a tiny model is written into a directory.")
    if path.exists() and any(path.iterdir()) and not (path / MARK).is_file():
        raise UsageError(f"{path} holds something that is not a tiny model; name a new or empty directory.")
    tokenizer = make_tokenizer(vocab)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    (path / MARK).touch()
    with quiet():
        tokenizer.save_pretrained(path)
        _make_model(kind, seed, hidden, layers, vocab, tokenizer).save_pretrained(path)
    return path


def make_tokenizer(vocab: int = 512) -> Any:
    """A byte-level BPE tokenizer (any text round-trips) with the ChatML template; eos ``<|im_end|>``, pad ``<|endoftext|>``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = Counter(tuple(word) for line in _LINES for word, _ in splitter.pre_tokenize_str(line))
    merges = _learn_merges(words, vocab - len(SPECIAL_TOKENS) - 256)
    symbols = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    bpe = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=merges))
    bpe.pre_tokenizer = splitter
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def _learn_merges(words: Counter[tuple[str, ...]], number: int) -> list[tuple[str, str]]:
    """The most frequent pairs, merged one after the other; ties go to the smaller pair.

    The library's own trainer breaks ties by hash order, which differs from one process to the next.
    """
    merges: list[tuple[str, str]] = []
    while len(merges) < number:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        if not pairs:
            raise UsageError(f"The tiny tokenizer's text holds {len(merges)} merges, not {number}; ask for a smaller vocabulary.")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, count in words.items():
            merged[_merge(word, best)] += count
        words = merged
    return merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """``_merge(("a", "b", "c"), ("a", "b"))`` -> ("ab", "c")."""
    out: list[str] = []
    for symbol in word:
        # A pair that was just merged cannot merge again: its symbol is longer than either part.
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


def _make_model(kind: Kind, seed: int, hidden: int, layers: int, vocab: int, tokenizer: Any) -> Any:
    """The module, its weights drawn parameter by parameter from ``seed``: spread enough that logits differ visibly."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(_config(kind, hidden, layers, vocab, tokenizer), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.add_(0.1 * noise)
            elif "embed" in name or "lm_head" in name:
                parameter.copy_((0.15 if kind == "gemma3" else 0.35) * noise)
            else:
                parameter.copy_(noise * hidden**-0.5)
    return model.eval()


def _config(kind: Kind, hidden: int, layers: int, vocab: int, tokenizer: Any) -> Any:
    """The architecture's configuration at toy size."""
    from transformers import AutoConfig

    shape: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": kind in ("llama", "gemma3"),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if kind == "gemma3":
        types = ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(layers)]
        shape |= {
            "sliding_window": 16,
            "layer_types": types,
            "query_pre_attn_scalar": hidden // 4,
            "final_logit_softcapping": 20.0,
        }
        return AutoConfig.for_model("gemma3_text", **shape)
    if kind == "mixtral":
        shape |= {"num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.0}
    return AutoConfig.for_model(kind, **shape)
