"""What may be set about groups, with its default, its unit and its bounds."""

from dataclasses import dataclass

from anabranch.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Limits and times of the group coordinator."""

    session_timeout_s_min: float = 0.1
    """The shortest session a member may ask for. Kafka's default is 6 s; tests want sessions that end quickly."""

    session_timeout_s_max: float = 1800.0
    """The longest session a member may ask for (Kafka's default)."""

    rebalance_delay_s: float = 0.0
    """How long an empty group waits for further members after the first one. Kafka's default is 3 s."""

    new_member_join_timeout_s: float = 300.0
    """How long a member that never was in a generation may wait for one before its request is given up."""

    group_members_max: int = 1000
    """Members of one group; also the number of member ids handed out and not yet used."""

    member_bytes_max: int = 1024 * 1024
    """What a member may bring (protocols with their metadata) or be assigned; a real one is a few kilobytes."""

    groups_max: int = 10_000
    """Groups with members or offsets."""

    metadata_units_max: int = 4096
    """Length of an offset's metadata in UTF-16 units, as Kafka counts it."""

    offsets_retention_s: float | None = 7 * 24 * 3600.0
    """How long an empty group keeps its offsets; None keeps them for ever."""

    offsets_check_interval_s: float = 600.0
    """How often expired offsets and groups without anything are looked for."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        if not 0 < self.session_timeout_s_min <= self.session_timeout_s_max:
            raise UsageError("session_timeout_s_min must be above 0 and at most session_timeout_s_max: lower it")
        if self.rebalance_delay_s < 0:
            raise UsageError("rebalance_delay_s must not be negative: use 0 for no delay")
        for name in ("group_members_max", "groups_max", "offsets_check_interval_s", "new_member_join_timeout_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0: raise it")
        if self.metadata_units_max < 0:
            raise UsageError("metadata_units_max must not be negative: use 0 to allow no metadata")
        if self.offsets_retention_s is not None and self.offsets_retention_s < 0:
            raise UsageError("offsets_retention_s must not be negative: use None to keep offsets for ever")
