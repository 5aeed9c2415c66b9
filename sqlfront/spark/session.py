"""A local Spark session, and the Java it runs on: JAVA_HOME, the path, what package managers have installed."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from typing import Any

from sqlfront.storage.errors import OperationalError

OLDEST = 17
_INSTALLED = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)


def start(cores: int = 2, **config: str) -> Any:
    """A small Spark session on this machine, whose Python workers run this Python.

    `config` are Spark's settings with `__` for the dots: spark__driver__memory="2g". OperationalError without Java.
    """
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # The default one starts a process (chmod) for each file of a checkpoint, a third of a small micro-batch's time.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("__", "."): value for name, value in config.items()},
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("sqlfront")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def find_java() -> str:
    """The java to run Spark with; JAVA_HOME is set to its home if it was not.

    OperationalError, with the command that installs one, if there is none from 17 on.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [os.path.join(home, "bin", "java")] if home else []
    found = shutil.which("java")
    candidates += [found] if found else []
    candidates += [path for pattern in _INSTALLED for path in sorted(glob.glob(pattern), reverse=True)]
    seen = []
    for java in candidates:
        version = _version(java)
        if version is not None and version >= OLDEST:
            os.environ["JAVA_HOME"] = os.path.dirname(os.path.dirname(os.path.realpath(java)))
            return java
        seen.append(f"{java}: {'does not run' if version is None else f'Java {version}'}")
    raise OperationalError(
        f"Spark needs Java {OLDEST} or later",
        where="; ".join(seen) or "neither JAVA_HOME nor the path has one",
        why="Spark runs on the Java virtual machine",
        hint="apt-get install openjdk-17-jre-headless, or brew install openjdk@17, or set JAVA_HOME",
    )


def _version(java: str) -> int | None:
    """The major version of a java; None if it does not answer."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None
