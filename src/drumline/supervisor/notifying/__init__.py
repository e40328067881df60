"""Notifications of a job's end and troubles, sent by a process that no job waits for."""
