"""Commands that serve web pages: our own, TensorBoard's and MLflow's."""
