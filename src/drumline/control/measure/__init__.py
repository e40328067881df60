"""Jobs that are run to measure them: drills and rehearsals, how far a job scales, and the settings of the fastest."""
