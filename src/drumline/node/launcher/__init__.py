"""What ``mpirun`` or ``deepspeed`` meets on a node instead of ssh: shims, and the socket where they ask the agent."""
