"""What goes into a step, what it costs, and the step's forward pass."""
