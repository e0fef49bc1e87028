"""Studies of the paper's claims: the files that were run, and the code that turns their results into tables."""
