"""Spark's Python daemon under another name: the workers that it forks do not ask to die with it.

A member asks the kernel for a signal at its parent's death only where Spark's own daemon is the parent, which it knows
by its name (`anabranch.spark.parent_death`). So `spark.python.daemon.module=lonely_daemon` disables the signal from
outside, without a switch for it in the product. Tests that use it see that workers outlive their daemon.
"""

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
