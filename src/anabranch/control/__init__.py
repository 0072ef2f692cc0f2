"""Decides: what runs next, what may be committed, what is tried again. Pure: events and the time in, effects out."""
