"""The public test kit: pytest plugin, memory store, history and oracle."""
