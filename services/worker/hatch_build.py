"""Build hook: compiles the kernel library where a C++ compiler is, and ships it in the wheel.

Without one the wheel is pure, and the worker says at its start what to do. $KAKEYA_WHEEL_PLATFORM names a platform that
the wheel is for, as it stands in a wheel's name. Then $CXX must compile for that, and without a kernel there is no
wheel. `any` is a wheel without one.
"""

import contextlib
import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KERNEL = Path("src/kakeya_worker/torch_backend/exact/kernel")
_PLATFORM = "KAKEYA_WHEEL_PLATFORM"
_MANYLINUX = re.compile(r"manylinux_\d+_\d+_(\w+)")


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling's, found by this name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds beside the sources, which serves an editable installation as it is."""
        if platform := os.environ.get(_PLATFORM):
            self._initialize_for(platform, build_data)
            return
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

    def _initialize_for(self, platform: str, build_data: dict[str, Any]) -> None:
        """As `initialize`, for a platform of a wheel's name. The library is loaded by ctypes: any Python 3 takes it."""
        build_data["tag"] = f"py3-none-{platform}"
        if platform == "any":
            return
        if not (machine := _MANYLINUX.fullmatch(platform)):
            raise ValueError(f"${_PLATFORM} is {platform!r}, neither `any` nor manylinux_X_Y_MACHINE")
        kernel = self._builder()
        library = Path(self.directory) / f".kernel-{platform}.so"  # hidden: no glob over wheels takes it
        self.app.display_info(kernel.build(library, machine=machine[1]))
        build_data["pure_python"] = False
        build_data["force_include"][str(library)] = str(_KERNEL.relative_to("src") / kernel.LIBRARY.name)

    def _builder(self) -> ModuleType:
        """The module build.py by its path: what it lies in cannot be imported here."""
        path = Path(self.root) / _KERNEL / "build.py"
        spec = importlib.util.spec_from_file_location("kakeya_kernel_build", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
