"""A model's name to a module and a renderer, and one clear message for everything that is no model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from posttrain.errors import HostError, UsageError
from posttrain.models.load import load, load_renderer, resolve
from posttrain.models.logprobs import backbone, head, head_options, score_positions
from posttrain.models.tiny import make_tiny


@pytest.fixture
def model_dir(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    """Changes keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(path: Path, *words: str) -> None:
    """Loading raises one error that names the place and says these words."""
    with pytest.raises(UsageError) as caught:
        load(path, dtype=torch.float32)
    for word in (str(path), *words):
        assert word in str(caught.value), str(caught.value)


def test_a_directory_loads_in_the_dtype_asked_for(tiny_model: Path) -> None:
    for dtype, want in ((torch.float32, torch.float32), ("bfloat16", torch.bfloat16)):
        model = load(tiny_model, dtype=dtype)
        assert {p.dtype for p in model.parameters()} == {want} and not model.training
    assert resolve(tiny_model) == tiny_model and resolve(str(tiny_model)) == tiny_model


@pytest.mark.parametrize("keep", [0, 7, 200, -1000])
def test_truncated_weights(model_dir: Path, keep: int) -> None:
    file = model_dir / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(model_dir, "model.safetensors", "damaged", "again")


def test_no_weights(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    refused(model_dir, "no weights")


def test_a_missing_shard(model_dir: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(model_dir, "model-00001-of-00002.safetensors", "missing")


@pytest.mark.parametrize("how", ["absent", "other shape"])
def test_weights_that_would_stay_random(model_dir: Path, how: str) -> None:
    file, name = model_dir / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    weights = load_file(file)
    gone = weights.pop(name)
    if how == "other shape":
        weights[name] = gone[:10].clone()
    save_file(weights, file, metadata={"format": "pt"})
    refused(model_dir, "up_proj")


def test_weights_that_are_not_numbers(model_dir: Path) -> None:
    weights = load_file(model_dir / "model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, model_dir / "model.safetensors", metadata={"format": "pt"})
    refused(model_dir, "not finite")


def test_a_configuration_that_is_none(model_dir: Path) -> None:
    (model_dir / "config.json").write_text("{")
    refused(model_dir, "config.json")


def test_an_unknown_architecture(model_dir: Path) -> None:
    edit(model_dir / "config.json", model_type="no_such_model")
    refused(model_dir, "no_such_model")


def test_logits_that_are_no_linear_map_of_hidden_states(model_dir: Path) -> None:
    edit(model_dir / "config.json", final_logit_softcapping=1.0)  # says so, and does not do it
    with pytest.raises(UsageError, match="between hidden states and logits"):
        load(model_dir, dtype=torch.float32)


SMALL = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("cohere", {"logit_scale": 0.25}),
        ("granite", {"logits_scaling": 8.0}),
        ("gemma2", {"head_dim": 8, "final_logit_softcapping": 3.0}),
        ("gpt_neox", {}),
        ("phi", {}),  # its head has a bias
        ("qwen3", {"head_dim": 8}),
        ("olmo2", {}),
    ],
)
def test_architectures_of_other_shapes_are_scored_right(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SMALL, **more))
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.2 * torch.randn_like(p))
    made.save_pretrained(tmp_path / kind)
    model = load(tmp_path / kind, dtype=torch.float32)
    ids = torch.tensor([[5, 9, 33, 71, 2]])
    with torch.no_grad():
        hidden = backbone(model)(input_ids=ids).last_hidden_state[0, :-1]
        got, _ = score_positions(hidden, head(model), ids[0, 1:], **head_options(model))
        want = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(got, want)


def test_an_encoder_is_no_policy(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    refused(tmp_path, "decoder")


def test_devices(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="no device 'warp'"):
        load(tiny_model, dtype=torch.float32, device="warp")
    if not torch.cuda.is_available():
        with pytest.raises(HostError, match="needs an NVIDIA GPU"):
            load(tiny_model, dtype=torch.float32, device="cuda")


# -- names that are no model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smollm2-135m", "Did you mean 'smollm2-135m-instruct'"),
        ("no-such-org/no-such-model", "not in the hub's cache"),
        ("./nothing", "no model at"),
        ("~/nothing-at-all", "no model at"),
        ("/nothing/at/all", "no model at"),
        ("two words", "no model at"),
        ("", "name a built-in model"),
        (" ", "name a built-in model"),
    ],
)
def test_names_of_nothing(name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        resolve(name)
    assert says in str(caught.value)


def test_files_and_directories_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match="neither a directory nor a"):
        resolve(tmp_path / "a.txt")
    with pytest.raises(UsageError, match=r"no config\.json"):
        resolve(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"2 \.gguf files"):
        resolve(tmp_path)


def test_a_hub_model_from_the_hubs_own_cache(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--some-org--some-model"
    shutil.copytree(tiny_model, home / "snapshots" / ("a" * 40))
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("a" * 40)
    assert (resolve("some-org/some-model") / "config.json").is_file()
    assert load("some-org/some-model", dtype=torch.float32) is not None


# -- renderers -------------------------------------------------------------------------------------------------------


def test_ends_come_from_every_configuration(model_dir: Path) -> None:
    edit(model_dir / "generation_config.json", eos_token_id=[0, 2])
    edit(model_dir / "config.json", eos_token_id=5)
    assert load_renderer(model_dir).stop_ids == (0, 2, 5)


def test_a_tokenizer_larger_than_the_model(model_dir: Path) -> None:
    edit(model_dir / "config.json", vocab_size=100)
    with pytest.raises(UsageError, match="512 tokens, the model 100"):
        load_renderer(model_dir)


def test_a_damaged_tokenizer(model_dir: Path) -> None:
    (model_dir / "tokenizer.json").write_text('{"model": {')
    with pytest.raises(UsageError, match="tokenizer in"):
        load_renderer(model_dir)


def test_another_kinds_model_serves_as_well(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m", kind="gemma3")
    assert load_renderer(path).decode(load_renderer(path).encode("a b")) == "a b"


@pytest.mark.slow
def test_the_real_model_says_something_sensible(real_model: Path) -> None:
    from posttrain.types import Message

    model, renderer = load(real_model, dtype=torch.bfloat16), load_renderer(real_model)
    row = renderer.row(
        [
            Message(role="user", content="What is the capital of France?"),
            Message(role="assistant", content="The capital of France is Paris."),
        ]
    )
    ids = torch.tensor([[i for t in row for i in t.token_ids]])
    mask = torch.tensor([m for t in row for m in t.mask])[1:]
    with torch.no_grad():
        hidden = backbone(model)(input_ids=ids).last_hidden_state[0, :-1]
        logprobs, _ = score_positions(hidden, head(model), ids[0, 1:], **head_options(model))
    assert float(logprobs[mask].mean()) > -1.0
    assert ids[0, -1] in renderer.stop_ids and renderer.stop_ids == (2,)
    for text in ("naïve café 1234", "  two  spaces\n\n", "日本"):
        assert renderer.decode(renderer.encode(text)) == text
