"""Masters by their names, slots and members, and the configuration of sessions that we make."""

from __future__ import annotations

import pytest

from anabranch.core.errors import UsageError
from anabranch.spark.masters import cores, describe_master, local_master
from anabranch.spark.session_conf import checked_conf, session_conf
from anabranch.spark.slots import decide_members, needed, slots_of


@pytest.mark.parametrize(
    ("name", "is_here", "slots"),
    [
        ("local", True, 1),
        ("local[4]", True, 4),
        ("local[*]", True, cores()),
        ("local[6,1000]", True, 6),
        ("local-cluster[2,3,1024]", True, 6),
        ("spark://host:7077", False, None),
        ("yarn", False, None),
        ("k8s://https://host", False, None),
    ],
)
def test_a_master_s_name_says_where_it_is_and_sometimes_how_much_it_runs(
    name: str, is_here: bool, slots: int | None
) -> None:
    """Members on this machine see its files."""
    master = describe_master(name)
    assert (master.is_on_this_machine, master.slots) == (is_here, slots)


def test_a_local_session_has_room_for_its_members_the_queries_and_one_more() -> None:
    """A lanes job holds its slots, so others must have theirs."""
    slots = describe_master(local_master(3)).slots
    assert slots == 5
    assert needed(3, queries=4) == 4  # queries take turns


def test_a_query_that_cannot_pass_is_not_tried_a_thousand_times() -> None:
    """Members may die often; with queries beside them Spark's one number for both is small."""
    assert (local_master(1), local_master(1, queries=1)) == ("local[3,1000]", "local[3,16]")
    assert session_conf("x", "spark://host:7077", {}, queries=1)["spark.task.maxFailures"] == "16"


def test_members_are_as_many_as_asked_for_or_as_partitions_and_slots_allow() -> None:
    """A query needs a slot that no member holds."""
    assert decide_members(None, 8, 0, slots=4, master="m") == 4
    assert decide_members(None, 8, 1, slots=4, master="m") == 3
    assert decide_members(None, 2, 1, slots=4, master="m") == 2
    assert decide_members(None, 8, 0, slots=6, others=4, master="m") == 2
    assert decide_members(4, 1, 0, slots=4, master="m") == 4
    assert decide_members(None, 8, 2, slots=None, master="connect") == 8


def test_a_run_without_room_is_refused_with_a_sentence() -> None:
    """Rather than waiting for a place for ever."""
    with pytest.raises(UsageError, match="local has 1 slots: there is no room for one member and a slot for the quer"):
        decide_members(None, 8, 1, slots=1, master="local")
    with pytest.raises(UsageError, match=r"and other runs hold 3 of them: .* 2 members; .* or ask for fewer members"):
        decide_members(2, 8, 0, slots=4, others=3, master="local[4]")


def test_slots_of_a_connect_session_are_unknown() -> None:
    """It has no context here to ask."""
    assert slots_of(None, 1, 8) is None


def test_what_the_user_sets_stands_above_what_we_set() -> None:
    """Except where a run would go wrong with it."""
    conf = session_conf("billing", "local[2]", checked_conf({"spark.ui.enabled": True, "spark.task.cpus": 1}))
    assert (conf["spark.ui.enabled"], conf["spark.task.cpus"], conf["spark.app.name"]) == ("true", "1", "billing")
    assert "spark.driver.host" not in session_conf("billing", "spark://host:7077", {})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("driver.memory", "1g", "allowed are Spark's own names"),
        ("spark.master", "local", "use the option master"),
        ("spark.speculation", "true", "it would start members twice"),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: str, said: str) -> None:
    """With the reason."""
    with pytest.raises(UsageError, match=said):
        checked_conf({name: value})
    assert checked_conf({"spark.speculation": "false"}) == {"spark.speculation": "false"}
