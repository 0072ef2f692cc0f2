"""One partition on disk: segments, index, recovery, retention, producers."""
