"""`kakeya bench quality`: what a bounded cache costs a model, measured. docs/quality.md says how to read it."""
