"""The source with a diary: which of its methods Spark called, with what, in which process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark.readers import TopicStreamReader
from anabranch.spark.source import TopicSource
from anabranch.spark.source_options import source_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType


class ProbedReader(TopicStreamReader):
    """Writes a line for each call."""

    def __init__(self, diary: str, *rest: Any) -> None:
        super().__init__(*rest)
        self._diary = diary

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._note("initialOffset")
        return super().initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        answer = super().latestOffset(start, limit)
        self._note("latestOffset", start=start, answer=answer, looks=self._watch.looks if self._watch else 0)
        return answer

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        self._note("partitions", start=start, end=end)
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        self._note("commit", end=end)

    def read(self, partition: Any) -> Iterator[Any]:
        wanted = partition.value
        self._note("read", partition=wanted.partition, start=wanted.start, end=wanted.end)
        return super().read(partition)

    def _note(self, call: str, **more: Any) -> None:
        with Path(self._diary).open("a") as file:
            file.write(json.dumps({"call": call, "process": os.getpid(), **more}) + "\n")


class ProbedSource(TopicSource):
    """`format("probed")`, with one option more: where the diary is."""

    @classmethod
    def name(cls) -> str:
        return "probed"

    def streamReader(self, schema: StructType) -> ProbedReader:  # noqa: N802
        options = dict(self.options)
        diary = options.pop("diary")
        return ProbedReader(diary, source_options(options, streaming=True), [field.name for field in schema.fields])


def calls(diary: Path, name: str) -> list[dict[str, Any]]:
    """Give the calls of one method, in order."""
    if not diary.exists():
        return []
    lines = diary.read_text().splitlines()
    return [call for call in map(json.loads, lines) if call["call"] == name]
