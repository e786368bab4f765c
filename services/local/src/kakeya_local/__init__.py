"""A whole Kakeya on one machine: `kakeya up`, `kakeya demo`, `kakeya doctor`."""
