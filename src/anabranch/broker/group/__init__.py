"""Who reads what: the group coordinator's machine and the committed offsets."""
