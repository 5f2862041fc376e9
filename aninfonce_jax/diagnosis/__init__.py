"""Checks of the identifiability theorem's assumptions on pairs of embeddings."""
