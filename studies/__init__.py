"""Studies of the paper's claims: the study files, and the code that turns their results into tables."""
