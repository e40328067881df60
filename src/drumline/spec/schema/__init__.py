"""What a file of each kind may hold: keys, types and messages, in the language of ``drumline.spec.kinds``."""
