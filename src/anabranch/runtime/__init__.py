"""Joins consumer, plane, engine and sinks in one process."""
