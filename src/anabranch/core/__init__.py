"""The vocabulary: records, events, errors, options. No I/O, nothing third-party."""
