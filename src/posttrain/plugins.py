"""Finds plug-ins by name, entry point or path, and builds them from tables of options.

A plug-in is one frozen dataclass; its fields are its options. Its name is its file's (``losses/clipped.py`` -> "clipped"); a
file of task families holds several (``envs/sums/chains.py``, class ``LongSum`` -> "sums/long_sum"). Listing reads source
text only, so it imports nothing heavy.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from posttrain.errors import PosttrainError, UsageError, nearest

# Each kind, with the method that makes a class one of it.
KINDS: Final[dict[str, str]] = {
    "losses": "__call__",
    "advantages": "__call__",
    "pools": "open",
    "engines": "open",
    "sandboxes": "open",
    "verifiers": "judge",
    "envs": "tasks",
    "datasets": "rows",
    "recipes": "run",
}
HOME: Final = Path(__file__).parent
BY_PATH: Final = re.compile(r"(?P<path>.+\.py)(?::(?P<cls>\w+))?", re.DOTALL)
FILE: Final = "posttrain_file_"  # how the names of modules begin that were loaded by path
SEQUENCES: Final = (tuple, list, frozenset, set)


def kinds() -> list[str]:
    """All kinds: ``["losses", "advantages", ...]``."""
    return list(KINDS)


def names(kind: str) -> list[str]:
    """The names of ``kind``, built in or installed, sorted. Raises UsageError for an unknown kind."""
    return sorted({*_built_in(_known(kind)), *_installed(kind)})


def summaries(kind: str) -> dict[str, str]:
    """Name -> the first line of the plug-in's docstring, or where an installed one comes from."""
    found = {name: f"installed: {entry.value}" for name, entry in _installed(_known(kind)).items()}
    for name, (module, cls) in _built_in(kind).items():
        path = HOME.joinpath(*module.split(".")[1:])
        tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
        node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
        found[name] = (ast.get_docstring(node) or "").split("\n", 1)[0]
    return dict(sorted(found.items()))


def name_of(kind: str, cls: type[Any]) -> str:
    """The name under which ``find`` gives ``cls`` back: built in, installed, or its file's path and class."""
    own = f"{cls.__module__}:{cls.__qualname__}"
    known = {f"{module}:{name}": n for n, (module, name) in _built_in(_known(kind)).items()}
    known |= {e.value: n for n, e in _installed(kind).items()}
    return known.get(own) or f"{inspect.getfile(cls)}:{cls.__qualname__}"


def find(kind: str, name: str) -> type[Any]:
    """The class of a plug-in: a built-in name, an installed entry point, or ``path.py`` / ``path.py:ClassName``.

    Raises UsageError with the nearest name, or with the line at which a user's file fails.
    """
    _known(kind)
    by_path = BY_PATH.fullmatch(name)
    if by_path:
        return _choose(kind, load_file(Path(by_path["path"])), by_path["cls"], name)
    if name in _built_in(kind):
        module, cls = _built_in(kind)[name]
        return _checked(kind, name, getattr(importlib.import_module(module), cls))
    if name in _installed(kind):
        return _checked(kind, name, _installed(kind)[name].load())
    raise UsageError(
        f"there is no plug-in {name!r} among the {kind}.{nearest(name, names(kind))}"
        f" A file of your own goes by its path, ending in .py; 'posttrain list {kind}' shows them all."
    )


def build(kind: str, name: str, /, **options: Any) -> Any:
    """``build("losses", "clipped", eps_high=0.3)``: the plug-in with these options. Raises UsageError."""
    return fill(find(kind, name), options, where=f"{kind} {name}")


def from_table(kind: str, table: str | Mapping[str, Any], *, where: str = "") -> Any:
    """``from_table("losses", {"name": "clipped", "eps_high": 0.3})``, or the bare name. Raises UsageError."""
    return _plugin(kind, table, None, where or kind, "")


def load_file(path: Path) -> ModuleType:
    """Runs a Python file of the user's as a module whose last dotted name is the file's stem; once for each state of the file."""
    path = path.expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"there is no file {path}; a plug-in by path needs one that exists")
    stamp = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]
    name = f"{FILE}{stamp}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    sys.path.insert(0, str(path.parent))  # so that it may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except PosttrainError:
        del sys.modules[name]
        raise
    except Exception as exc:
        del sys.modules[name]
        line = next((f.lineno for f in reversed(traceback.extract_tb(exc.__traceback__)) if f.filename == str(path)), None)
        line = exc.lineno if isinstance(exc, SyntaxError) else line
        raise UsageError(f"{path}, line {line}: {type(exc).__name__}: {exc}; mend the file, it must load by itself") from exc
    finally:
        sys.path.remove(str(path.parent))
    return module


def option(cls: type[Any], name: str) -> tuple[str | None, Any]:
    """(the kind of plug-in that a field takes or None, its default or None): ``metadata={"kind": "losses"}`` says the kind."""
    field = next(f for f in fields(cls) if f.name == name)
    return field.metadata.get("kind"), _default(field)


@functools.lru_cache(maxsize=512)
def field_types(cls: type[Any]) -> Mapping[str, Any]:
    """The resolved type of each option of a dataclass; ``Any`` where it names what only a type checker imports."""
    types: dict[str, Any] = {}
    for f in fields(cls):
        if not f.init:
            continue
        owner = next(c for c in cls.__mro__ if f.name in inspect.get_annotations(c))
        types[f.name] = f.type
        if isinstance(f.type, str):
            try:
                types[f.name] = eval(f.type, vars(sys.modules[owner.__module__]), dict(vars(owner)))
            except NameError:
                types[f.name] = Any
    return types


def fill(cls: type[Any], table: Mapping[str, Any], *, where: str, at: str = "", default: Any = None) -> Any:
    """An instance of the dataclass ``cls`` from a table, plug-ins in it included; ``default`` gives what the table leaves out.

    ``where`` names the source and ``at`` the dotted place in it. Raises UsageError: an unknown option with the nearest
    right one, a wrong type, a missing option, or what ``__post_init__`` objects to.
    """
    types = field_types(cls)  # type: ignore[arg-type]
    known = {f.name: f for f in fields(cls)}
    for key in table:
        if key not in types:
            what = _title(cls)
            hint = nearest(str(key), types) if types else ""
            raise UsageError(f"{where}: {_dotted(at, str(key))!r} is not an option of {what}.{hint or ' It has none.'}")
    values = {
        key: _field_value(known[key], types[key], value, getattr(default, key, _default(known[key])), where, _dotted(at, key))
        for key, value in table.items()
    }
    if default is None:
        missing = [n for n in types if n not in values and _needed(known[n])]
        if missing:
            raise UsageError(f"{where}: {_title(cls)} needs {', '.join(repr(_dotted(at, m)) for m in missing)}; give it a value")
    try:
        return replace(default, **values) if default is not None else cls(**values)
    except ValueError as exc:
        raise UsageError(f"{where}: {at + ': ' if at else ''}{exc}") from exc


def convert(kind: Any, value: Any, where: str, at: str) -> Any:
    """``value`` as the annotated type ``kind``, or a UsageError that names both. Never guesses: "true" is not a bool."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or (isinstance(kind, type) and not is_dataclass(kind) and kind not in _PLAIN and isinstance(value, kind)):
        return value
    if origin in (Union, UnionType):
        return _one_of(args, value, where, at)
    if origin is Literal:
        if value not in args or isinstance(value, bool) != any(value is a for a in args if isinstance(a, bool)):
            raise UsageError(f"{where}: {at} is {value!r}, which is not one of the choices.{nearest(str(value), map(str, args))}")
        return value
    if origin in SEQUENCES or kind in SEQUENCES:
        return _sequence(kind, value, where, at)
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return fill(kind, value, where=where, at=at)
    if isinstance(origin if origin else kind, type) and issubclass(origin or kind, Mapping) and isinstance(value, Mapping):
        return {str(k): convert(args[1] if args else Any, v, where, _dotted(at, str(k))) for k, v in value.items()}
    plain = _PLAIN.get(kind)
    if plain is not None and plain[1](value):
        return Path(value).expanduser() if kind is Path else kind(value)
    wanted = (
        plain[0]
        if plain
        else f"a table of the options of {_title(kind)}"
        if isinstance(kind, type) and is_dataclass(kind)
        else str(kind)
    )
    raise UsageError(f"{where}: {at} is {value!r} ({type(value).__name__}), but must be {wanted}")


_PLAIN: Final[Mapping[Any, tuple[str, Any]]] = {
    bool: ("true or false", lambda v: isinstance(v, bool)),
    int: (
        "a whole number",
        lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    ),
    float: ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool)),
    str: ("text", lambda v: isinstance(v, str)),
    Path: ("a path", lambda v: isinstance(v, str | Path) and str(v) != ""),
}


def _sequence(kind: Any, value: Any, where: str, at: str) -> Any:
    make, args = get_origin(kind) or kind, get_args(kind)
    if not isinstance(value, SEQUENCES):
        raise UsageError(f"{where}: {at} is {value!r} ({type(value).__name__}), but must be a list, in [ ]")
    items = list(value)
    if make is tuple and args and args[-1] is not Ellipsis:
        if len(items) != len(args):
            raise UsageError(f"{where}: {at} has {len(items)} values, but needs {len(args)}")
        return tuple(convert(a, v, where, f"{at}[{i}]") for i, (a, v) in enumerate(zip(args, items, strict=True)))
    return make(convert(args[0] if args else Any, v, where, f"{at}[{i}]") for i, v in enumerate(items))


def _one_of(args: tuple[Any, ...], value: Any, where: str, at: str) -> Any:
    if NoneType in args and (value is None or value == "none"):
        return None
    rest = [a for a in args if a is not NoneType]
    for arg in rest:
        try:
            return convert(arg, value, where, at)
        except UsageError:
            if arg is rest[-1]:
                raise
    raise UsageError(f"{where}: {at} is {value!r}, but must be left out")


def _field_value(field: Field[Any], kind: Any, value: Any, default: Any, where: str, at: str) -> Any:
    plugin_kind = field.metadata.get("kind")
    if plugin_kind is None:
        if is_dataclass(default) and isinstance(value, Mapping) and not isinstance(default, type):
            return fill(type(default), value, where=where, at=at, default=default)
        return convert(kind, value, where, at)
    if _takes_many(kind):
        if not isinstance(value, tuple | list):
            raise UsageError(f"{where}: {at} is {value!r}, but must be a list of {plugin_kind}, in [ ]")
        return tuple(_plugin(plugin_kind, v, None, where, f"{at}[{i}]") for i, v in enumerate(value))
    if default is None and isinstance(value, Mapping) and "name" not in value:
        concrete = [a for a in (get_args(kind) or (kind,)) if is_dataclass(a) and not inspect.isabstract(a)]
        if len(concrete) == 1:
            return convert(concrete[0], value, where, at)
    if value == "none" and NoneType in get_args(kind):
        return None
    return _plugin(plugin_kind, value, default, where, at)


def _plugin(kind: str, value: Any, default: Any, where: str, at: str) -> Any:
    """A plug-in from its table, its bare name, or itself; a table without a name changes the default one."""
    if is_dataclass(value) and not isinstance(value, type):
        return _checked(kind, at or where, type(value)) and value
    try:
        if isinstance(value, str):
            return fill(find(kind, value), {}, where=where, at=at)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            options = {k: v for k, v in value.items() if k != "name"}
            return fill(find(kind, value["name"]), options, where=where, at=at)
    except UsageError as exc:
        text = str(exc)
        raise exc if text.startswith(f"{where}: ") else UsageError(f"{where}: {at + ': ' if at else ''}{text}") from exc
    if isinstance(value, Mapping) and "name" not in value and is_dataclass(default) and not isinstance(default, type):
        return fill(type(default), value, where=where, at=at, default=default)
    raise UsageError(f'{where}: {at} is {value!r}, but must name one of the {kind}: name = "..."{nearest("", names(kind))}')


def _takes_many(kind: Any) -> bool:
    return get_origin(kind) in SEQUENCES or kind in SEQUENCES


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else None


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _dotted(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _title(cls: type[Any]) -> str:
    return f"{re.sub('^posttrain(_file_[0-9a-f]+)?[.]', '', cls.__module__)}:{cls.__name__}"


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise UsageError(f"there is no kind of plug-in {kind!r}.{nearest(kind, KINDS)}")
    return kind


def _installed(kind: str) -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=f"posttrain.{kind}")}


@functools.lru_cache(maxsize=len(KINDS))
def _built_in(kind: str) -> dict[str, tuple[str, str]]:
    """Name -> (module, class), from source text alone."""
    found: dict[str, tuple[str, str]] = {}
    room = HOME / kind
    for path in sorted(room.rglob("*.py")) if room.is_dir() else []:
        rel = path.relative_to(HOME).with_suffix("")
        if any(part.startswith("_") for part in rel.parts[:-1]) or (rel.name.startswith("_") and rel.name != "__init__"):
            continue
        classes = list(_classes(kind, path))
        module = ".".join(("posttrain", *rel.parts)).removesuffix(".__init__")
        if kind == "envs" and len(rel.parts) > 2:
            found |= {f"{rel.parts[1]}/{snake(c)}": (module, c) for c in classes}
        elif len(rel.parts) > 2:  # a package: the class that carries its name
            found.update((rel.parts[1], (module, c)) for c in classes if _same(c, rel.parts[1]))
        elif classes:
            found[rel.name] = (module, next((c for c in classes if _same(c, rel.name)), classes[-1]))
    return found


def _classes(kind: str, path: Path) -> Iterator[str]:
    """Public frozen dataclasses of a file that are, or by inheriting may be, plug-ins of ``kind``."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        frozen = any("dataclass" in (text := ast.unparse(d)) and "frozen=True" in text for d in node.decorator_list)
        bases = {ast.unparse(b) for b in node.bases}
        defined = {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        if frozen and not bases & {"ABC", "Protocol"} and (bases or KINDS[kind] in defined):
            yield node.name


def _choose(kind: str, module: ModuleType, name: str | None, asked: str) -> type[Any]:
    """The one plug-in of a user's file, or the one that was asked for."""
    own = {n: c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == module.__name__ and n[0] != "_"}
    fit = {n: c for n, c in own.items() if is_dataclass(c) and hasattr(c, KINDS[kind]) and not inspect.isabstract(c)}
    if name is not None:
        if name not in own:
            raise UsageError(f"{asked} has no class {name!r}.{nearest(name, own)}")
        return _checked(kind, asked, own[name])
    if len(fit) == 1:
        return next(iter(fit.values()))
    what = "several" if fit else "none"
    advice = f"say which: {asked}:{next(iter(fit))}" if fit else f"write one frozen dataclass with '{KINDS[kind]}' in it"
    raise UsageError(f"{asked} must hold one plug-in of kind {kind}, but holds {what}; {advice}")


def _checked(kind: str, name: str, cls: Any) -> type[Any]:
    if not (inspect.isclass(cls) and is_dataclass(cls) and hasattr(cls, KINDS[kind])):
        raise UsageError(f"{name} is not one of the {kind}: it must be a frozen dataclass with '{KINDS[kind]}'")
    if inspect.isabstract(cls):
        lacks = ", ".join(sorted(cls.__abstractmethods__))
        raise UsageError(f"{name} is not one of the {kind} yet: {cls.__name__} lacks {lacks}")
    return cls


def snake(name: str) -> str:
    """``LinearEquation`` -> ``linear_equation``, as a class is named in options."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _same(cls: str, stem: str) -> bool:
    return cls.lower() == stem.replace("_", "").lower()
