"""Send the user's modules to a cluster: one zip, which Spark puts on the path of its Python workers."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Final

from anabranch.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

ARCHIVE_BYTES_MAX: Final = 64 * 1024 * 1024
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: equal files make equal archives


def send_modules(spark: SparkSession, modules: Sequence[tuple[str, Path]], folder: Path) -> None:
    """Have Spark give the modules to its Python workers. The archive stays in the folder: executors may come later."""
    files = dict(files_of(modules))
    if not files:
        return
    data = archive(files)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"modules-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    path.write_bytes(data)
    for old in folder.glob("modules-*.zip"):
        if old != path:
            old.unlink(missing_ok=True)
    spark.addArtifacts(str(path.resolve()), pyfile=True)


def files_of(modules: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Give the files of the modules by their place in the archive; of a package all, also those not loaded yet."""
    for name, path in modules:
        place = name.replace(".", "/")
        if path.name != "__init__.py":
            yield f"{place}.py", path
            continue
        for each in sorted(path.parent.rglob("*")):
            inside = each.relative_to(path.parent)
            if each.is_file() and "__pycache__" not in inside.parts:
                yield f"{place}/{inside.as_posix()}", each


def archive(files: dict[str, Path]) -> bytes:
    """Return the zip; raise UsageError when it would be too large to send around."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for place, path in sorted(files.items()):
            target.writestr(zipfile.ZipInfo(place, _EPOCH), path.read_bytes())
            if buffer.tell() > ARCHIVE_BYTES_MAX:
                raise UsageError(
                    f"the modules to send to the cluster are larger than {ARCHIVE_BYTES_MAX} bytes, at {path}: "
                    "install them on the executors instead, or keep data out of the package's folder"
                )
    return buffer.getvalue()
