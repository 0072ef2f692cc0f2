"""File systems of our own, small enough to fill and free to be shut down: tmpfs, and ext4 in an image file.

All of it needs root and the right to mount; without it the tests that ask are skipped with a message.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
"""_IOR('X', 125, __u32) of the kernel's ext4.h: stop all writes to the disk from this moment on."""
NO_LOG_FLUSH = 2
"""EXT4_GOING_FLAGS_NOLOGFLUSH: what is in memory only is lost, the journal's open transaction too."""

UMOUNT_S_MAX = 10.0


@contextmanager
def mounted_tmpfs(folder: Path, megabytes: int) -> Iterator[Path]:
    """Give a memory file system of this size."""
    _need_root("a small tmpfs")
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


class Ext4Image:
    """An ext4 file system in a file, which can be mounted, have its power cut, and be mounted again."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        _need_root("a loop-mounted ext4")
        maker = shutil.which("mkfs.ext4") or shutil.which("mkfs.ext4", path="/sbin:/usr/sbin")
        if maker is None:
            pytest.skip("mkfs.ext4 is missing: install e2fsprogs to cut the power of a loop-mounted ext4")
        folder.mkdir()
        self.image = folder / "image"
        self.mountpoint = folder / "mounted"
        self.mountpoint.mkdir()
        with self.image.open("wb") as image:
            image.truncate(megabytes * 1024 * 1024)
        subprocess.run([maker, "-q", "-F", "-m", "0", str(self.image)], check=True)

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount it; the kernel replays its journal. The journal is written when asked for, or once a minute."""
        _mount("-o", "loop,commit=60", str(self.image), str(self.mountpoint))
        try:
            yield self.mountpoint
        finally:
            _unmount(self.mountpoint)

    def cut_power(self) -> tuple[float, float]:
        """Lose all that was not synced: nothing reaches the disk any more, every access fails from here on.

        Answer when it began and ended. In between the kernel's word is not good: an fdatasync that is under way may
        return success although its data is lost (seen on Linux 6.18 with nothing but pwrite and fdatasync).
        """
        began = time.monotonic()
        descriptor = os.open(self.mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        except OSError as error:
            pytest.skip(f"this kernel cannot shut an ext4 down ({error}): no power cut")
        finally:
            os.close(descriptor)
        return began, time.monotonic()


def _need_root(what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {what} has to be mounted")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount is refused here ({done.stderr.strip()}): run on a machine where root may mount")


def _unmount(folder: Path) -> None:
    """Unmount, as soon as the kernel is done with the processes that were killed on it."""
    deadline = time.monotonic() + UMOUNT_S_MAX
    while subprocess.run(["umount", str(folder)], capture_output=True).returncode:
        if time.monotonic() > deadline:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
            raise AssertionError(f"{folder} was busy for {UMOUNT_S_MAX:g} s")
        time.sleep(0.05)  # the kernel tells nobody when a mount falls idle
