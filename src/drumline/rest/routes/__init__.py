"""The routes of the service, by what they are about: each module lists them as method, path and handler."""
