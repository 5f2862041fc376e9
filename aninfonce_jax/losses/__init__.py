"""Contrastive losses on plain arrays."""
