"""Whether and how a model would run on this host, by the backend that workers here take."""

import os
from collections.abc import Mapping
from typing import Any

from kakeya_shared import plugins
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.settings import WorkerSettings

_DTYPES = ("float32", "bfloat16")
_BLOCKS = "gguf"


class RunsHere:
    """Loads the backend once, and no model.

    Args:
        environment: where a worker's variables may name another backend, and other weights.

    Attributes:
        backend: its name.
        kv_dtype: that a worker is told, or auto.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        said = {name: environment.get(WorkerSettings.variable(name)) for name in ("backend", "weights", "kv_dtype")}
        default = {name: WorkerSettings.model_fields[name].default for name in said}
        chosen = {name: said[name] or default[name] for name in said}
        self.backend: str = chosen["backend"]
        self.kv_dtype: str = chosen["kv_dtype"]
        self._weights = chosen["weights"]
        self._backend: Any = None
        self._known: dict[str, tuple[str, str]] = {}

    def weights(self, config: Mapping[str, Any], *, has_blocks: bool) -> tuple[str, str]:
        """Of a model by its config.json: the type that its weights would have, or "", and why it would not run.

        Both are "" where the backend does not say it.

        Args:
            has_blocks: whether its matrices are GGUF's blocks.
        """
        if config.get("quantization") or config.get("quantization_config"):
            if self.backend == "mlx":
                return "", ""
            return "", f"weights that are quantized already do not run with --backend {self.backend}"
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "")
        dtype = _BLOCKS if has_blocks else dtype if dtype in _DTYPES else ""  # all others are treated alike
        if dtype not in self._known:
            self._known[dtype] = self._asked(dtype)
        return self._known[dtype]

    def _asked(self, dtype: str) -> tuple[str, str]:
        install = f"pip install 'kakeya-worker[{self.backend}]'"
        try:
            self._backend = self._backend or plugins.load("kakeya.verifier", self.backend, install=install)
            chosen_weights = getattr(self._backend, "chosen_weights", None)
            return (chosen_weights(self._weights, self.kv_dtype, dtype) if chosen_weights else ""), ""
        except (plugins.PluginError, ModelRefused) as error:
            return "", str(error)
