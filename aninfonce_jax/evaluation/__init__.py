"""Which scores a run gets, by what its source knows about the pairs."""
