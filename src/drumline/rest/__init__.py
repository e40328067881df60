"""The REST API of Azure ML, for Microsoft's own client: what `drumline azure serve` answers."""
