"""Plays the control plane against a scripted world in virtual time, from a seed, and judges what it did.

Real: the plane with all its parts. Scripted: the log and the group coordinator (`group`), the client library
(`source`), the calls (`engine`), the acknowledgements (`sink`), and the trouble (`scenario`): crashes, stops, moves,
evictions, frozen members, commits that are refused, time out or lose their answer, acknowledgements that take seconds,
completions that come when the partition has long gone. All of it follows from one number, so what went wrong once goes
wrong again: `python -m anabranch.testing.simulation SEED`.

What a run did goes through the same recording events as a real one to the oracle. Beside it stand a few checks that
need to look in from outside (`member`): no more calls than allowed, nothing settled before it was acknowledged, outputs
of a key in order, a full gate is closed, time passes between ticks, and everything is committed in the end.
"""

from anabranch.testing.simulation.outcome import Outcome
from anabranch.testing.simulation.play import simulate
from anabranch.testing.simulation.scenario import Faults, Scenario, Trouble, TroubleKind, draw

__all__ = ["Faults", "Outcome", "Scenario", "Trouble", "TroubleKind", "draw", "simulate"]
