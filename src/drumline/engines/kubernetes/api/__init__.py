"""The way to an API server, of kubeconfigs and failures."""
