"""The top floor: the loop, in rooms that each import only those below them."""
