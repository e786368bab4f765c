"""`kakeya demo`."""

SUMMARY = "hold long conversations on a throw-away stack, with every byte of their KV checked"


def main(argv: list[str]) -> int:
    from kakeya_local.demo.scripts import NUM_TURNS, SCRIPTS
    from kakeya_local.settings import DEMO_SINK, DEMO_WINDOW, DemoSettings

    asked = DemoSettings.parse(argv)
    import asyncio

    from kakeya_local.demo.demo import DemoOptions, demo

    num_turns = asked.turns or NUM_TURNS
    num_conversations = asked.conversations or len(SCRIPTS)
    as_written = (asked.sink, asked.window, num_turns) == (DEMO_SINK, DEMO_WINDOW, NUM_TURNS)
    options = DemoOptions(
        model=asked.model,
        num_turns=num_turns,
        num_conversations=num_conversations,
        num_workers=asked.workers,
        sink=asked.sink,
        window=asked.window,
        json_file=asked.json_file,
        has_defaults=as_written and num_conversations <= len(SCRIPTS),
    )
    return asyncio.run(demo(options))
