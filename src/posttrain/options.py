"""A job's options: a TOML file or a shipped recipe's, what it extends, overrides on top; then parsed into dataclasses.

``extends = "base.toml"`` merges tables and replaces lists; a table that names another plug-in (``loss.name``) replaces the one
it meets. A path in a file is relative to that file, one in an override to the working directory; ``load`` returns them absolute.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args

from posttrain.errors import UsageError, nearest
from posttrain.plugins import BY_PATH, HOME, field_types, fill, find, name_of, option

RECIPES: Final = HOME / "recipes"
PATH_OPTIONS: Final = {"data", "reward"}  # text options that are paths wherever they stand
SECRET: Final = re.compile(r"secret|passw|(key|token)s?$", re.IGNORECASE)
NOT_SECRET: Final = re.compile(r"(bos|eos|pad|unk|stop|sep|mask|special)_tokens?$", re.IGNORECASE)
REDACTED: Final = "[redacted]"


class _At(str):
    """Text that remembers the folder which a path in it is relative to."""

    __slots__ = ("base",)
    base: Path


@dataclass(frozen=True, slots=True)
class _Word:
    """An override's value that reads as a number or a truth value; a text option takes the text it was written as."""

    value: bool | int | float
    text: str


def shipped() -> list[str]:
    """Names of the recipe files in the package."""
    return sorted(p.stem for p in RECIPES.glob("*.toml"))


def source_path(source: str | Path) -> Path:
    """The TOML file behind a shipped name, a path or a run directory. Raises UsageError with the nearest name."""
    path = Path(source).expanduser()
    if path.is_dir() and (path / "options.toml").is_file():
        return path / "options.toml"
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise UsageError(
                f"there is no file {path.absolute()}; give a recipe's file, or one of the shipped: {', '.join(shipped())}"
            )
        return path.absolute()
    if str(source) in shipped():
        return RECIPES / f"{source}.toml"
    raise UsageError(f"there is no recipe {str(source)!r}, and no such file.{nearest(str(source), shipped())}")


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), **kw: Any) -> dict[str, Any]:
    """The options of a job as plain TOML values, ``recipe`` first.

    ``source`` is a shipped recipe's name, a ``.toml`` file, a ``.py`` file with a recipe of your own, a run directory, or the
    options themselves. ``overrides`` are ``"train.lr=1e-5"``; keywords are the same from Python (``train__lr=1e-5``, or
    ``train={"lr": 1e-5}``). Raises UsageError.
    """
    cwd = Path.cwd()
    if isinstance(source, Mapping):
        table = _mark(dict(source), cwd)
    elif BY_PATH.fullmatch(str(source)):
        table = {"recipe": _mark(str(source), cwd)}
    else:
        table = _read(source_path(source), ())
    changes = _assign(overrides)
    for name, value in kw.items():
        _put(changes, name.split("__"), value, name)
    table = _merge(table, _mark(changes, cwd))
    recipe = table.get("recipe")
    if not isinstance(recipe, str):
        raise UsageError(f'{_where(source)} does not say which recipe it is for; add a first line such as recipe = "rlvr"')
    recipe = _absolute(recipe) if BY_PATH.fullmatch(recipe) else str(recipe)
    settled = _settle(find("recipes", recipe), {k: v for k, v in table.items() if k != "recipe"})
    return {"recipe": recipe, **_plain(settled)}


def assignments(overrides: Sequence[str]) -> dict[str, Any]:
    """``["train.lr=1e-5", "loss=clipped"]`` -> ``{"train": {"lr": 1e-5}, "loss": "clipped"}``. Raises UsageError."""
    plain: dict[str, Any] = _plain(_assign(overrides))
    return plain


def _assign(overrides: Sequence[str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for override in overrides:
        key, value = _override(override)
        _put(table, key.split("."), value, override)
    return table


def parse(cls: type[Any], table: Mapping[str, Any], where: str) -> Any:
    """An instance of the dataclass ``cls``: nested dataclasses, and plug-ins where ``metadata={"kind": ...}`` says so.

    The key ``recipe`` is left out unless ``cls`` has that option. Raises UsageError with ``where``, the dotted place and the
    nearest right name.
    """
    keep = {k: v for k, v in table.items() if k != "recipe" or k in field_types(cls)}  # type: ignore[arg-type]
    return fill(cls, keep, where=where)


def recipe(options: Mapping[str, Any], where: str) -> Any:
    """The recipe that ``load``'s result describes, ready to run."""
    return parse(find("recipes", str(options["recipe"])), options, where)


def resolved(recipe: Any, name: str) -> dict[str, Any]:
    """All options of a recipe, defaults included, as a table that ``load`` and ``recipe`` turn into an equal one.

    ``name`` is the recipe's. A run saves this, so that it goes on as it began when a default has changed.
    """
    return {"recipe": name, **_table(recipe)}


def redact(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same with secrets blanked: text under a key like ``api_key``, ``hf_token``, ``password``; passwords in URLs."""

    def clean(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: clean(str(k), v) for k, v in value.items()}
        if isinstance(value, tuple | list):
            return [clean(key, v) for v in value]
        if isinstance(value, str) and value and SECRET.search(key) and not NOT_SECRET.search(key):
            return REDACTED
        return re.sub(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)", REDACTED, value) if isinstance(value, str) else value

    return {str(k): clean(str(k), v) for k, v in options.items()}


def to_toml(options: Mapping[str, Any]) -> str:
    """TOML text that reads back as the same; None is left out. Raises UsageError for what TOML cannot hold."""
    lines: list[str] = []
    _emit(options, (), lines)
    return "\n".join(lines).strip("\n") + "\n"


def _table(instance: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key in field_types(type(instance)):  # type: ignore[arg-type]
        value, (kind, default) = getattr(instance, key), option(type(instance), key)
        if value is None and default is not None:
            table[key] = "none"
        elif value is not None and not (isinstance(value, Path) and value == default):  # a default path means its own place
            table[key] = _saved(value, kind)
    return table


def _saved(value: Any, kind: str | None) -> Any:
    if isinstance(value, tuple | list):
        return [_saved(v, kind) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(_saved(v, kind) for v in value)
    if is_dataclass(value) and not isinstance(value, type):
        return {**({"name": name_of(kind, type(value))} if kind else {}), **_table(value)}
    return str(value) if isinstance(value, Path) else value


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A file's table, what it extends merged under it."""
    if path in above:
        raise UsageError(f"{path} extends itself, by way of {' -> '.join(p.name for p in above)}; break the circle")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} is not TOML: {exc}") from exc
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    base = table.pop("extends", None)
    marked: dict[str, Any] = _mark(table, path.parent)
    if base is None:
        return marked
    if not isinstance(base, str):
        raise UsageError(f"{path}: extends is {base!r}, but must name one file or shipped recipe")
    under = path.parent / Path(base).expanduser() if base.endswith(".toml") else base
    merged: dict[str, Any] = _merge(_read(source_path(under), (*above, path)), marked)
    return merged


def _override(text: str) -> tuple[str, Any]:
    """``"a.b=1"`` -> ("a.b", 1); what is not a TOML value is text."""
    key, equals, value = text.partition("=")
    key, value = key.strip().lstrip("-"), value.strip()
    if not equals or not key or not all(key.split(".")):
        raise UsageError(f"the override {text!r} is not of the form key=value, such as train.lr=1e-5")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value
    read = parsed["value"] if set(parsed) == {"value"} else value
    if isinstance(read, bool | int | float):
        return key, _Word(read, value)
    return key, read if isinstance(read, str | list | dict) else value


def _put(table: dict[str, Any], keys: list[str], value: Any, source: str) -> None:
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if isinstance(inner, str):  # loss=clipped loss.eps_high=0.3
            inner = table[key] = {"name": inner}
        if not isinstance(inner, dict):
            raise UsageError(f"{source!r} sets an option inside {key!r}, which another override sets to {inner!r}")
        table = inner
    old = table.get(keys[-1])
    table[keys[-1]] = _merge(old, dict(value)) if isinstance(old, dict) and isinstance(value, Mapping) else value


def _merge(base: Any, top: Any) -> Any:
    """``top`` over ``base``: tables merge, all else replaces; ``{"0": ...}`` changes the first of a list."""
    if isinstance(base, list) and isinstance(top, dict) and top and all(k.isdigit() for k in top):
        if max(map(int, top)) >= len(base):
            raise UsageError(f"the override of item {max(map(int, top))} has no such item; the list has {len(base)}, from 0")
        return [_merge(v, top[str(i)]) if str(i) in top else v for i, v in enumerate(base)]
    if isinstance(base, str) and isinstance(top, dict) and "name" not in top and top:
        base = {"name": base}  # loss = "clipped" in the file, loss.eps_high=0.3 over it
    if not isinstance(base, dict) or not isinstance(top, dict):
        return top
    if "name" in top and base.get("name", top["name"]) != top["name"]:
        return top
    return base | {k: _merge(base[k], v) if k in base else v for k, v in top.items()}


def _mark(value: Any, base: Path) -> Any:
    """The same value in plain TOML types, its texts knowing the folder that a path in them is relative to."""
    if isinstance(value, Mapping):
        return {str(k): _mark(v, base) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mark(v, base) for v in value]
    if isinstance(value, str | Path):
        marked = _At(value)
        marked.base = base
        return marked
    if value is None or isinstance(value, bool | int | float | _Word):
        return value
    raise UsageError(
        f"an option is {value!r} ({type(value).__name__}), which cannot be saved with a run; give a name, a number or a table"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, _Word):
        return value.value
    return str(value) if isinstance(value, str) else value


def _absolute(text: str) -> str:
    path = Path(text).expanduser()
    return os.path.normpath(getattr(text, "base", Path.cwd()) / path) if text and "://" not in text else str(text)


def _settle(cls: type[Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of ``cls`` with its paths made absolute; what does not fit is left for ``parse`` to refuse."""
    types = field_types(cls)  # type: ignore[arg-type]
    return {k: _settle_value(k, types[k], option(cls, k), v) if k in types else v for k, v in table.items()}


def _settle_value(key: str, kind: Any, plugin: tuple[str | None, Any], value: Any) -> Any:
    if isinstance(value, list):
        inner = next(iter(get_args(kind)), Any)
        return [_settle_value(key, inner, plugin, v) for v in value]
    if plugin[0] is not None and value != "none" and not isinstance(value, _Word):
        return _settle_plugin(kind, plugin[0], plugin[1], value)
    options = [kind, *get_args(kind)]
    if isinstance(value, _Word):
        return value.text if str in options and not {bool, int, float} & set(options) else value.value
    nested = next((o for o in options if is_dataclass(o) and isinstance(o, type)), None)
    if isinstance(value, dict) and nested is not None:
        return _settle(nested, value)
    if isinstance(value, str) and (
        Path in options or (key in PATH_OPTIONS and str in options) or (key == "model" and _local(value))
    ):
        return value if value == "none" else _absolute(value)
    return value


def _settle_plugin(kind: Any, plugin: str, default: Any, value: Any) -> Any:
    name = value.get("name") if isinstance(value, dict) else value
    if isinstance(name, str) and BY_PATH.fullmatch(name):
        name = _absolute(name)
        value = {**value, "name": name} if isinstance(value, dict) else name
    if not isinstance(value, dict):
        return value
    cls: Any
    if isinstance(name, str):
        try:
            cls = find(plugin, name)
        except UsageError:
            return value  # parse says so, with the place
    else:
        cls = type(default) if default is not None else next((o for o in (kind, *get_args(kind)) if is_dataclass(o)), None)
    if not (isinstance(cls, type) and is_dataclass(cls)):
        return value
    return {k: v for k, v in value.items() if k == "name"} | _settle(cls, {k: v for k, v in value.items() if k != "name"})


def _local(model: str) -> bool:
    """Whether a model's name is a path: it looks like one, or lies beside the file that names it."""
    looks = model.startswith((".", "~", "/")) or model.endswith(".gguf")
    return looks or (isinstance(model, _At) and (model.base / model).exists())


def _where(source: Any) -> str:
    return "the given table" if isinstance(source, Mapping) else str(source)


def _emit(table: Mapping[str, Any], at: tuple[str, ...], lines: list[str]) -> None:
    tables = {k: v for k, v in table.items() if isinstance(v, Mapping)}
    arrays = {k: v for k, v in table.items() if isinstance(v, list | tuple) and v and all(isinstance(x, Mapping) for x in v)}
    for key, value in table.items():
        if key not in tables and key not in arrays and value is not None:
            lines.append(f"{_key(key)} = {_value(value, '.'.join((*at, key)))}")
    for key, value in tables.items():
        lines += ["", f"[{'.'.join(map(_key, (*at, key)))}]"]
        _emit(value, (*at, key), lines)
    for key, values in arrays.items():
        for value in values:
            lines += ["", f"[[{'.'.join(map(_key, (*at, key)))}]]"]
            _emit(value, (*at, key), lines)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key, key)


def _value(value: Any, at: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(float(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v, at) for v in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {_value(v, at)}" for k, v in value.items() if v is not None) + "}"
    raise UsageError(f"{at} is {value!r} ({type(value).__name__}), which TOML cannot hold")
