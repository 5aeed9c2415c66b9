"""Hatchling's hook for wheels: compiles the kernels and puts their file into the wheel, which is for this platform.

Without a C compiler the wheel has no such file: it runs where numba is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import which
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "sqlfront/storage/kernels/_native.abi3.so"


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the file of all kernels before a wheel is made; an editable install builds it at its first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        if not (os.environ.get("CC") or any(map(which, ("cc", "gcc", "clang")))):
            self.app.display_warning("there is no C compiler: the wheel has no compiled kernels and needs numba")
            return
        built = Path(self.root) / "build" / "kernels" / Path(PLACE).name
        built.parent.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, SQLFRONT_KERNELS="jit")
        environment["PYTHONPATH"] = os.pathsep.join([self.root, *filter(None, sys.path)])
        command = [sys.executable, "-m", "sqlfront.storage.kernels.building", str(built)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["force_include"][str(built)] = PLACE
        build_data["pure_python"], build_data["tag"] = False, f"cp311-abi3-{platform}"
