"""Records <-> JSON objects, exactly: ``decode(encode(record)) == record``.

Fields at their default are left out, so a row stays short. Numbers keep all their bits (JSON numbers of Python floats
round-trip); what JSON cannot say (nan, inf in a logprob) is written as the strings "nan", "inf", "-inf". Free-form fields
(``answer``, ``private``, ``metadata``, ``evidence``, ``artefacts``) hold JSON values: a tuple put there comes back as a list.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from posttrain import types as records
from posttrain.errors import UsageError, nearest

_KINDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        records.Task,
        records.Response,
        records.Message,
        records.ToolCall,
        records.ToolSpec,
        records.Limits,
        records.Sampling,
        records.Key,
        records.Turn,
        records.Verdict,
        records.Trajectory,
        records.Group,
        records.Observation,
    )
}

_SCHEMAS: dict[type, dict[str, tuple[Any, Any]]] = {}


def encode(record: Any) -> dict[str, Any]:
    """A JSON object of one record, its kind under ``"record"``.

    ``encode(Message(role="user", content="2+2?"))`` -> ``{"record": "Message", "role": "user", "content": "2+2?"}``.
    Raises ``TypeError`` for what is no record or holds a value that JSON has no word for.
    """
    name = type(record).__name__
    if _KINDS.get(name) is not type(record):
        raise TypeError(f"{name} is no record of posttrain.types; records are {', '.join(_KINDS)}")
    return {"record": name, **_fields_out(record)}


def decode(data: Mapping[str, Any]) -> Any:
    """The record that ``encode`` wrote. Raises ``UsageError`` for an unknown kind, field or newer schema."""
    kind = data.get("record")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UsageError(f"a stored row says record = {kind!r}, which is no record of this version.{nearest(str(kind), _KINDS)}")
    version = data.get("schema_version", records.SCHEMA_VERSION)
    if version > records.SCHEMA_VERSION:
        raise UsageError(
            f"a stored {kind} has schema version {version}, newer than {records.SCHEMA_VERSION}; update posttrain to read it"
        )
    return _fields_in(_KINDS[kind], {k: v for k, v in data.items() if k != "record"})


def _schema(cls: type) -> dict[str, tuple[Any, Any]]:
    """Field name -> (type, default); the default is MISSING where the field is required."""
    if cls in _SCHEMAS:
        return _SCHEMAS[cls]
    hints = typing.get_type_hints(cls)
    out: dict[str, tuple[Any, Any]] = {}
    for f in dataclasses.fields(cls):
        default = f.default
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        out[f.name] = (hints[f.name], default)
    return _SCHEMAS.setdefault(cls, out)


def _fields_out(record: Any) -> dict[str, Any]:
    out = {}
    for name, (_, default) in _schema(type(record)).items():
        value = getattr(record, name)
        if name != "schema_version" and default is not dataclasses.MISSING and type(value) is type(default) and value == default:
            continue
        out[name] = _value_out(value, name)
    return out


def _value_out(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_value_out(v, where) for v in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"field {where!r} has the key {key!r}; JSON objects have text keys, so write {str(key)!r}")
        return {k: _value_out(v, where) for k, v in value.items()}
    if dataclasses.is_dataclass(value):
        return _fields_out(value)
    raise TypeError(
        f"field {where!r} holds a {type(value).__name__}, which JSON cannot say; store numbers, texts, lists or objects"
    )


def _fields_in(cls: type, data: Mapping[str, Any]) -> Any:
    schema = _schema(cls)
    for name in data:
        if name not in schema:
            raise UsageError(f"a stored {cls.__name__} has the unknown field {name!r}.{nearest(name, schema)}")
    return cls(**{name: _value_in(schema[name][0], value) for name, value in data.items()})


def _value_in(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _value_in(next(a for a in typing.get_args(hint) if a is not type(None)), value)
    if origin is tuple:
        args = typing.get_args(hint)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(map(float, value)) if args[0] is float else tuple(_value_in(args[0], v) for v in value)
        return tuple(_value_in(a, v) for a, v in zip(args, value, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: _value_in(typing.get_args(hint)[1], v) for k, v in value.items()}
    if hint is float:
        return float(value) if isinstance(value, str) else value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fields_in(hint, value)
    return value
