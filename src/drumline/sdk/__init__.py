"""azure-ai-ml's client, for the jobs of this machine."""
