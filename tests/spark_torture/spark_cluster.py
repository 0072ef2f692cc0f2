"""A cluster on this machine: executors are processes of their own, which can be killed and frozen one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract_spark import SparkProcessMember

CLUSTER = "local-cluster[2,2,1024]"
MEMBERS = 4
"""As many as there are slots: so each executor has two."""
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.deploy.maxExecutorRetries": "-1",  # Spark's own master gives up on a cluster whose executors keep dying
}


def placed(run: SparkProcessMember) -> dict[int, list[str]]:
    """Answer which members run on which executor, by its process; only those that have partitions."""
    members = run.statistics().get("members", {})
    where: dict[int, list[str]] = defaultdict(list)
    for executor in run.tree.executors():
        below = {each.pid for each in run.tree.below(executor.pid)}
        for name, told in members.items():
            if told["pid"] in below and told["partitions"]:
                where[executor.pid].append(name)
    return dict(where)
