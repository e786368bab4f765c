"""A snapshot store whose disk is full or slow at times; see faulty_disk.c."""

import subprocess
from pathlib import Path


class FaultyDisk:
    """Of one directory, for the processes that are started with `environment`.

    Args:
        directory: whose files are concerned.
        workspace: where the library and its control file go.
    """

    def __init__(self, directory: Path, workspace: Path) -> None:
        library = workspace / "faulty_disk.so"
        source = Path(__file__).with_name("faulty_disk.c")
        compile_it = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(compile_it, check=True)
        self._control = workspace / "disk"
        self.heal()
        self.environment = {
            "LD_PRELOAD": str(library),
            "KAKEYA_CHAOS_DISK": str(directory),
            "KAKEYA_CHAOS_DISK_CONTROL": str(self._control),
        }

    def fill(self) -> None:
        self._control.write_text("full")

    def slow(self) -> None:
        self._control.write_text("slow")

    def heal(self) -> None:
        self._control.write_text("")
