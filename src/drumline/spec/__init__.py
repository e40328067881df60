"""What the user asked for: jobs in azure-ai-ml's words, from YAML or Python, checked."""
