"""What is measured: scripts, played on a verifier."""
