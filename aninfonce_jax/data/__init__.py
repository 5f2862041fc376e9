"""Data sets, batches of them, and their augmentation."""
