"""What an encoder recovered, and the report of it."""
