"""
The programs that ``mpirun`` or ``deepspeed`` finds instead of ssh: shims, and the socket where they ask the agent.
"""
