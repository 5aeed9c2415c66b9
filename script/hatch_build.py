"""Hatchling's hook for wheels: compiles the kernels and puts their file into the wheel, which is for this platform.

Without a C compiler the wheel has no such file: it runs where numba is installed.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "sqlfront/storage/kernels/_native.abi3.so"


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the file of all kernels before a wheel is made; an editable install builds it at its first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from sqlfront.storage.native.kernel_setup import build_file, compiler
        from sqlfront.storage.native.native_file import fingerprint

        if compiler() is None:
            self.app.display_warning("there is no C compiler: the wheel has no compiled kernels and needs numba")
            return
        built = Path(self.root) / "build" / "kernels" / fingerprint() / Path(PLACE).name
        problem = build_file(built)
        if problem is not None:
            raise RuntimeError(f"the kernels could not be compiled: {problem}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(built)] = PLACE
        build_data["pure_python"], build_data["tag"] = False, f"cp311-abi3-{platform}"
