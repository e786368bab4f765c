"""Order statistics and confidence intervals of what was measured."""
