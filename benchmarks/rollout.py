"""Native engine against transformers ``generate``: 64 prompts of 20-200 tokens, answers of 8-128, bf16, two threads.

Prompts are random tokens, so no two share a prefix and the engine's caches help nothing. ``generate`` gets batches sorted by
prompt length, so that it pads least, and the best of several batch sizes and attentions. Nobody knows beforehand how long an
answer will be, so it cannot sort by that (``--oracle`` lets it, for comparison). Tokens that a request did not ask for do
not count, on either side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME, BAR = "rollout", 2.5
SETTINGS = (("sdpa", 16), ("sdpa", 32), ("sdpa", 64), ("eager", 32))  # the peer's: attention, batch size


@dataclass(frozen=True)
class Work:
    """One request: the prompt and how many tokens to answer."""

    prompt: tuple[int, ...]
    num_answer: int


@dataclass(frozen=True)
class Measured:
    """What one side needed."""

    tokens: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Useful tokens a second."""
        return self.tokens / self.seconds


def make_work(num: int, vocabulary: int, seed: int = 0) -> list[Work]:
    """The same requests on every machine."""
    rng = random.Random(seed)
    return [
        Work(tuple(rng.randrange(100, vocabulary) for _ in range(rng.randint(20, 200))), rng.randint(8, 128)) for _ in range(num)
    ]


def run_native(model: Any, work: list[Work], times: int = 1) -> list[Measured]:
    """All requests at once through one engine, as often as asked for."""
    from posttrain.engines._base import Request
    from posttrain.engines.native import Native
    from posttrain.types import Key, Sampling

    def request(i: int, w: Work) -> Request:
        return Request(key=Key(seed=0, task_id=str(i)), token_ids=w.prompt, sampling=Sampling(max_tokens=w.num_answer))

    async def main() -> list[Measured]:
        async with Native(precision="fast").open(model, None) as engine:
            measured = []
            for _ in range(times):
                await engine.update(None, 0, engine.weights_hash)  # as after a training step: nothing derived is left
                cpu, wall = time.process_time(), time.perf_counter()
                turns = await asyncio.gather(*(engine.sample(request(i, w)) for i, w in enumerate(work)))
                tokens = sum(len(t.token_ids) for t in turns)
                measured.append(Measured(tokens, time.perf_counter() - wall, time.process_time() - cpu))
            return measured

    return asyncio.run(main())


def run_generate(model: Any, work: list[Work], batch_size: int, oracle: bool = False) -> Measured:
    """Left-padded batches of prompts of similar length; with ``oracle`` of answers of similar length."""
    import torch

    ordered = sorted(work, key=lambda w: (w.num_answer if oracle else 0, len(w.prompt)))
    tokens = 0
    cpu, wall = time.process_time(), time.perf_counter()
    for at in range(0, len(ordered), batch_size):
        batch = ordered[at : at + batch_size]
        longest, answer = max(len(w.prompt) for w in batch), max(w.num_answer for w in batch)
        ids = torch.tensor([[0] * (longest - len(w.prompt)) + list(w.prompt) for w in batch])
        mask = torch.tensor([[0] * (longest - len(w.prompt)) + [1] * len(w.prompt) for w in batch])
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
                min_new_tokens=answer, max_new_tokens=answer,
            )  # fmt: skip
        assert out.shape[1] == longest + answer
        tokens += sum(w.num_answer for w in batch)
    return Measured(tokens, time.perf_counter() - wall, time.process_time() - cpu)


def directory(name: str) -> Path:
    """Where the model lies; a built-in one is converted once."""
    if Path(name).is_dir():
        return Path(name)
    from posttrain.models.load import resolve

    return resolve(name)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="built-in name, directory or GGUF file")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--oracle", action="store_true", help="generate knows the answers' lengths beforehand")
    parser.add_argument("--only", choices=("native", "generate"), help="measure one side (no ratio)")
    args = parser.parse_args(argv)

    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    path = directory(args.model)

    def load(attention: str) -> Any:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation=attention).eval()

    work = make_work(args.prompts, load("sdpa").config.vocab_size)
    result: dict[str, Any] = {"name": NAME, "bar": BAR, "prompts": len(work), "threads": args.threads}
    if args.only != "generate":
        model = load("sdpa")
        run_native(model, work[:8])  # warm-up
        native = min(run_native(model, work, times=2), key=lambda m: m.seconds)
        result["native"] = {"tokens_per_s": round(native.rate, 1), "cpu_s": round(native.cpu_seconds, 1), "tokens": native.tokens}
    if args.only != "native":
        tried = []
        for attention, batch_size in SETTINGS:
            model = load(attention)
            run_generate(model, [Work(w.prompt[:20], 8) for w in work[:4]], 4)  # warm-up
            tried.append((run_generate(model, work, batch_size, args.oracle), attention, batch_size))
        peer, attention, batch_size = max(tried, key=lambda t: t[0].rate)
        result["generate"] = {
            "tokens_per_s": round(peer.rate, 1), "cpu_s": round(peer.cpu_seconds, 1), "tokens": peer.tokens,
            "attention": attention, "batch_size": batch_size,
            "tried": {f"{a}/{b}": round(m.rate, 1) for m, a, b in tried},
        }  # fmt: skip
    if args.only is None:
        ratio = native.rate / peer.rate
        result |= {"ratio": round(ratio, 2), "holds": ratio >= BAR, "cpu_ratio": round(peer.cpu_seconds / native.cpu_seconds, 2)}
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:10} {value}")
    return result


if __name__ == "__main__":
    main()
