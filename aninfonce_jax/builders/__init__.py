"""From sections of a config to the parts of an experiment; `build` puts them together."""
