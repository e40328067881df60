"""Lists of jobs that are looked at again and again: kept up to date, filtered, sorted, and told what is new."""
