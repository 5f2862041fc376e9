"""Encoders and their heads."""
