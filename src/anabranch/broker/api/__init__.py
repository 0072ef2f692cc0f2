"""What each API key does, one short file each. Nothing here touches a socket."""
