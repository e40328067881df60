"""One supervisor per job: hears its agents, decides, and writes down what happened."""
