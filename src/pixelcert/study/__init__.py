"""Studies: many methods on many images, planned, run, resumed, spread over machines, and summed up."""
