"""
Objects of azure-ai-ml and mldesigner where ours are expected, told by the modules of their classes: neither package is
imported here. tests/integration/azure_ai_ml runs all of this with the packages themselves.
"""
