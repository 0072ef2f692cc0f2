"""The messages of the Kafka protocol that the broker speaks, one file per API."""
