"""Where positive pairs come from."""
