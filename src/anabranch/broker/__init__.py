"""The log: a Kafka that pip installs."""
