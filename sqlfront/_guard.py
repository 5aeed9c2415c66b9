"""A check, at import, that the packages below `sqlfront` are ours.

`planner`, `maintenance` and `storage` are top-level packages with common names: a user's own
storage.py beside the script being run would be found first, and fail later in confusing ways.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

PACKAGES = ("planner", "maintenance", "storage")


def check_packages() -> None:
    """Raise ImportError, naming the file, when another module shadows one of our packages."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for name in PACKAGES:
        expected = os.path.join(home, name)
        found = _location(name)
        if found is None:
            raise ImportError(f"sqlfront: its package '{name}' is missing from {home}; reinstall sqlfront", name=name)
        if os.path.realpath(found) not in (expected, os.path.join(expected, "__init__.py")):
            raise ImportError(
                f"sqlfront: {found} shadows sqlfront's own package '{name}', which is in {expected}.\n"
                f"Why: Python takes the first '{name}' it finds on sys.path, and that is not ours.\n"
                f"Try: rename {found}, or move it into a package of yours.",
                name=name,
                path=found,
            )


def _location(name: str) -> str | None:
    """The file or directory from which `import name` loads, or has loaded, the module."""
    spec = _spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        return spec.origin
    return next(iter(spec.submodule_search_locations or ()), None)


def _spec(name: str) -> ModuleSpec | None:
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__spec__", None) is None:
        # A module made by hand has no spec, and find_spec refuses it: its file tells where it is from.
        return ModuleSpec(name, None, origin=getattr(loaded, "__file__", None) or f"<sys.modules[{name!r}]>")
    return find_spec(name)
