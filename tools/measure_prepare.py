"""How fast `reviser data prepare` is and how much memory it takes, for files of several sizes.

    python tools/measure_prepare.py small.jsonl large.jsonl

Each file is prepared in a process of its own with one worker, into a folder that is then removed; a line of JSON for
each. CPU seconds do not depend much on what else the machine does; wall seconds do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(source: Path, *more: str) -> dict[str, float | str]:
    with tempfile.TemporaryDirectory(prefix="measure-") as place:
        out, began = Path(place, "data"), time.monotonic()
        words = ["data", "prepare", str(source), str(out), "--workers", "1", "--json", *more]
        with subprocess.Popen([sys.executable, "-m", "reviser", *words], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            said = json.loads(child.stdout.read())
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"error: {source}: it ended with {child.returncode}")
        cpu_s, wall_s = used.ru_utime + used.ru_stime, time.monotonic() - began
        mb = source.stat().st_size / 1e6
        return {
            "what": "prepare, one process", "mb": round(mb, 1),
            "documents": sum(split["num_documents"] for split in said["splits"].values()),
            "cpu_s": round(cpu_s, 2), "mb_per_cpu_s": round(mb / cpu_s, 2), "wall_s": round(wall_s, 1),
            "memory_mb": round(used.ru_maxrss * 1024 / 1e6), "load": round(os.getloadavg()[1], 1),
        }  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(measure(Path(name))), flush=True)
