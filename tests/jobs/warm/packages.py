"""A program whose packages do more than define things when they are imported."""

import chatty
import looking
import probe

print("of packages:", chatty.ARGUMENTS, looking.RANK)

if __name__ == "__main__":
    probe.main()
