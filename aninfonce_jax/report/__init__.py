"""Pages and figures, made from the files of work directories alone."""
