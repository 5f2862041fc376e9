"""Data-generating processes: latent spaces, distributions, mixings."""
