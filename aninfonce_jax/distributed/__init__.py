"""Many processes that are one run: finding each other, agreeing, and noticing who is lost."""
