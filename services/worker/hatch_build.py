"""Build hook: compiles the kernel library where a C++ compiler is, and ships it in the wheel.

Without one the wheel is pure, and the worker says at its start what to do.
"""

import contextlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KERNEL = Path("src/kakeya_worker/torch_backend/exact/kernel")


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling's, found by this name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds beside the sources, which serves an editable installation as it is."""
        kernel = self._builder()
        try:
            self.app.display_info(kernel.build())
        except kernel.BuildError as error:
            with contextlib.suppress(OSError):  # a tree that cannot be written; the worker refuses what does not fit
                kernel.LIBRARY.unlink(missing_ok=True)  # of other sources, if any
            self.app.display_warning(f"the kernel is not built, exact mode will be slower: {error}")
            return
        if version == "standard":
            build_data["artifacts"].append(str(_KERNEL / kernel.LIBRARY.name))
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def _builder(self) -> ModuleType:
        """The module build.py by its path: what it lies in cannot be imported here."""
        path = Path(self.root) / _KERNEL / "build.py"
        spec = importlib.util.spec_from_file_location("kakeya_kernel_build", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
