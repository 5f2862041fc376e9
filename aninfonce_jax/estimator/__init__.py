"""Fit, transform, save and load: runs on data of one's own, by scikit-learn's conventions."""
