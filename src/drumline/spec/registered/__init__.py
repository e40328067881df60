"""The things that a workspace keeps under a name: data, models, datastores and computes; and workspaces themselves."""
