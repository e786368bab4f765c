"""A command of ours that the host starts and keeps running: by launchd on macOS, by systemd on Linux."""
