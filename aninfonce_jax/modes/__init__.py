"""What each `--mode` of the command does: one module each."""
