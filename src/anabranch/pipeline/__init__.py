"""What the user writes: pipelines, handlers and their context."""
