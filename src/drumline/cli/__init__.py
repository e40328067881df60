"""The command line: a file per noun, those of jobs and of assets in folders."""
