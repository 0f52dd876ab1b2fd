"""Plugins: modules and files that register methods, read before the settings that name them.

A plugin calls `gar.methods.register` while it is imported. `make_config` reads the plugins of a configuration first, so
that ranks, runs of a comparison, resumed runs, verl's workers and slime's actors all have them.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, GarError, first_line

GROUP = "gar.methods"  # of the entry points that name plugins of installed packages
_loaded: set[str] = set()


def load_plugins(names: Iterable[str] = ()) -> None:
    """Import the plugins of installed packages and those named, each once. The current folder is searched last.

    `names` are modules ("package.module") or files ("folder/methods.py"). A `ConfigError` names a plugin that cannot be
    imported, or that registers a method with a name that is taken.
    """
    for entry in _entry_points():
        _load(f"plugin {entry.value} (entry point {entry.name})", entry.value, entry.load)
    for name in names:
        _load(f"plugin {name}", name, lambda name=name: _import(name))


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _load(label: str, name: str, read: Callable[[], Any]) -> None:
    if name in _loaded:
        return
    try:
        read()
    except GarError as error:
        raise ConfigError(f"{label}: {error}") from error
    except Exception as error:  # whatever a user's module raises
        is_path = isinstance(error, ModuleNotFoundError) and not name.endswith(".py")
        hint = " Is its folder on the Python path?" if is_path else ""
        raise ConfigError(f"{label} cannot be imported: {first_line(error)}.{hint}") from error
    _loaded.add(name)


def _import(name: str) -> None:
    if name.endswith(".py"):
        _import_file(Path(name).resolve())
        return
    search_current_folder()
    importlib.import_module(name)


def search_current_folder() -> None:
    """Import modules from the current folder too, after all others. A console script has its own folder instead."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _import_file(path: Path) -> None:
    name = "gar_plugin" + re.sub(r"\W", "_", str(path.with_suffix("")))
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
