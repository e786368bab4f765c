"""What the workflow of the Mac runs there. All of it runs on Linux, too."""
