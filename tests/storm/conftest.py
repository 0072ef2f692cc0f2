"""Lets these tests use the machinery of the contract suite: its folder is not a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "contract"))
