"""Runs handlers in one process: inline (the reference) and on an event loop."""
