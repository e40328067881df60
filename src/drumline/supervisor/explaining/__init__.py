"""Why a job ended, in a sentence and in fields."""
