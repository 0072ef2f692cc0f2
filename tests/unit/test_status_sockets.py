"""Status sockets of several runs of one process in one folder."""

import asyncio
import threading
from pathlib import Path

from anabranch.runtime.status import StatusSocket, ask

RUNS = 40


def test_runs_that_start_at_once_in_one_folder_have_each_a_socket_of_its_own(tmp_path: Path) -> None:
    """Two runs looked for a name at the same moment: one took the other's socket, which was bound and did not listen
    yet, for one that a dead process had left, and the other ended with a usage error.
    """
    together, answered = threading.Barrier(RUNS), threading.Barrier(RUNS)
    answers: dict[int, object] = {}

    async def live(number: int) -> None:
        status = StatusSocket(tmp_path, lambda: {"number": number})
        together.wait(10)
        await status.open()
        try:
            answers[number] = await asyncio.to_thread(ask, status.path)
            await asyncio.to_thread(answered.wait, 10)
        finally:
            await status.close()

    threads = [threading.Thread(target=lambda number=number: asyncio.run(live(number))) for number in range(RUNS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == {number: {"number": number} for number in range(RUNS)}
    assert list(tmp_path.iterdir()) == []
