"""The edge to any Kafka, over confluent-kafka: the only place that imports it."""
