"""The benches of the SDK: `kakeya bench session`, `compare` and `load`. They need the extra [bench]."""
