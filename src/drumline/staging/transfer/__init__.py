"""The process that downloads inputs into the cache and uploads outputs."""
