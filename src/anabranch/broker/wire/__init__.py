"""Sockets know bytes: Kafka bytes to values and back. Pure, fuzzed."""
