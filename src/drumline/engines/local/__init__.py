"""The embedded engine: this machine plays a cluster. No server, no daemon, no root."""
