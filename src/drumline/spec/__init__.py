"""The user's wishes: jobs in azure-ai-ml's words, from YAML or Python, checked."""
