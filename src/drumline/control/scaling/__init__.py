"""How far a job scales: the same job at several sizes, what its steps take there, and what larger sizes would take."""
