"""Functions of arrays that say how good a representation is."""
