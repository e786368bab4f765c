"""What a user asks of the bench: `python -m kakeya_bench.engine --help`."""

from pathlib import Path

from pydantic_settings import SettingsConfigDict

from kakeya_bench.engine.plan import Plan
from kakeya_shared.settings.service import ServiceSettings, setting


class EngineSettings(ServiceSettings):
    """Measures Kakeya's engine beside transformers and llama.cpp, each stepped directly, in one interleaved run.

    One model of Qwen3-0.6B's shape with random weights. Every contestant has a process and as many threads of its own,
    and waits while another is measured: Kakeya in int8, with K and V in bfloat16 or int8, and in bfloat16, transformers
    in bfloat16, llama.cpp in Q8_0, with K and V in f16 or q8_0 and the fastest of its settings for a case, and a loop
    that reads as many bytes as int8 weights have. Windows have 64 and 2,048 tokens, and 16,384 for int8 and llama.cpp.
    What has been measured is in measured.json of the output until the run is over.
    Exit status: 0 when every bound is kept; 1 where one is missed; 2 where it could not be measured. docs/benches.md
    says how it is measured.
    """

    model_config = SettingsConfigDict(
        **(
            ServiceSettings.configured(command="bench")
            | {"cli_prog_name": "python -m kakeya_bench.engine", "cli_shortcuts": {"json-file": "json"}}
        )
    )

    rounds: int = setting(
        Plan().num_rounds,
        "in which everybody is measured once in every case",
        reason="narrow intervals",
        metavar="N",
        ge=1,
    )
    output: Path = setting(Path("build/engine"), "directory of the report", metavar="DIR")
    json_file: Path | None = setting(None, "where to write the report's JSON, too", metavar="FILE")
