"""From a batch to new weights: gradients, precision, optimizer steps, schedulers."""
