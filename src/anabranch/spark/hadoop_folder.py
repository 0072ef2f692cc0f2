"""A folder wherever Spark writes (this disk, HDFS, an object store), through Hadoop's file systems in the JVM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def literal(location: str) -> str:
    """Return the pattern that matches nothing but this path."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", location)


class HadoopFolder:
    """One folder; paths are relative to it, with `/`. Every call may block and raise what the file system raises."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Find the file system of a location; nothing is made."""
        session: Any = spark
        self._jvm: Any = getattr(session, "_jvm", None)
        if self._jvm is None:
            raise UsageError(
                "write_table to a folder needs a classic Spark session, not Spark Connect: use a table's name"
            )
        self._path_of: Any = self._jvm.org.apache.hadoop.fs.Path
        settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - there is no public way to it
        self._files: Any = self._path_of(location).getFileSystem(settings)
        is_local = self._files.getUri().getScheme() == "file"
        if is_local and "://" not in location and not location.startswith("file:"):
            location = str(Path(location).absolute())  # by this process's folder: the JVM keeps the one it began in
        self.location: str = self._files.makeQualified(self._path_of(location)).toString()

    def exists(self, name: str = "") -> bool:
        """Tell whether something of that name is there."""
        return bool(self._files.exists(self._at(name)))

    def files(self, name: str = "") -> Iterator[str]:
        """Give all files below, at any depth, that do not begin with `_` or `.`: those that readers see."""
        found = self._files.listFiles(self._at(name), True)
        while found.hasNext():
            path = found.next().getPath().toString().removeprefix(self.location).lstrip("/")
            if not path.rpartition("/")[2].startswith(("_", ".")):
                yield path

    def matching(self, pattern: str) -> list[str]:
        """Return the files that match a pattern such as `*/part-*`."""
        found = self._files.globStatus(self._path_of(f"{literal(self.location)}/{pattern}")) or ()
        return [each.getPath().toString().removeprefix(self.location).lstrip("/") for each in found]

    def move(self, name: str, to: str) -> None:
        """Move a file; what was there before must be gone."""
        target = self._at(to)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._at(name), target):
            raise OSError(f"{self.location}: {name} could not be moved to {to}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        self._files.delete(self._at(name), True)

    def read_text(self, name: str) -> str:
        """Return what a file says."""
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a file anew."""
        stream = self._files.create(self._at(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._path_of(f"{self.location}/{name}" if name else self.location)
