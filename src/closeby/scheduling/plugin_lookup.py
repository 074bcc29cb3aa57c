"""Finds the plugins that a configuration names: known ones, those of installed packages, ``module:Class``."""

import importlib
import re
import traceback
from collections.abc import Mapping
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from closeby.errors import PluginLookupError
from closeby.objects.words import similar
from closeby.reading.configuration import did_you_mean
from closeby.scheduling.extension import Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

#: Group of entry points by which installed packages offer plugins.
ENTRY_POINT_GROUP = "closeby.plugins"

#: What an image that schedules leaves out, and how to have it.
LABORATORY = "closeby.lab"
INSTALL_LABORATORY = "the laboratory is not installed; pip install '.[lab]' in the folder of closeby's source"

_PATH = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<class>\w+)")


class PluginLookup:
    """Finds plugins by name, for one configuration: the installed packages are read once, when needed."""

    def __init__(self, available: Mapping[str, type[Plugin]]) -> None:
        self._available = available
        #: Whether the known names were listed in an error: once is enough.
        self._listed = False

    def find(self, name: str) -> type[Plugin]:
        """The class. ``available`` comes first, then entry points; a colon means ``module:Class``.

        Raises:
            PluginLookupError: unknown, not importable, or not a plugin.
        """
        if name in self._available:
            return self._available[name]
        if ":" in name:
            match = _PATH.fullmatch(name)
            if match is None:
                raise PluginLookupError(f"{name} does not name a class", "write module:Class")
            return _imported(name, match["module"], match["class"])
        offered = [point for point in self._installed if point.name == name]
        if not offered:
            raise PluginLookupError(f"{name} is not a known plugin", self._remedy(name))
        if len({point.value for point in offered}) > 1:
            targets = " and ".join(sorted(point.value for point in offered))
            raise PluginLookupError(
                f"{name} is offered twice, as {targets}", "write the one you mean instead"
            )
        return _imported(name, offered[0].module, offered[0].attr)

    @cached_property
    def _installed(self) -> "EntryPoints":
        from importlib.metadata import entry_points

        return entry_points(group=ENTRY_POINT_GROUP)

    def _remedy(self, name: str) -> str:
        known = {*self._available, *(point.name for point in self._installed)}
        if similar(name, known) is None:
            if self._listed:
                return ""
            self._listed = True
        return did_you_mean(name, known, "plugins")


def _imported(name: str, module_name: str, class_name: str) -> type[Plugin]:
    module = _module(name, module_name)
    found = getattr(module, class_name, None)
    if found is None:
        plugins = [key for key, value in vars(module).items() if _is_plugin(value, module_name)]
        remedy = did_you_mean(class_name, plugins, "plugins") if plugins else "it holds no plugin"
        raise PluginLookupError(f"plugin {name}: module {module_name} has no {class_name}", remedy)
    if not isinstance(found, type) or not issubclass(found, Plugin):
        raise PluginLookupError(
            f"plugin {name}: {class_name} is not a plugin",
            "make it a class that inherits an extension point",
        )
    if not isinstance(getattr(found, "name", None), str):
        raise PluginLookupError(f"plugin {name}: {class_name} has no name", 'give it one: name = "..."')
    return found


def _module(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            remedy = "is it beside the configuration, or its folder on PYTHONPATH?"
            if missing == LABORATORY:
                remedy = INSTALL_LABORATORY
            raise PluginLookupError(f"plugin {name}: there is no module {missing}", remedy) from error
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise PluginLookupError(
            f"plugin {name}: importing {module_name} failed with {type(error).__name__}: {error}",
            f"see {last.filename}, line {last.lineno}",
        ) from error


def _is_plugin(value: object, module_name: str) -> bool:
    return isinstance(value, type) and issubclass(value, Plugin) and value.__module__ == module_name
