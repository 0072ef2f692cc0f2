"""The outputs of a pipeline as a streaming DataFrame. It reads the topic that runs fill, and starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import UsageError
from anabranch.pipeline.handlers import name_of
from anabranch.pipeline.output_type import output_type
from anabranch.spark import register
from anabranch.spark.output_topic import make_output_topic
from anabranch.spark.rows import rows
from anabranch.spark.schema import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from anabranch.pipeline.draft import Draft
    from anabranch.spark.schema import Shape


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the outputs of a pipeline are, and what they are."""

    topic: str
    shape: Shape
    bootstrap: str
    kafka: Mapping[str, str] = field(default_factory=dict)
    fail_on_data_loss: bool = True

    def frame(self, spark: SparkSession, start: str = "earliest") -> DataFrame:
        """Return them as rows; the topic must exist."""
        register(spark)
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": start,
            "includeHeaders": "true",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **{f"kafka.{name}": value for name, value in self.kafka.items()},
        }
        return rows(spark.readStream.format("anabranch").options(**options).load(), self.shape)


def stream(
    draft: Draft, spark: SparkSession, *, bootstrap: str, kafka: Mapping[str, Any] | None, start: str
) -> DataFrame:
    """Return the outputs of a pipeline, or what its transforms make of them. Makes the topic if it is missing."""
    _refuse_no_session(spark)
    if start not in {"earliest", "latest"}:
        raise UsageError(f"stream: start={start!r} is not known; allowed is 'earliest' or 'latest'")
    assert draft.output_topic is not None
    assert draft.read is not None
    outputs = Outputs(draft.output_topic, shape_of(output_type(draft)), bootstrap, kafka_texts(kafka))
    make_output_topic(outputs.topic, outputs.bootstrap, outputs.kafka, draft.read.topics)
    return transformed(outputs.frame(spark, start), draft.transforms)


def transformed(frame: DataFrame, transforms: Iterable[Callable[[Any], Any]]) -> DataFrame:
    """Return what the user's functions make of a DataFrame; refuse what is none, or does not stream any more."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame as AnyFrame

    for function in transforms:
        name = name_of(function)
        try:
            frame = function(frame)
        except AnalysisException as error:
            raise UsageError(
                f"transform({name}): {first_line(error)}; the rows have {', '.join(frame.columns)}"
            ) from error
        if not isinstance(frame, AnyFrame):
            raise UsageError(f"transform({name}) returned a {type(frame).__name__}; return the DataFrame")
        if not frame.isStreaming:
            raise UsageError(
                f"transform({name}) returned a DataFrame that does not stream; make it from the one that it is given"
            )
    return frame


def kafka_texts(kafka: Mapping[str, Any] | None) -> dict[str, str]:
    """Return librdkafka's settings as it takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (kafka or {}).items()
    }


def first_line(error: Exception) -> str:
    """Return what a person can use of one of Spark's long messages."""
    return str(error).strip().partition("\n")[0].strip()


def _refuse_no_session(spark: Any) -> None:
    from pyspark.sql import SparkSession as AnySession

    if not isinstance(spark, AnySession):
        raise UsageError(f"stream: given {spark!r}; give a SparkSession, such as SparkSession.builder.getOrCreate()")
