"""The benches behind `kakeya bench`: what a runtime and a model do, measured, judged and drawn."""
