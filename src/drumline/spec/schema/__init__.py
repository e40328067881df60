"""The schema of each kind of file: keys, types and messages, in the language of ``drumline.spec.kinds``."""
