"""Images from files: data sets, decoding, batches with a position, augmentation."""
